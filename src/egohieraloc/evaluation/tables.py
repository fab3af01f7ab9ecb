"""Benchmark reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from rich.box import SIMPLE_HEAD
from rich.table import Table

from egohieraloc.evaluation.egotracks import EgoTracksReport
from egohieraloc.evaluation.significance import Difference, SeedComparison
from egohieraloc.evaluation.trek150 import TrekReport
from egohieraloc.evaluation.vq2d import Vq2dReport
from egohieraloc.evaluation.vq3d import Vq3dReport

BenchmarkReport: TypeAlias = Vq2dReport | Vq3dReport | EgoTracksReport | TrekReport
_PARTS = {Vq2dReport: "queries", Vq3dReport: "queries", EgoTracksReport: "frames", TrekReport: "runs"}


def tables_of(report: BenchmarkReport) -> tuple[Table, ...]:
    """The tables printed for a report."""
    if isinstance(report, Vq2dReport):
        return (_vq2d(report),)
    if isinstance(report, Vq3dReport):
        return (_vq3d(report), _vq3d_groups(report)) if report.groups else (_vq3d(report),)
    if isinstance(report, EgoTracksReport):
        return (_egotracks(report),)
    return (_trek150(report),)


def notes_of(report: BenchmarkReport) -> list[str]:
    """What a reader of the tables needs to know."""
    notes = {
        f"{report.missing} {_PARTS[type(report)]} have no prediction and count as not found.": report.missing
    }
    if not isinstance(report, TrekReport):
        ignored = "predictions match nothing in the annotation file and were ignored."
        notes[f"{report.ignored} {ignored}"] = report.ignored
    if isinstance(report, EgoTracksReport):
        left_out = "sequences are not annotated or have no frame to find, and are left out."
        notes[f"{report.left_out} {left_out}"] = report.left_out
    return [note for note, number in notes.items() if number]


def _vq2d(report: Vq2dReport) -> Table:
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


def _vq3d(report: Vq3dReport) -> Table:
    """One row per measure: there are many of them and only two columns."""
    ours, baseline = report.scores.measures, report.scan_centroid.measures
    return _table(
        f"VQ3D, {report.scores.num_queries} queries",
        ("", "predictions", "one point per scan"),
        ((name, *_fixed(5, ours[name], baseline[name])) for name in ours),
    )


def _vq3d_groups(report: Vq3dReport) -> Table:
    return _table(
        "VQ3D by group",
        ("", "queries", "Succ %", "Succ* %", "L2 m", "angle 1 rad", "QwP %"),
        (
            (
                name,
                s.num_queries,
                *_fixed(2, s.success, s.success_star),
                *_fixed(3, s.distance_m, s.angle_1_rad),
                *_fixed(2, s.coverage),
            )
            for name, s in report.groups
        ),
    )


def _egotracks(report: EgoTracksReport) -> Table:
    overlap, number = report.average_overlap, report.num_sequences
    rows = [
        ("mean of sequences", number, overlap, report.by_sequence),
        ("all frames pooled", number, None, report.pooled),
        *((name, s.num_sequences, s.average_overlap, s.by_sequence) for name, s in report.groups),
    ]
    return _table(
        "EgoTracks",
        ("", "sequences", "AO %", "F %", "precision %", "recall %"),
        (
            (name, count, *_percent(average, s.f_score, s.precision, s.recall))
            for name, count, average, s in rows
        ),
    )


def _trek150(report: TrekReport) -> Table:
    rows = [("all", report.num_sequences, report.overall), *report.attributes]
    return _table(
        f"TREK-150, {report.protocol.upper()}",
        ("", "sequences", "SS", "NPS", "GSR", "recall"),
        (
            (name, number, *_fixed(4, s.success, s.normalized_precision, s.robustness, s.recall))
            for name, number, s in rows
        ),
    )


def difference_table(title: str, differences: Mapping[str, Difference]) -> Table:
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
            for name, d in differences.items()
        ),
    )


def seeds_table(comparisons: Mapping[str, SeedComparison], runs: tuple[int, int]) -> Table:
    return _table(
        f"{runs[0]} runs against {runs[1]}, Welch's t",
        ("", "first", "std", "second", "std", "difference", "± 1.96 s.e.", "t", "p"),
        (
            (
                name,
                *_fixed(4, c.difference.first, c.std_first, c.difference.second, c.std_second),
                *_fixed(4, c.difference.value),
                f"{c.difference.low:.4f} to {c.difference.high:.4f}",
                *_fixed(2, c.t),
                *_fixed(4, c.difference.p_value),
            )
            for name, c in comparisons.items()
        ),
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _percent(*shares: float | None) -> tuple[str, ...]:
    return _fixed(2, *(None if share is None else 100 * share for share in shares))


def _fixed(digits: int, *values: float | None) -> tuple[str, ...]:
    return tuple("-" if value is None else f"{value:.{digits}f}" for value in values)
