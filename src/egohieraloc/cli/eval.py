"""`egohieraloc eval`: run over a benchmark. Predictions go to a file, the file is scored."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from egohieraloc.cli import common, score
from egohieraloc.data.base import ClipQueries
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import read_mapping, read_vq3d, visual_queries_of_places
from egohieraloc.data.egotracks import read_egotracks
from egohieraloc.data.trek150 import read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, tables, trek150, vq2d, vq3d
from egohieraloc.evaluation.predictions import read_vq2d_predictions
from egohieraloc.evaluation.run import run, run_info
from egohieraloc.evaluation.run_tracking import EgoTracksAnswers, Trek150Answers
from egohieraloc.evaluation.run_vq2d import ClipAnswers, System, VisualAnswers
from egohieraloc.evaluation.run_vq3d import PlaceAnswers, Views, place_questions
from egohieraloc.inference.store import default_cache
from egohieraloc.localize import LocalizerConfig, with_settings
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.settings import to_dict

app = typer.Typer(help="Run over a benchmark and score the predictions.", no_args_is_help=True)

SEED = 0  # for the record: answering draws no random numbers
Clips = Annotated[Path, typer.Option(help="Folder with <clip>.mp4, or a folder of frames for each clip.")]


class TrackingProtocol(StrEnum):
    vct_vs = "vct-vs"
    vct_vc = "vct-vc"


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a run is made: the options that every benchmark has."""

    annotations: score.Annotations
    out: Annotated[Path, typer.Option(help="Predictions; the scores go to NAME.results.json beside it.")]
    workers: Annotated[int, typer.Option(min=1, help="Clips in work at a time, each in a process.")] = 1
    ray: Annotated[
        str | None, typer.Option(help="Spread clips over this Ray cluster; 'local' starts one.")
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that was stopped.")] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a clip that is missing or cannot be read.")
    ] = False
    model: common.Model = "mini"
    device: common.Device = None
    settings: common.Settings = None
    cache: common.Cache = None

    @property
    def system(self) -> System:
        """Paths are made absolute: other processes may start elsewhere."""
        name = str(Path(self.model).resolve()) if Path(self.model).is_file() else self.model
        config = with_settings(LocalizerConfig(), self.settings or (), load_weights(find_weights(name)))
        return System(name, self.device, config, (self.cache or default_cache()).resolve())

    @property
    def model_info(self) -> dict[str, Any]:
        path = find_weights(self.system.model)
        return {"model": path.stem, "weights": load_weights(path).fingerprint, **to_dict(self.system.config)}


def command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose first parameter is a `Run`: the fields of it become options beside its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        shared = dict(inspect.signature(Run, eval_str=True).parameters)
        shared["out"] = shared["out"].replace(default=Path(f"{name}.jsonl"))

        @wraps(function)
        def call(**options: Any) -> None:
            function(Run(**{field: options.pop(field) for field in shared}), **options)

        annotations, *others = shared.values()
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (annotations, *own, *others)]
        vars(call)["__signature__"] = inspect.Signature(parameters)
        return app.command(name)(call)

    return register


@command("vq2d")
def eval_vq2d(how: Run, clips: Clips, split: score.Split = None) -> None:
    """Ego4D VQ2D: the last appearance before the question."""
    asked = list(read_vq2d(how.annotations, split=split))
    about = run_info("vq2d", config=how.model_info, seed=SEED)
    answers = VisualAnswers(system=how.system, clips=_folder(clips), strict=how.strict)
    found = _run(asked, answers, about, how)
    queries = [query for clip in asked for query in clip.queries]
    if _has_truth([query.response is not None for query in queries]):
        _finish(vq2d.report(queries, found), about, how)


@command("vq3d")
def eval_vq3d(
    how: Run,
    vq2d_annotations: Annotated[Path, typer.Option("--vq2d", help="The VQ2D annotations of the same split.")],
    mapping: Annotated[Path, typer.Option(help="mapping_vq2d_to_vq3d_queries_annotations_*.json.")],
    poses: Annotated[Path, typer.Option(help="all_clips_camera_poses_*.json.")],
    intrinsics: Annotated[Path, typer.Option(help="scan_to_intrinsics.json.")],
    clips: Annotated[Path | None, typer.Option(help="Folder of clips, to search them ourselves.")] = None,
    tracks: Annotated[Path | None, typer.Option(help="Anybody's VQ2D predictions, to be lifted.")] = None,
    depth: Annotated[
        Path | None, typer.Option(help="Metric depth: <clip>/<frame>.png (16 bit, mm) or .npy (m).")
    ] = None,
    split: score.Split = None,
) -> None:
    """Ego4D VQ3D: where that was in the scan, from our own 2D answers or anybody's."""
    if (clips is None) == (tracks is None):
        raise DataError("Say where the 2D answers come from: --clips DIR to search, or --tracks FILE.")
    places = list(read_vq3d(how.annotations, split=split))
    queries = [query for clip in read_vq2d(vq2d_annotations, split=split) for query in clip.queries]
    visual = visual_queries_of_places(places, queries, read_mapping(mapping))
    given = None if tracks is None else read_vq2d_predictions(tracks, queries)
    if given is not None and visual and not any(query.key in given for query in visual.values()):
        raise DataError(f"None of the {len(given)} predictions in {tracks} is for one of the 2D queries.")
    how_found = how.model_info if tracks is None else {"tracks": tracks.name}
    config = {**how_found, "place": to_dict(how.system.config.place), "depth": depth is not None}
    about = run_info("vq3d", config=config, seed=SEED)
    views = Views(_file(poses), _file(intrinsics), None if depth is None else _folder(depth))
    folder = Path() if clips is None else _folder(clips)
    answers = PlaceAnswers(system=how.system, clips=folder, strict=how.strict, views=views, tracks=given)
    found = _run(place_questions(places, visual), answers, about, how)
    if _has_truth([place.boxes is not None for place in places]):
        _finish(vq3d.report(places, found, visual), about, how)


