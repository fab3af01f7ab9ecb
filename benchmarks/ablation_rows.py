"""Ablations of inference on the same questions, with intervals: which parts can be told to help?

    python benchmarks/ablation_rows.py --data DIR --out DIR
    python benchmarks/ablation_rows.py --data DIR --out DIR --engine torch --row without-feedback

Questions are about held-out objects, hard to find as in `hard_heldout.py` but in frames of 448 pixels:
another side than in the query, small, covered, blurred, some beside an object that looks like it. There are
three seeds of them, each in `--parts` parts of `--questions`; the clips of a part are composed and encoded
once, and each of its questions is asked once under every row's settings, in a video of 6 samples for each
clip of the other half. All rows use one file of weights: a row that the paper trains anew (without-o,
without-z, qam-only, dpm-only, without-feedback) is here that part switched off after training, and a seed is
one of questions, not of training. Rows that change the decoder (without-feedback, score-*) have no OpenVINO
graph: `--engine torch`.

Answers go to `--out`, question by question: a run that was stopped goes on where it was. The table has
success and mean stIoU with 95 % bootstrap intervals; the differences to the full system, question by
question, with theirs; the difference of stIoU by seed. Where zero lies in the intervals of both differences,
the row cannot be told apart from the full system.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from egohieraloc.ablations import find_ablation
from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, overlap
from egohieraloc.files import write_json
from egohieraloc.localize import Localizer
from egohieraloc.settings import update
from egohieraloc.training.composer.composed_videos import (
    ComposedQuery,
    answer_to,
    compose_halves,
    queries_of,
)
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Floats
from hard_clips import BLURRED, HARD, SHARP
from options import answer_options
from refusal import Interval, answering_localizer, bootstrapped

FULL = "full"
PRESENT = {"frame_px": 448, "absent_share": 0.0, "rival_share": 0.5}
ROWS = (
    "without-o",
    "without-z",
    "qam-only",
    "dpm-only",
    "without-multi-peak",
    "without-ellipse",
    "without-drift",
    "top-k-1",
    "top-k-3",
    "top-k-10",
)


@dataclass(frozen=True)
class Answered:
    """One question: the tube IoU of every row's answer."""

    seed: int
    tube_iou: Mapping[str, float]


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="answers are kept here")
    parser.add_argument("--row", dest="rows", action="append", help=f"by default {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", type=int, default=9, help="of a seed; every second one is blurred")
    parser.add_argument("--questions", type=int, default=16, help="of a part")
    options = parser.parse_args()
    options.rows = [FULL, *(options.rows or ROWS)]
    options.out.mkdir(parents=True, exist_ok=True)
    parts = range(options.seeds * options.parts)
    for number in parts:
        print(f"part {number}: {answer_part(options, number)} questions", flush=True)
    answered = [
        Answered(number // options.parts, row) for number in parts for row in stored(options, number).values()
    ]
    print_table(answered, options.rows)
    if options.json:
        write_json(options.json, [{"seed": one.seed, **one.tube_iou} for one in answered])


def answer_part(options: argparse.Namespace, number: int) -> int:
    """Ask the questions of one part that have no answer yet; how many it has in all."""
    torch.set_num_threads(1)
    known = stored(options, number)
    if len(known) < options.questions:
        with tempfile.TemporaryDirectory() as scratch, answers_file(options, number).open("a") as file:
            localizers = {row: localizer_of_row(options, row, Path(scratch)) for row in options.rows}
            for name, query in enumerate(composed(options, localizers[FULL], number, Path(scratch))):
                if str(name) not in known and len(query.truth):
                    ious = {row: tube_iou(query, each) for row, each in localizers.items()}
                    file.write(json.dumps({"question": str(name), "tube_iou": ious}) + "\n")
                    file.flush()
    return len(stored(options, number))


def localizer_of_row(options: argparse.Namespace, row: str, cache: Path) -> Localizer:
    words = [*options.settings, *find_ablation(row).settings]
    return answering_localizer(
        options.model, device=options.device, engine=options.engine, settings=words, cache=cache
    )[0]


def composed(
    options: argparse.Namespace, localizer: Localizer, number: int, scratch: Path
) -> Iterator[ComposedQuery]:
    predictor = localizer.predictor
    config = update(HARD, PRESENT | (BLURRED if number % 2 else SHARP))
    packs = read_packs(options.data, split="heldout")
    halves = compose_halves(packs, predictor.device, clips=options.questions, config=config, seed=number)
    return queries_of(halves, predictor, scratch, seed=number)


def tube_iou(query: ComposedQuery, localizer: Localizer) -> float:
    return float(overlap(query.truth, answer_to(query, localizer)[0])[1])


def answers_file(options: argparse.Namespace, number: int) -> Path:
    return Path(options.out) / f"part-{options.questions}-{number}.jsonl"


def stored(options: argparse.Namespace, number: int) -> dict[str, dict[str, float]]:
    """Answers by question, of those that were asked under all rows."""
    path = answers_file(options, number)
    return dict(_whole_lines(path, options.rows)) if path.exists() else {}


def _whole_lines(path: Path, rows: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    for line in path.read_text().splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:  # the process was killed while it wrote
            continue
        if set(rows) <= set(values["tube_iou"]):
            yield values["question"], values["tube_iou"]


def print_table(answered: Sequence[Answered], rows: Sequence[str]) -> None:
    rng, seeds = np.random.default_rng(0), np.array([one.seed for one in answered])
    iou = {row: np.array([one.tube_iou[row] for one in answered]) for row in rows}
    print(f"{len(answered)} questions, {len(set(seeds))} seeds of them\n")
    headings = ("success %", "minus full", "stIoU x 100", "minus full", "by seed")
    print(f"{'':20}" + "".join(f"{text:>24}" for text in headings))
    alike = []
    for row in rows:
        measured = {"success": 100.0 * (iou[row] >= SUCCESS_THRESHOLD), "stiou": 100.0 * iou[row]}
        full = {"success": 100.0 * (iou[FULL] >= SUCCESS_THRESHOLD), "stiou": 100.0 * iou[FULL]}
        cells: list[object] = []
        differences = []
        for name, values in measured.items():
            difference = bootstrapped(values - full[name], rng)
            differences.append(difference)
            cells += [bootstrapped(values, rng), "" if row == FULL else difference]
        cells.append("" if row == FULL else _by_seed(measured["stiou"] - full["stiou"], seeds))
        print(f"{row:20}" + "".join(f"{cell!s:>24}" for cell in cells))
        if row != FULL and all(_holds_zero(difference) for difference in differences):
            alike.append(row)
    print(f"\ncannot be told apart from {FULL}: {', '.join(alike) or 'none'}")


def _by_seed(values: Floats, seeds: Floats) -> str:
    """The mean difference of stIoU of each seed."""
    return " ".join(f"{values[seeds == seed].mean():+.1f}" for seed in sorted(set(seeds.tolist())))


def _holds_zero(difference: Interval) -> bool:
    return difference.low <= 0 <= difference.high


if __name__ == "__main__":
    main()
