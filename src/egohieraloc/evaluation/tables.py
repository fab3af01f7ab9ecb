"""Reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from egohieraloc.evaluation.egotracks import EgoTracksReport
from egohieraloc.evaluation.significance import Difference
from egohieraloc.evaluation.trek150 import TrekReport
from egohieraloc.evaluation.vq2d import Vq2dReport
from egohieraloc.evaluation.vq3d import Vq3dReport


def vq2d_table(report: Vq2dReport) -> Table:
    rows = [("own score", report.own_score), ("score 1 for all", report.constant_score), *report.groups]
    return _table(
        "VQ2D",
        ("", "queries", "tAP", "tAP25", "stAP", "stAP25", "rec %", "succ %"),
        (
            (
                name,
                s.num_queries,
                *_fixed(3, s.tap, s.tap25, s.stap, s.stap25),
                *_fixed(2, s.recovery, s.success),
            )
            for name, s in rows
        ),
    )


def vq3d_table(report: Vq3dReport) -> Table:
    """Measures go down: there are many, and two systems."""
    both = (report.scores, report.scan_centroid)
    measures: list[tuple[str, tuple[str, ...]]] = [
        ("Succ %", _fixed(2, *(s.success for s in both))),
        ("Succ* %", _fixed(2, *(s.success_star for s in both))),
        ("L2 m", _fixed(5, *(s.distance_m for s in both))),
        ("angle to annotator 1", _fixed(5, *(s.angle_1_rad for s in both))),
        ("angle to annotator 2", _fixed(5, *(s.angle_2_rad for s in both))),
        ("QwP %", _fixed(2, *(s.coverage for s in both))),
    ]
    for place, (radius, _) in enumerate(report.scores.success_at):
        measures.append((f"nearer than {radius:g} m %", _fixed(2, *(s.success_at[place][1] for s in both))))
    return _table(
        f"VQ3D, {report.scores.num_queries} queries",
        ("", "predictions", "one point per scan"),
        ((name, *values) for name, values in measures),
    )


def egotracks_table(report: EgoTracksReport) -> Table:
    rows = (("mean of sequences", report.by_sequence), ("all frames pooled", report.pooled))
    return _table(
        f"EgoTracks, {report.num_sequences} sequences",
        ("%", "AO", "F", "precision", "recall"),
        (
            (name, *_fixed(2, *(100 * v for v in (report.average_overlap, s.f_score, s.precision, s.recall))))
            for name, s in rows
        ),
    )


def trek150_table(report: TrekReport) -> Table:
    rows = [("all", report.num_sequences, report.overall), *report.attributes]
    return _table(
        f"TREK-150, {report.protocol}",
        ("", "sequences", "SS", "NPS", "GSR", "recall"),
        (
            (name, number, *_fixed(4, s.success, s.normalized_precision, s.robustness, s.recall))
            for name, number, s in rows
        ),
    )


def difference_table(title: str, differences: Iterable[tuple[str, Difference]]) -> Table:
    return _table(
        title,
        ("", "first", "second", "difference", "95 % interval", "p"),
        (
            (
                name,
                *_fixed(4, d.first, d.second, d.value),
                f"{d.low:.4f} to {d.high:.4f}",
                *_fixed(4, d.p_value),
            )
            for name, d in differences
        ),
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _fixed(digits: int, *values: float | None) -> tuple[str, ...]:
    return tuple("-" if value is None else f"{value:.{digits}f}" for value in values)