@command("egotracks")
def eval_egotracks(
    how: Run,
    clips: Clips,
    protocol: Annotated[
        TrackingProtocol, typer.Option(help="Start at the first frame (vs) or at the crop (vc).")
    ] = TrackingProtocol.vct_vc,
    split: score.Split = None,
) -> None:
    """EgoTracks: vct-vs starts at the first frame without a box, vct-vc at the crop and goes both ways."""
    asked = list(read_egotracks(how.annotations, split=split))
    about = run_info("egotracks", config={"protocol": protocol.value, **how.model_info}, seed=SEED)
    answers = EgoTracksAnswers(
        system=how.system, clips=_folder(clips), strict=how.strict, protocol=protocol.value
    )
    found = _run(asked, answers, about, how)
    queries = [query for clip in asked for query in clip.queries]
    if _has_truth([any(query.truth is not None for query in queries)]):
        _finish(egotracks.report(queries, found), about, how)


@command("trek150")
def eval_trek150(how: Run, protocol: score.TrekProtocolOption = score.TrekProtocol.ope) -> None:
    """TREK-150: every frame of a sequence, from its start, its anchors or its interactions."""
    sequences = list(read_trek150(how.annotations))
    about = run_info("trek150", config={"protocol": protocol.value, **how.model_info}, seed=SEED)
    answers = Trek150Answers(system=how.system, clips=_folder(how.annotations), strict=how.strict)
    _run([sequence.clip(protocol.value) for sequence in sequences], answers, about, how)
    boxes = trek150.read_trek150_predictions(how.out, sequences, protocol.value)
    _finish(trek150.report(sequences, protocol.value, boxes), about, how)


def _run(
    clips: Sequence[ClipQueries[Any]], answers: ClipAnswers, about: dict[str, Any], how: Run
) -> dict[Any, Any]:
    """Answer the queries of all clips that are there, and say what is not."""
    clips = [clip for clip in clips if clip.queries]
    if not clips:
        raise DataError("There is no query to ask. Are these the annotations of the benchmark and split?")
    named = [clip for clip in clips if clip.clip_uid is not None]
    missing = [clip for clip in named if not answers.has(clip)]
    if missing:
        wanted = " or ".join(str(path) for path in answers.paths(missing[0]))
        note = f"{len(missing)} of {len(named)} clips are not there; the first is {wanted}."
        if how.strict or len(missing) == len(named):
            raise DataError(f"{note} Give the folder that holds the clips.")
        typer.echo(f"{note} Their {sum(len(clip.queries) for clip in missing)} queries are not asked.")
    if how.workers > 1:  # else every process would take all cores
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // how.workers)))
    try:
        found = run(
            [clip for clip in clips if clip not in missing],
            answers,
            how.out,
            about=about,
            workers=how.workers,
            ray_address=how.ray,
            resume=how.resume,
            show_progress=True,
        )
    except KeyboardInterrupt:
        typer.echo("Stopped. What was answered is kept; the same command with --resume goes on.", err=True)
        raise
    empty = [answer for answer in found.values() if answer.reason]
    if empty:
        typer.echo(
            f"{len(empty)} of {len(found)} queries have no full answer; "
            f"the first is {empty[0].key}: {empty[0].reason}"
        )
    typer.echo(f"Predictions are in {how.out}.")
    return found


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DataError(f"There is no folder {path}.")
    return path.resolve()


def _file(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    return path.resolve()


def _has_truth(known: Sequence[bool]) -> bool:
    if not all(known):
        typer.echo("The annotation file has no answers to score against; see `egohieraloc score submit`.")
    return all(known)


def _finish(report: tables.Report, about: dict[str, Any], how: Run) -> None:
    path = how.out.with_suffix(".results.json")
    score.publish(report, about, path)
    typer.echo(f"Scores, settings and versions are in {path}.")
