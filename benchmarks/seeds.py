"""Two ways to train, with several seeds each, on the same questions: is one better?

    python benchmarks/hard_heldout.py ... --against qam-0=FILE --against dpm-0=FILE ... --json FILE
    python benchmarks/seeds.py FILE --first qam-0 qam-1 qam-2 --second dpm-0 dpm-1 dpm-2

By group of questions: the success of both, averaged over seeds, and the difference with its 95 % interval, by
bootstrap over questions and over the seeds of each; then the difference of each pair of seeds. All answers
count, and those at an equal refusal of absent objects.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD
from egohieraloc.types import Floats
from hard_clips import Difficulty
from hard_heldout import groups_of
from refusal import CONFIDENCE, REFUSED_SHARE, Interval, refusal_bar

RESAMPLES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what hard_heldout.py wrote")
    parser.add_argument("--first", nargs="+", required=True, help="its rows")
    parser.add_argument("--second", nargs="+", required=True)
    options = parser.parse_args()
    questions = json.loads(options.file.read_text())["questions"]
    present = np.array([question["present"] for question in questions])
    groups = groups_of([difficulty_of(question["difficulty"]) for question in questions])
    groups = {"all": np.ones(len(questions), bool)} | groups
    for refused in (0.0, REFUSED_SHARE):
        first, second = (
            np.stack([hits(questions, row, refused) for row in rows])
            for rows in (options.first, options.second)
        )
        print(f"\n{100 * refused:.0f} % of the absent refused")
        print(f"{'':22}{'present':>8}{'first %':>9}{'second %':>10}{'difference':>24}  seed by seed")
        for name, chosen in groups.items():
            rows = chosen & present
            if rows.any():
                print(f"{name:22}{rows.sum():8}{compared(first[:, rows], second[:, rows])}")


def difficulty_of(values: Mapping[str, float | None]) -> Difficulty:
    return Difficulty(**{name: float("nan") if value is None else value for name, value in values.items()})


def hits(questions: Sequence[Mapping[str, Mapping[str, float]]], row: str, refused: float) -> Floats:
    """(Q,) 100 for a question that a row answers rightly and above the bar, else 0."""
    iou, score = (np.array([question[key][row] for question in questions]) for key in ("tube_iou", "score"))
    absent = score[[not question["present"] for question in questions]]
    bar = refusal_bar(absent) if refused else -np.inf
    return 100.0 * ((iou >= SUCCESS_THRESHOLD) & (score > bar))


def compared(first: NDArray[np.float64], second: NDArray[np.float64]) -> str:
    """Hits (S, Q) of S seeds each, in a line."""
    rng, count = np.random.default_rng(0), first.shape[1]
    drawn = []
    for _ in range(RESAMPLES):
        asked = rng.integers(count, size=count)
        means = [rows[rng.integers(len(rows), size=len(rows))][:, asked].mean() for rows in (first, second)]
        drawn.append(means[0] - means[1])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail)).tolist()
    difference = Interval(float(first.mean() - second.mean()), low, high)
    pairs = " ".join(f"{a.mean() - b.mean():+.1f}" for a, b in zip(first, second, strict=False))
    return f"{first.mean():9.1f}{second.mean():10.1f}{difference!s:>24}  {pairs}"


if __name__ == "__main__":
    main()
