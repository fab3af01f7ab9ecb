"""Ablations: networks trained without a part, and one network with other settings at inference.

    python benchmarks/ablation.py --data DIR --model full=FILE [--model without-z=FILE] [--row top-k-1]

The queries are those of `synthetic_heldout.py`. The threshold is 0, because networks trained for a short time
are not calibrated; `apart` is the share of pairs of a present and an absent object in which the present one
has the higher score. Rows are names of `egohieraloc ablations` that need no weights of their own; they use
the first model. `--quality FILE` writes a table of the quality of the query masks, `--json FILE` the results
so far; `--rounds 4` uses four sets of queries.
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
from egohieraloc.training.composer.composed_videos import compose_halves, queries_of
from egohieraloc.training.composer.packs import read_packs
from figures import Outcome, figures, outcome


@dataclass
class Row:
    """A localizer and its results."""

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
    parser.add_argument("--row", action="append", default=[], help="an ablation of the first model")
    parser.add_argument("--device")
    parser.add_argument("--clips", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1, help="sets of `--clips` queries")
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
            queries = (
                queries_of(halves, predictor, Path(scratch), seed=seed) for seed, halves in enumerate(rounds)
            )
            for query in itertools.chain.from_iterable(queries):
                for row in rows.values():
                    started = time.perf_counter()
                    answered = row.localizer.ask(query.query, query.video)
                    row.seconds += time.perf_counter() - started
                    row.samples += len(query.video.time_s)
                    row.outcomes.append(outcome("", query.truth, answered))
                if options.quality and number == 0:
                    qualities.append(predictor.prepare(query.query).mask.quality)
                for used in Path(scratch).glob("query-*"):
                    shutil.rmtree(used)
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
    overall = figures(row.outcomes)
    present = [o for o in row.outcomes if len(o.truth)]
    absent = np.array([o.score for o in row.outcomes if not len(o.truth)])
    scores = np.array([o.score for o in present])
    return {
        "present": len(present),
        "success": overall.success,
        "stap25": overall.stap25,
        "recovery": overall.recovery,
        "hard_failures": float(100 * np.mean([overlap(o.truth, o.answer)[1] == 0 for o in present])),
        "apart": float(100 * np.mean(scores[:, None] > absent)) if len(absent) else 100.0,
        "samples_per_second": row.samples / row.seconds,
    }


def print_row(name: str, values: dict[str, float], *, first: bool) -> None:
    if first:
        print(f"{'':20}" + "".join(f"{key:>20}" for key in values))
    print(f"{name:20}" + "".join(f"{value:20.3f}" for value in values.values()), flush=True)


def write_table(path: Path, qualities: list[float]) -> None:
    """A histogram of the estimated mask quality, in ten bins."""
    counts, edges = np.histogram(qualities, bins=10, range=(0, 1))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["quality", "queries"])
        writer.writerows(
            (round(float(low), 1), int(count)) for low, count in zip(edges, counts, strict=False)
        )


if __name__ == "__main__":
    main()
