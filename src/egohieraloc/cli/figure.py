"""`egohieraloc figure`: figures for papers, from the files that the other commands write."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from egohieraloc.cli import score
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d_3d import ClipPoses, read_clip_poses, read_vq3d
from egohieraloc.data.trek150 import read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import read_tracks
from egohieraloc.evaluation.trek150 import read_trek150_predictions
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.evaluation.vq3d import read_vq3d_predictions
from egohieraloc.figures import plots, rows, sources, space, style, trek
from egohieraloc.figures.maps import draw_maps
from egohieraloc.figures.sources import (
    BenchmarkQuery,
    Tracks,
    benchmark_row,
    pick,
    read_benchmark,
    read_methods,
    result_row,
)
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Floats

app = typer.Typer(
    help="Draw figures for papers, as PDF, PNG or SVG by the file's ending.", no_args_is_help=True
)

Out = Annotated[Path, typer.Option(help="The figure: .pdf, .png or .svg.")]
Width = Annotated[float, typer.Option(min=1, help="Width in inches; a column is 3.4, a page 7.")]
Answers = Annotated[
    list[str],
    typer.Option(
        "--answers", metavar="NAME=PATH", help="A method: a prediction file or a result folder. Repeatable."
    ),
]
Annotations = Annotated[Path | None, typer.Option(help="The benchmark's annotation file or folder.")]
Clips = Annotated[Path | None, typer.Option(help="Folder with the videos of the annotation file.")]
Queries = Annotated[
    list[int] | None, typer.Option("--query", metavar="N", help="Number of a query, from 0. Repeatable.")
]


Zoom = Annotated[
    float, typer.Option(min=0.05, max=1, help="Share of each frame's sides shown, around the boxes.")
]


class TrackBenchmark(StrEnum):
    vq2d = "vq2d"
    egotracks = "egotracks"
    trek150 = "trek150"


@app.command()
def qualitative(
    answers: Answers,
    out: Out = Path("qualitative.pdf"),
    annotations: Annotations = None,
    clips: Clips = None,
    query: Queries = None,
    benchmark: TrackBenchmark = TrackBenchmark.vq2d,
    split: score.Split = None,
    frames: Annotated[int, typer.Option(min=1, help="Frames in a row.")] = 4,
    zoom: Zoom = 1.0,
    width: Width = style.PAGE_IN,
) -> None:
    """Query, frames with the boxes of all methods, and response tracks over time; ground truth is shaded."""
    methods = read_methods(_named(answers))
    if annotations is None:
        results = [(name, found) for name, found in methods if isinstance(found, Result)]
        if len(results) < len(methods):
            raise DataError(
                "Prediction files need --annotations and --clips, for the queries and their videos."
            )
        shown = [result_row(results)]
    else:
        queries = read_benchmark(benchmark.value, annotations, clips, split=split)
        read = [
            (name, found if isinstance(found, Result) else queries.read(found)) for name, found in methods
        ]
        shown = [benchmark_row(pick(queries.items, number), read) for number in query or [0]]
    rows.draw_qualitative(out, shown, frames=frames, zoom=zoom, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def failures(
    answers: Annotated[str, typer.Option("--answers", help="NAME=PATH of the method's prediction file.")],
    annotations: Annotated[Path, typer.Option(help="VQ2D annotations.")],
    clips: Annotated[Path, typer.Option(help="Folder with the clips.")],
    out: Out = Path("failures.pdf"),
    count: Annotated[int, typer.Option(min=1, help="How many queries.")] = 5,
    zoom: Zoom = 1.0,
    split: score.Split = None,
    width: Width = style.PAGE_IN,
) -> None:
    """The queries with the lowest space-time IoU: query, ground truth and answer."""
    queries = read_benchmark("vq2d", annotations, clips, split=split)
    [(name, path)] = _named([answers])
    tracks = queries.read(path)
    worst = sorted(
        (_overlap(query, tracks), number)
        for number, query in enumerate(queries.items)
        if any(path.exists() for path in query.paths)
    )
    if not worst:
        raise DataError(f"None of the {len(queries.items)} clips is in {clips}.")
    shown = [(benchmark_row(queries.items[n], [(name, tracks)]), value) for value, n in worst[:count]]
    rows.draw_failures(out, shown, zoom=zoom, width_in=width)
    typer.echo(f"Drawn: {out}, queries {', '.join(str(n) for _, n in worst[:count])}")


@app.command()
def scene(
    answers: Answers,
    annotations: Annotated[Path, typer.Option(help="VQ3D annotations.")],
    out: Out = Path("scene.pdf"),
    query: Queries = None,
    poses: Annotated[Path | None, typer.Option(help="all_clips_camera_poses_*.json, for the path.")] = None,
    vq2d_annotations: Annotated[
        Path | None,
        typer.Option("--vq2d", help="VQ2D annotations, to show the query; with --mapping and --clips."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="mapping_vq2d_to_vq3d_queries_annotations_*.json.")
    ] = None,
    clips: Clips = None,
    width: Width = style.PAGE_IN,
) -> None:
    """VQ3D: the ground-truth box at the answers of all methods, from the side and from above."""
    places = list(read_vq3d(annotations))
    chosen = [pick(places, number) for number in query or [0]]
    methods = [(name, read_vq3d_predictions(path)) for name, path in _named(answers)]
    paths = read_clip_poses(poses) if poses else {}
    images: dict[QueryKey, Query] = {}
    if vq2d_annotations and mapping and clips:
        images = sources.place_images(chosen, vq2d_annotations, mapping, clips)
    shown = [
        space.PlaceComparison(
            place.object_title,
            place.boxes[0] if place.boxes else None,
            tuple(
                (name, found[place.key].point_world if place.key in found else None)
                for name, found in methods
            ),
            _good_poses(paths, place.key.clip),
            images.get(place.key),
        )
        for place in chosen
    ]
    space.draw_scenes(out, shown, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def lift(
    answers: Annotated[
        list[str],
        typer.Option("--answers", metavar="NAME=DIR", help="A folder of `locate --3d --out`. Repeatable."),
    ],
    out: Out = Path("lift.pdf"),
    annotations: Annotated[
        Path | None, typer.Option(help="VQ3D annotations, if the answers are in the scan's frame.")
    ] = None,
    query: Annotated[int, typer.Option(help="Number of the query in the annotations, from 0.")] = 0,
    frames: Annotated[int, typer.Option(min=1, help="Frames in the upper row.")] = 4,
    width: Width = style.PAGE_IN,
) -> None:
    """From 2D to 3D: frames with boxes above; the camera path, rays and the fused point below."""
    results = [(name, Result.load(path)) for name, path in _named(answers)]
    truth = pick(list(read_vq3d(annotations)), query).boxes if annotations else None
    space.draw_lift(out, results, truth[0] if truth else None, frames=frames, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def maps(
    answer: Annotated[Path, typer.Argument(help="A folder of `locate --out`.")],
    out: Out = Path("maps.pdf"),
    frames: Annotated[int, typer.Option(min=1, help="Frames, evenly spread over the track.")] = 4,
    width: Width = style.PAGE_IN,
) -> None:
    """Inside the network: the maps of DPM, the filter response, QAM with its ellipse, and RAM's mask."""
    draw_maps(out, Result.load(answer), frames=frames, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command("trek150")
def trek150_plots(
    answers: Answers,
    annotations: Annotated[Path, typer.Option(help="TREK-150's folder of sequences.")],
    out: Out = Path("trek150.pdf"),
    width: Width = style.PAGE_IN,
) -> None:
    """TREK-150 under OPE: success, normalised precision and robustness over their thresholds."""
    sequences = list(read_trek150(annotations))
    methods = [(name, read_trek150_predictions(path, sequences, "ope")) for name, path in _named(answers)]
    trek.draw_ope(out, sequences, methods, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def attributes(
    answers: Answers,
    annotations: Annotated[Path, typer.Option(help="TREK-150's folder of sequences.")],
    protocol: score.TrekProtocol = score.TrekProtocol.mse,
    out: Out = Path("attributes.pdf"),
    width: Width = style.PAGE_IN,
) -> None:
    """TREK-150's measures by attribute of the sequences."""
    sequences = list(read_trek150(annotations))
    methods = [
        (name, read_trek150_predictions(path, sequences, protocol.value)) for name, path in _named(answers)
    ]
    trek.draw_attributes(out, sequences, methods, protocol.value, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def training(
    log: Annotated[Path, typer.Argument(help="log.jsonl of a training.")],
    out: Out = Path("training.pdf"),
    loss: Annotated[
        list[str] | None, typer.Option(metavar="LOSS", help="A loss in the log. Repeatable. [default: total]")
    ] = None,
    measure: Annotated[str, typer.Option(help="The validation measure.")] = "success",
    width: Width = style.COLUMN_IN,
) -> None:
    """Training losses and a measure on the validation set."""
    plots.draw_training(out, plots.read_log(log), losses=loss or ["total"], measure=measure, width_in=width)
    typer.echo(f"Drawn: {out}")


Table = Annotated[Path, typer.Argument(help="A CSV file with a heading, or a JSON list of objects.")]
Column = Annotated[str, typer.Option(help="Column of the table.")]


@app.command()
def tradeoff(
    table: Table,
    x: Column,
    y: Column,
    name: Annotated[
        str, typer.Option(help="Column of the methods' names; the first row is emphasised.")
    ] = "name",
    size: Annotated[str | None, typer.Option(help="Column shown as the dots' area.")] = None,
    less_is_better: Annotated[
        bool, typer.Option("--less-is-better", help="x is a cost, not a speed.")
    ] = False,
    log_x: Annotated[bool, typer.Option("--log-x", help="Logarithmic x axis.")] = False,
    out: Out = Path("tradeoff.pdf"),
    width: Width = style.COLUMN_IN,
) -> None:
    """Accuracy against speed or cost, a dot per method."""
    columns = plots.TradeoffColumns(x, y, name, size)
    plots.draw_tradeoff(
        out, plots.read_table(table), columns, less_is_better=less_is_better, log_x=log_x, width_in=width
    )
    typer.echo(f"Drawn: {out}")


@app.command()
def sweep(
    table: Table,
    x: Column,
    y: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column of a measure. Repeatable; two have an axis each."),
    ],
    out: Out = Path("sweep.pdf"),
    width: Width = style.COLUMN_IN,
) -> None:
    """Measures over a setting: lines over numbers, bars over words."""
    plots.draw_sweep(out, plots.read_table(table), x=x, measures=y, width_in=width)
    typer.echo(f"Drawn: {out}")


@app.command()
def quality(
    predictions: Annotated[Path, typer.Argument(help="A file of `eval vq2d`.")],
    out: Out = Path("quality.pdf"),
    width: Width = style.COLUMN_IN,
) -> None:
    """How sure the masks of the queries are, and which fallback levels they lead to."""
    answers = read_tracks(predictions).values()
    known = [answer.mask_quality for answer in answers if answer.mask_quality is not None]
    if not known:
        raise DataError(f"{predictions} holds no quality of a mask: make it with `egohieraloc eval vq2d`.")
    plots.draw_qualities(out, np.array(known), width_in=width)
    typer.echo(f"Drawn: {out}")


def _good_poses(paths: dict[str, ClipPoses], clip: str) -> Floats:
    """(N, 3, 4); N is 0 where the file does not have the clip."""
    return paths[clip].cam_from_world[paths[clip].is_good] if clip in paths else np.zeros((0, 3, 4))


def _named(words: list[str]) -> list[tuple[str, Path]]:
    """NAME=PATH pairs."""
    pairs = [word.partition("=") for word in words]
    wrong = next(
        (word for word, (name, _, path) in zip(words, pairs, strict=True) if not (name and path)), None
    )
    if wrong is not None:
        raise DataError(f"--answers takes NAME=PATH, such as 'ours=vq2d.jsonl', got '{wrong}'.")
    return [(name, Path(path)) for name, _, path in pairs]


def _overlap(query: BenchmarkQuery, tracks: Tracks) -> float:
    """Space-time IoU."""
    if query.truth is None:
        raise DataError(f"The annotation file has no response track for {query.key}, which failures need.")
    return overlap(query.truth, tracks.get(query.key, Track.empty()))[1]
