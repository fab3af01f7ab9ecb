"""`egohieraloc score`: score prediction files of any system, compare systems, write and check submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from egohieraloc.data.base import HasKey, QueryKey
from egohieraloc.data.ego4d import VisualQuery, read_vq2d
from egohieraloc.data.ego4d_3d import PlaceQuery, read_mapping, read_vq3d, visual_queries_of_places
from egohieraloc.data.egotracks import TrackingQuery, read_clip_lengths, read_egotracks
from egohieraloc.data.trek150 import TrekSequence, read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, submission, submission_check, tables, trek150, vq2d, vq3d
from egohieraloc.evaluation.predictions import read_vq2d_predictions
from egohieraloc.evaluation.runner import write_results
from egohieraloc.evaluation.significance import Resampled, compare_seeds, measures_of_runs, paired_bootstrap
from egohieraloc.versions import versions

app = typer.Typer(help="Score prediction files and prepare submissions.", no_args_is_help=True)

SHOWN_PROBLEMS = 20
FEW_QUERIES = 30  # below it a bootstrap has too few to draw from
Annotations = Annotated[Path, typer.Option(help="The benchmark's annotation file.")]
TrekFolder = Annotated[Path, typer.Option(help="TREK-150's folder, with a folder for each sequence.")]
AnyAnnotations = Annotated[Path, typer.Option(help="The benchmark's annotation file (TREK-150: its folder).")]
Predictions = Annotated[
    Path, typer.Option(help="Prediction file: ours, a challenge file, or a published one.")
]
Split = Annotated[str | None, typer.Option(help="Only this split of the annotation file.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all numbers to this file.")]
ClipInfo = Annotated[Path | None, typer.Option(help="EgoTracks' clip_info.json, for the clips' lengths.")]
Grid = Annotated[
    bool,
    typer.Option("--grid", help="Score 5 frames a second, not every frame as EgoTracks' authors do."),
]
Out = Annotated[Path, typer.Option(help="Where to write.")]


class Benchmark(StrEnum):
    vq2d = "vq2d"
    vq3d = "vq3d"
    egotracks = "egotracks"
    trek150 = "trek150"


class QueryBenchmark(StrEnum):
    vq2d = "vq2d"
    vq3d = "vq3d"


class TrekProtocol(StrEnum):
    ope = "ope"
    mse = "mse"
    hoi = "hoi"


TrekProtocolOption = Annotated[
    TrekProtocol, typer.Option("--protocol", help="From the start, from anchors, or hand-object interaction.")
]


@app.command("vq2d")
def score_vq2d(
    annotations: Annotations, predictions: Predictions, split: Split = None, json: Json = None
) -> None:
    """Ego4D VQ2D: tAP, stAP, recovery and success."""
    queries = _visual_queries(annotations, split)
    tell_problems(queries)
    report = vq2d.report_vq2d(queries, read_vq2d_predictions(predictions, queries))
    publish(report, _about("vq2d", annotations, predictions), json)


@app.command("vq3d")
def score_vq3d(
    annotations: Annotations,
    predictions: Predictions,
    vq2d_annotations: Annotated[
        Path | None, typer.Option("--vq2d", help="VQ2D annotations, for the table by group; with --mapping.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="mapping_vq2d_to_vq3d_queries_annotations_*.json; with --vq2d.")
    ] = None,
    split: Split = None,
    json: Json = None,
) -> None:
    """Ego4D VQ3D: success, distance, angle and coverage."""
    places = list(read_vq3d(annotations, split=split))
    tell_problems(places)
    visual = None
    if vq2d_annotations and mapping:
        queries = _visual_queries(vq2d_annotations, split)
        visual = visual_queries_of_places(places, queries, read_mapping(mapping))
    elif vq2d_annotations or mapping:
        raise DataError("The table by group needs both: --vq2d FILE and --mapping FILE.")
    report = vq3d.report_vq3d(places, vq3d.read_vq3d_predictions(predictions), visual)
    publish(report, _about("vq3d", annotations, predictions), json)


@app.command("egotracks")
def score_egotracks(
    annotations: Annotations,
    predictions: Predictions,
    clip_info: ClipInfo = None,
    grid: Grid = False,
    split: Split = None,
    json: Json = None,
) -> None:
    """EgoTracks: average overlap, precision, recall and F."""
    queries = _tracking_queries(annotations, split)
    tell_problems(queries)
    answers = egotracks.read_egotracks_predictions(predictions, queries)
    lengths = read_clip_lengths(clip_info) if clip_info else None
    report = egotracks.report_egotracks(queries, answers, lengths, grid=grid)
    publish(report, _about("egotracks", annotations, predictions), json)


@app.command("trek150")
def score_trek150(
    annotations: TrekFolder,
    predictions: Predictions,
    protocol: TrekProtocolOption = TrekProtocol.ope,
    json: Json = None,
) -> None:
    """TREK-150: SS, NPS, GSR and recall, by attribute."""
    sequences = list(read_trek150(annotations))
    tell_problems([run for sequence in sequences for run in sequence.runs(protocol.value)])
    boxes = trek150.read_trek150_predictions(predictions, sequences, protocol.value)
    report = trek150.report_trek150(sequences, protocol.value, boxes)
    publish(report, _about("trek150", annotations, predictions), json)


@app.command()
def compare(
    benchmark: QueryBenchmark,
    annotations: Annotations,
    first: Annotated[Path, typer.Option(help="Predictions of one system.")],
    second: Annotated[Path, typer.Option(help="Predictions to compare with.")],
    split: Split = None,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap samples.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    json: Json = None,
) -> None:
    """Compare two prediction files: paired bootstrap.

    Queries are sampled with replacement, the same for both; every measure gets a 95 % interval and a p-value.
    """
    if benchmark is QueryBenchmark.vq2d:
        queries = _visual_queries(annotations, split)
        num_queries = len(queries)
        one, other = (_resampled_vq2d(queries, path) for path in (first, second))
    else:
        places = list(read_vq3d(annotations, split=split))
        num_queries = len(places)
        one, other = (_resampled_vq3d(places, path) for path in (first, second))
    differences = paired_bootstrap(one, other, num_queries, resamples=resamples, seed=seed)
    show(tables.difference_table(f"{benchmark.value}, {resamples} resamples", differences))
    if num_queries < FEW_QUERIES:
        typer.echo(
            f"Only {num_queries} queries: below {FEW_QUERIES} the intervals are too narrow and the p-values "
            "too small."
        )
    if json is not None:
        about = {**_about(benchmark.value, annotations, first), "compared_with": str(second), "seed": seed}
        write_results(json, about, {n: {**vars(d), "value": d.value} for n, d in differences.items()})


@app.command()
def seeds(
    first: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Results of a run (NAME.results.json). Repeat per seed."),
    ],
    second: Annotated[
        list[Path], typer.Option(metavar="FILE", help="Results of the other system's runs. Repeat per seed.")
    ],
    json: Json = None,
) -> None:
    """Compare runs with several seeds: Welch's t.

    Every measure that all files have gets a t, a p-value and a 95 % interval of the difference of the means.
    """
    one, other = measures_of_runs(first), measures_of_runs(second)
    compared = {name: compare_seeds(one[name], other[name]) for name in one if name in other}
    if not compared:
        raise DataError("The two systems have no measure in common. Are all files results of one benchmark?")
    show(tables.seeds_table(compared, (len(first), len(second))))
    if json is not None:
        files = {"first": [str(path) for path in first], "second": [str(path) for path in second]}
        results = {name: {**vars(c), "difference": vars(c.difference)} for name, c in compared.items()}
        write_results(json, {**files, "versions": versions()}, results)


@app.command()
def submit(
    benchmark: Benchmark,
    annotations: AnyAnnotations,
    predictions: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE", help="A prediction file. Repeat to join several (TREK-150's protocols)."
        ),
    ],
    out: Out,
    clip_info: ClipInfo = None,
    tracker_name: Annotated[str, typer.Option(help="Name on TREK-150's server.")] = "EgoHieraLoc",
) -> None:
    """Write a challenge submission, and check it."""
    if benchmark is Benchmark.vq2d:
        queries = _visual_queries(annotations, None)
        answers = _joined(predictions, lambda path: read_vq2d_predictions(path, queries))
        submission.write_vq2d_submission(out, annotations, answers)
    elif benchmark is Benchmark.vq3d:
        answers = _joined(predictions, vq3d.read_vq3d_predictions)
        submission.write_vq3d_submission(out, annotations, answers)
    elif benchmark is Benchmark.egotracks:
        tracked = _tracking_queries(annotations, None)
        answers = _joined(predictions, lambda path: egotracks.read_egotracks_predictions(path, tracked))
        submission.write_egotracks_submission(out, tracked, answers, _lengths(clip_info))
    else:
        sequences = _whole_trek150(annotations)
        boxes = _joined(predictions, lambda path: trek150.read_all_protocols(path, sequences))
        submission.write_trek150_submission(out, sequences, boxes, tracker_name=tracker_name)
    check_submission(benchmark, annotations, out, clip_info)


@app.command("validate")
def check_submission(
    benchmark: Benchmark,
    annotations: AnyAnnotations,
    submission: Annotated[Path, typer.Option("--submission", help="The file for the server.")],
    clip_info: ClipInfo = None,
) -> None:
    """Check a submission: order, counts, types and ranges."""
    if benchmark is Benchmark.vq2d:
        problems = submission_check.check_vq2d(annotations, submission)
    elif benchmark is Benchmark.vq3d:
        problems = submission_check.check_vq3d(annotations, submission)
    elif benchmark is Benchmark.egotracks:
        problems = submission_check.check_egotracks(
            _tracking_queries(annotations, None), _lengths(clip_info), submission
        )
    else:
        problems = submission_check.check_trek150(_whole_trek150(annotations), submission)
    for problem in problems[:SHOWN_PROBLEMS]:
        typer.echo(f"  {problem}")
    if len(problems) > SHOWN_PROBLEMS:
        typer.echo(f"  and {len(problems) - SHOWN_PROBLEMS} more")
    if problems:
        number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise DataError(f"{submission} has {number}; the server would refuse it or score it wrongly.")
    typer.echo(f"{submission} is a valid {benchmark.value} submission.")


def publish(report: tables.BenchmarkReport, about: Mapping[str, Any], path: Path | None) -> None:
    """Print the tables and notes of a report, and write its numbers."""
    for table in tables.tables_of(report):
        show(table)
    for note in tables.notes_of(report):
        typer.echo(note)
    if path is not None:
        write_results(path, about, report.to_json())


def tell_problems(queries: Sequence[HasKey], *, strict: bool = False) -> None:
    """List the queries whose records cannot be used; with `strict`, or when none can, that is an error."""
    problems = [query.problem for query in queries if query.problem]
    if problems and len(problems) == len(queries):
        raise DataError(f"No query of the annotation file can be used: {problems[0]}")
    if strict and problems:
        raise DataError(f"{problems[0]} Without --strict it counts as not answered.")
    for problem in problems:
        typer.echo(f"Not answered: {problem}")


def _whole_trek150(annotations: Path) -> list[TrekSequence]:
    """A submission answers every run: a sequence that cannot be read is an error."""
    sequences = list(read_trek150(annotations))
    broken = next((sequence.problem for sequence in sequences if sequence.problem), "")
    if broken:
        raise DataError(broken)
    return sequences


def show(table: Table) -> None:
    Console(width=None if Console().is_terminal else 160).print(table)


def _resampled_vq2d(queries: list[VisualQuery], predictions: Path) -> Resampled:
    overlaps, _ = vq2d.measure_answers(queries, read_vq2d_predictions(predictions, queries))
    return lambda chosen: vq2d.score(overlaps.take(chosen)).measures


def _resampled_vq3d(places: list[PlaceQuery], predictions: Path) -> Resampled:
    measured = vq3d.measure(places, vq3d.read_vq3d_predictions(predictions))
    return lambda chosen: vq3d.summarize([measured[i] for i in chosen]).measures


def _about(benchmark: str, annotations: Path, predictions: Path) -> dict[str, Any]:
    files = {"annotations": str(annotations), "predictions": str(predictions)}
    return {"benchmark": benchmark, **files, "versions": versions()}


def _visual_queries(annotations: Path, split: str | None) -> list[VisualQuery]:
    return [query for clip in read_vq2d(annotations, split=split) for query in clip.queries]


def _tracking_queries(annotations: Path, split: str | None) -> list[TrackingQuery]:
    return [query for clip in read_egotracks(annotations, split=split) for query in clip.queries]


def _lengths(clip_info: Path | None) -> dict[str, int]:
    if clip_info is None:
        raise DataError("EgoTracks submissions need the clips' lengths: give --clip-info clip_info.json.")
    return read_clip_lengths(clip_info)


def _joined(paths: Iterable[Path], read: Callable[[Path], dict[QueryKey, Any]]) -> dict[QueryKey, Any]:
    """The answers of several files; no query may be answered twice."""
    answers: dict[QueryKey, Any] = {}
    for path in paths:
        found = read(path)
        repeated = sorted(answers.keys() & found.keys())
        if repeated:
            raise DataError(f"{path} answers {repeated[0]}, which an earlier file answers already.")
        answers |= found
    return answers
