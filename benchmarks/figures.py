"""The figures and the table that `real_dev.py` and `synthetic_heldout.py` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from egohieraloc.data.base import Track
from egohieraloc.evaluation.vq2d import measure, overlap, score
from egohieraloc.result import Result
from egohieraloc.types import NotFound, ResponseTrack


@dataclass(frozen=True, eq=False)
class Outcome:
    """One query, its ground truth and the answer; a track without frames means that the object is absent."""

    name: str
    truth: Track
    answer: Track
    score: float
    peak: float  # of the smoothed curve


@dataclass(frozen=True)
class Figures:
    """Measures over all queries. AP in [0, 1], the others in percent."""

    present: int
    absent: int
    tap25_constant: float
    tap25: float
    stap25_constant: float
    stap25: float
    recovery: float
    success: float
    tube25: float  # share of present queries with a space-time IoU of at least 0.25
    absent_rejected: float
    present_lost: float  # share of present queries that were answered with NotFound


HEADINGS = {
    "tap25_constant": "tAP25 (score 1)",
    "tap25": "tAP25",
    "stap25_constant": "stAP25 (score 1)",
    "stap25": "stAP25",
    "recovery": "recovery %",
    "success": "success %",
    "tube25": "stIoU>=.25 %",
    "absent_rejected": "absent rejected %",
    "present_lost": "present lost %",
}


def outcome(name: str, truth: Track, answered: Result) -> Outcome:
    """From what the package answers."""
    track = answered.track
    given = Track.empty() if isinstance(track, NotFound) else track_of(track)
    return Outcome(name, truth, given, track.score, float(answered.curve.smooth.max(initial=0.0)))


def track_of(answer: ResponseTrack) -> Track:
    return Track.from_boxes([p.sample for p in answer.predictions], [p.box.xyxy for p in answer.predictions])


def figures(outcomes: Sequence[Outcome]) -> Figures:
    """Queries of present objects are measured as in VQ2D; absent ones only by whether they are rejected."""
    present = [o for o in outcomes if len(o.truth)]
    absent = [o for o in outcomes if not len(o.truth)]
    overlaps = measure((o.truth, o.answer, o.score if len(o.answer) else 0.0) for o in present)
    own, constant = score(overlaps), score(overlaps, constant_score=True)
    return Figures(
        present=len(present),
        absent=len(absent),
        tap25_constant=constant.tap25,
        tap25=own.tap25,
        stap25_constant=constant.stap25,
        stap25=own.stap25,
        recovery=own.recovery,
        success=own.success,
        tube25=float(100 * np.mean(overlaps.tube_iou >= 0.25)),
        absent_rejected=float(100 * np.mean([not len(o.answer) for o in absent])) if absent else 100.0,
        present_lost=float(100 * np.mean([not len(o.answer) for o in present])),
    )


def print_table(rows: dict[str, Figures]) -> None:
    """One line per figure, one column per method."""
    first = next(iter(rows.values()))
    print(f"{first.present} present and {first.absent} absent queries")
    print(f"{'':20}" + "".join(f"{name:>20}" for name in rows))
    for key, heading in HEADINGS.items():
        digits = 3 if "AP" in heading else 1
        values = (asdict(row)[key] for row in rows.values())
        print(f"{heading:20}" + "".join(f"{value:20.{digits}f}" for value in values))


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """A line per query."""
    print(
        f"\n{'query':34}{'true':>10}{'answer':>10}{'tIoU':>7}{'stIoU':>7}{'found':>10}{'score':>7}{'peak':>7}"
    )
    for o in outcomes:
        temporal, tube, recovered = overlap(o.truth, o.answer)
        print(
            f"{o.name[:33]:34}{_span(o.truth):>10}{_span(o.answer):>10}{temporal:7.2f}{tube:7.2f}"
            f"{f'{recovered}/{len(o.truth)}':>10}{o.score:7.2f}{o.peak:7.2f}"
        )


def _span(track: Track) -> str:
    return f"{track.frames[0]}..{track.frames[-1]}" if len(track) else "-"
