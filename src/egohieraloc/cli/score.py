"""`egohieraloc score`: score anybody's prediction file, compare two, write and check submissions."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from egohieraloc.data.ego4d import VisualQuery, read_vq2d
from egohieraloc.data.ego4d_3d import read_vq3d
from egohieraloc.data.egotracks import TrackingQuery, read_clip_lengths, read_egotracks
from egohieraloc.data.trek150 import TrekSequence, read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, submission, tables, trek150, validation, vq2d, vq3d
from egohieraloc.evaluation.predictions import read_vq2d_predictions
from egohieraloc.evaluation.significance import paired_bootstrap
from egohieraloc.files import write_json

app = typer.Typer(help="Score prediction files and prepare submissions.", no_args_is_help=True)

MEASURES = ("tAP", "tAP25", "stAP", "stAP25", "recovery %", "success %")
Annotations = Annotated[Path, typer.Option(help="The benchmark's annotation file (TREK-150: its folder).")]
Predictions = Annotated[
    Path, typer.Option(help="Predictions: our file, a challenge file, or a published one.")
]
Split = Annotated[str | None, typer.Option(help="Only this split of the annotation file.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all numbers to this file.")]
ClipInfo = Annotated[Path | None, typer.Option(help="EgoTracks' clip_info.json, for the clips' lengths.")]
Out = Annotated[Path, typer.Option(help="Where to write.")]


class Benchmark(StrEnum):
    vq2d = "vq2d"
    vq3d = "vq3d"
    egotracks = "egotracks"
    trek150 = "trek150"


class TrekProtocol(StrEnum):
    ope = "ope"
    mse = "mse"
    hoi = "hoi"


@app.command("vq2d")
def score_vq2d(
    annotations: Annotations, predictions: Predictions, split: Split = None, json: Json = None
) -> None:
    """Ego4D VQ2D: tAP, stAP, recovery and success."""
    queries = _visual_queries(annotations, split)
    found = vq2d.report(queries, read_vq2d_predictions(predictions, queries))
    show(tables.vq2d_table(found))
    note(found.missing, found.ignored)
    _save(json, found.to_json())


@app.command("vq3d")
def score_vq3d(annotations: Annotations, predictions: Predictions, json: Json = None) -> None:
    """Ego4D VQ3D: success, distance, angle and coverage."""
    found = vq3d.report(list(read_vq3d(annotations)), vq3d.read_vq3d_predictions(predictions))
    show(tables.vq3d_table(found))
    note(found.missing, found.ignored)
    _save(json, found.to_json())


@app.command("egotracks")
def score_egotracks(
    annotations: Annotations,
    predictions: Predictions,
    clip_info: ClipInfo = None,
    split: Split = None,
    json: Json = None,
) -> None:
    """EgoTracks: average overlap, precision, recall and F."""
    queries = _tracking_queries(annotations, split)
    answers = egotracks.read_egotracks_predictions(predictions, queries)
    found = egotracks.report(queries, answers, read_clip_lengths(clip_info) if clip_info else None)
    show(tables.egotracks_table(found))
    note(found.missing, 0)
    _save(json, found.to_json())


@app.command("trek150")
def score_trek150(
    annotations: Annotations,
    predictions: Predictions,
    protocol: TrekProtocol = TrekProtocol.ope,
    json: Json = None,
) -> None:
    """TREK-150: success, normalised precision and robustness, by attribute."""
    sequences = list(read_trek150(annotations))
    boxes = trek150.read_trek150_predictions(predictions, sequences, protocol.value)
    found = trek150.report(sequences, protocol.value, boxes)
    show(tables.trek150_table(found))
    note(found.missing, 0)
    _save(json, found.to_json())


@app.command()
def compare(
    annotations: Annotations,
    first: Annotated[Path, typer.Option(help="VQ2D predictions.")],
    second: Annotated[Path, typer.Option(help="VQ2D predictions to compare with.")],
    resamples: Annotated[int, typer.Option(min=1)] = 2000,
    seed: int = 0,
    json: Json = None,
) -> None:
    """Is the first better than the second? Paired bootstrap over VQ2D queries."""
    queries = _visual_queries(annotations, None)
    sides = [vq2d.measure_answers(queries, read_vq2d_predictions(p, queries))[0] for p in (first, second)]
    differences = paired_bootstrap(
        *sides,
        metric=lambda overlaps: _measures(vq2d.score(overlaps)),
        take=vq2d.Overlaps.take,
        num_queries=len(queries),
        resamples=resamples,
        seed=seed,
    )
    named = list(zip(MEASURES, differences, strict=True))
    show(tables.difference_table(f"{len(queries)} queries, {resamples} resamples", named))
    _save(json, {name: {**vars(d), "value": d.value} for name, d in named})


@app.command()
def submit(
    benchmark: Benchmark,
    annotations: Annotations,
    predictions: Predictions,
    out: Out,
    clip_info: ClipInfo = None,
    tracker_name: str = "EgoHieraLoc",
) -> None:
    """Write the file that the benchmark's challenge server wants, and check it."""
    if benchmark is Benchmark.vq2d:
        queries = _visual_queries(annotations, None)
        submission.write_vq2d_submission(out, annotations, read_vq2d_predictions(predictions, queries))
    elif benchmark is Benchmark.vq3d:
        submission.write_vq3d_submission(out, annotations, vq3d.read_vq3d_predictions(predictions))
    elif benchmark is Benchmark.egotracks:
        tracked = _tracking_queries(annotations, None)
        answers = egotracks.read_egotracks_predictions(predictions, tracked)
        submission.write_egotracks_submission(out, tracked, answers, _lengths(clip_info))
    else:
        sequences = list(read_trek150(annotations))
        submission.write_trek150_submission(
            out, sequences, _all_protocols(predictions, sequences), tracker_name=tracker_name
        )
    validate(benchmark, annotations, out, clip_info)


