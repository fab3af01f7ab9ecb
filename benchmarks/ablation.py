"""What each part is worth: networks trained without it, and one network asked in other ways.

    python benchmarks/ablation.py --data DIR --model full=FILE [--model without-z=FILE] [--row top-k-1]

The questions are those of `synthetic_heldout.py`. Every answer is given (threshold 0), because networks
that were trained for a short time are not calibrated; `apart` is the share of pairs of a present and an
absent object in which the present one has the higher score. Rows are names of `egohieraloc ablations` that
need no weights of their own; they ask the first model. `--quality FILE` keeps the quality of the query masks
as a table, `--json FILE` what was found so far; `--rounds 4` asks four sets of questions.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from egohieraloc.ablations import find_ablation
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.files import write_json
from egohieraloc.inference.predict import choose_device
from egohieraloc.localize import Localizer, LocalizerConfig, with_settings
from egohieraloc.models.weights import Calibration, Weights, load_weights
from egohieraloc.training.composer.composed_videos import compose_halves, questions_of
from egohieraloc.training.composer.packs import read_packs
from figures import Outcome, figures, outcome


@dataclass
class Row:
    """One way of asking, and what came of it."""

    localizer: Localizer
    outcomes: list[Outcome] = field(default_factory=list)
    samples: int = 0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--row", action="append", default=[], help="another way to ask the first model")
    parser.add_argument("--device")
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1, help="sets of `--clips` questions")
    parser.add_argument("--quality", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    packs = read_packs(options.data, split="heldout")
    device = choose_device(options.device)
    rounds = [compose_halves(packs, device, clips=options.clips, seed=seed) for seed in range(options.rounds)]
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, word in enumerate(options.model):
            name, _, path = word.partition("=")
            weights = replace(load_weights(path), calibration=Calibration(threshold=0.0))
            rows = {name: Row(localizer(weights, (), options.device, scratch))}
            for other in options.row if number == 0 else ():
                settings = find_ablation(other).settings
                rows[other] = Row(localizer(weights, settings, options.device, scratch))
            predictor = rows[name].localizer.predictor
            qualities = []
            questions = (
                questions_of(halves, predictor, Path(scratch), seed=seed)
                for seed, halves in enumerate(rounds)
            )
            for question in itertools.chain.from_iterable(questions):
                for row in rows.values():
                    started = time.perf_counter()
                    answered = row.localizer.ask(question.query, question.video)
                    row.seconds += time.perf_counter() - started
                    row.samples += len(question.video.time_s)
                    row.outcomes.append(outcome("", question.truth, answered))
                if options.quality and number == 0:
                    qualities.append(predictor.prepare(question.query).mask.quality)
                for asked in Path(scratch).glob("question-*"):
                    shutil.rmtree(asked)
            for label, row in rows.items():
                found[label] = row_figures(row)
                print_row(label, found[label], first=len(found) == 1)
            if qualities:
                write_table(options.quality, qualities)
            if options.json:
                write_json(options.json, found)


def localizer(weights: Weights, words: Sequence[str], device: str | None, cache: str) -> Localizer:
    config = with_settings(LocalizerConfig(), words, weights)
    return Localizer(weights, device=device, config=config, cache=Path(cache))


def row_figures(row: Row) -> dict[str, float]:
    all_of_it = figures(row.outcomes)
    present = [o for o in row.outcomes if len(o.truth)]
    absent = np.array([o.score for o in row.outcomes if not len(o.truth)])
    own = np.array([o.score for o in present])
    return {
        "present": len(present),
        "success": all_of_it.success,
        "stap25": all_of_it.stap25,
        "recovery": all_of_it.recovery,
        "hard_failures": float(100 * np.mean([overlap(o.truth, o.answer)[1] == 0 for o in present])),
        "apart": float(100 * np.mean(own[:, None] > absent)) if len(absent) else 100.0,
        "samples_per_second": row.samples / row.seconds,
    }


def print_row(name: str, values: dict[str, float], *, first: bool) -> None:
    if first:
        print(f"{'':20}" + "".join(f"{key:>20}" for key in values))
    print(f"{name:20}" + "".join(f"{value:20.3f}" for value in values.values()), flush=True)


def write_table(path: Path, qualities: list[float]) -> None:
    """Ten classes of the mask's own quality and how many queries fall into each."""
    counts, edges = np.histogram(qualities, bins=10, range=(0, 1))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["quality", "queries"])
        writer.writerows(
            (round(float(low), 1), int(count)) for low, count in zip(edges, counts, strict=False)
        )


if __name__ == "__main__":
    main()