@app.command()
def validate(
    benchmark: Benchmark,
    annotations: Annotations,
    submission: Annotated[Path, typer.Option("--submission", help="The file for the server.")],
    clip_info: ClipInfo = None,
) -> None:
    """Check a submission: order, counts, types and ranges."""
    if benchmark is Benchmark.vq2d:
        problems = validation.validate_vq2d(annotations, submission)
    elif benchmark is Benchmark.vq3d:
        problems = validation.validate_vq3d(annotations, submission)
    elif benchmark is Benchmark.egotracks:
        problems = validation.validate_egotracks(
            _tracking_queries(annotations, None), _lengths(clip_info), submission
        )
    else:
        problems = validation.validate_trek150(list(read_trek150(annotations)), submission)
    for problem in problems[:20]:
        typer.echo(f"  {problem}")
    if problems:
        raise DataError(
            f"{submission} has {len(problems)} problems; a server would refuse it or score it wrongly."
        )
    typer.echo(f"{submission} is a good {benchmark.value} submission.")


def _visual_queries(annotations: Path, split: str | None) -> list[VisualQuery]:
    return [query for clip in read_vq2d(annotations, split=split) for query in clip.queries]


def _tracking_queries(annotations: Path, split: str | None) -> list[TrackingQuery]:
    return [query for clip in read_egotracks(annotations, split=split) for query in clip.queries]


def _lengths(clip_info: Path | None) -> dict[str, int]:
    if clip_info is None:
        raise DataError("EgoTracks submissions need the clips' lengths: give --clip-info clip_info.json.")
    return read_clip_lengths(clip_info)


def _all_protocols(predictions: Path, sequences: list[TrekSequence]) -> dict[Any, Any]:
    found = [trek150.read_trek150_predictions(predictions, sequences, p) for p in validation.PROTOCOLS]
    return {key: boxes for part in found for key, boxes in part.items()}


def _measures(scores: vq2d.Vq2dScores) -> tuple[float, ...]:
    return (scores.tap, scores.tap25, scores.stap, scores.stap25, scores.recovery, scores.success)


def show(table: Table) -> None:
    Console(width=None if Console().is_terminal else 160).print(table)


def note(missing: int, ignored: int) -> None:
    if missing:
        typer.echo(f"{missing} predictions are missing and count as not found.")
    if ignored:
        typer.echo(f"{ignored} predictions are for no query of the annotation file and were ignored.")


def _save(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        write_json(path, content)
