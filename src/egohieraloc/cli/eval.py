"""`egohieraloc eval`: run over a benchmark. Predictions go to a file, the file is scored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from egohieraloc.cli import common, score
from egohieraloc.data.base import ClipQueries
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import read_mapping, read_vq3d
from egohieraloc.data.egotracks import read_egotracks
from egohieraloc.data.trek150 import read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, tables, trek150, vq2d, vq3d
from egohieraloc.evaluation.answering import ClipAnswers, System, VisualAnswers
from egohieraloc.evaluation.following import EgoTracksAnswers, Trek150Answers
from egohieraloc.evaluation.placing import PlaceAnswers, Views, place_questions
from egohieraloc.evaluation.predictions import read_vq2d_predictions
from egohieraloc.evaluation.run import run, run_info, write_results
from egohieraloc.inference.store import default_cache
from egohieraloc.localize import LocalizerConfig, with_settings
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.settings import to_dict

app = typer.Typer(help="Run over a benchmark and score the predictions.", no_args_is_help=True)

SEED = 0  # for the record: answering draws no random numbers
Clips = Annotated[Path, typer.Option(help="Folder with <clip>.mp4, or a folder of frames for each clip.")]
Out = Annotated[Path, typer.Option(help="Predictions; the scores go to NAME.results.json beside it.")]
Workers = Annotated[int, typer.Option(min=1, help="Clips in work at a time, each in a process.")]
Ray = Annotated[str | None, typer.Option(help="Spread clips over this Ray cluster; 'local' starts one.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that was stopped.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at a clip that is missing or cannot be read.")]


class TrackingProtocol(StrEnum):
    vct_vs = "vct-vs"
    vct_vc = "vct-vc"


@dataclass(frozen=True)
class _How:
    """How a run is made."""

    out: Path
    workers: int
    ray: str | None
    resume: bool


@app.command("vq2d")
def eval_vq2d(
    annotations: score.Annotations,
    clips: Clips,
    out: Out = Path("vq2d.jsonl"),
    split: score.Split = None,
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    model: common.Model = "mini",
    device: common.Device = None,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """Ego4D VQ2D: the last appearance before the question."""
    asked = list(read_vq2d(annotations, split=split))
    system = _system(model, device, settings, cache)
    about = run_info("vq2d", config=_of_model(system), seed=SEED)
    answers = VisualAnswers(system=system, clips=_folder(clips), strict=strict)
    found = _run(asked, answers, about, _How(out, workers, ray, resume))
    queries = [query for clip in asked for query in clip.queries]
    if _has_truth([query.response for query in queries]):
        report = vq2d.report(queries, found)
        score.show(tables.vq2d_table(report))
        score.note(report.missing, report.ignored)
        _save(out, about, report.to_json())


@app.command("vq3d")
def eval_vq3d(
    annotations: score.Annotations,
    vq2d_annotations: Annotated[Path, typer.Option("--vq2d", help="The VQ2D annotations of the same split.")],
    mapping: Annotated[Path, typer.Option(help="mapping_vq2d_to_vq3d_queries_annotations_*.json.")],
    poses: Annotated[Path, typer.Option(help="all_clips_camera_poses_*.json.")],
    intrinsics: Annotated[Path, typer.Option(help="scan_to_intrinsics.json.")],
    clips: Annotated[Path | None, typer.Option(help="Folder of clips, to search them ourselves.")] = None,
    tracks: Annotated[Path | None, typer.Option(help="Anybody's VQ2D predictions, to be lifted.")] = None,
    depth: Annotated[
        Path | None, typer.Option(help="Metric depth: <clip>/<frame>.png (16 bit, mm) or .npy (m).")
    ] = None,
    out: Out = Path("vq3d.jsonl"),
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    model: common.Model = "mini",
    device: common.Device = None,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """Ego4D VQ3D: where that was in the scan, from our own 2D answers or anybody's."""
    if (clips is None) == (tracks is None):
        raise DataError("Say where the 2D answers come from: --clips DIR to search, or --tracks FILE.")
    places = list(read_vq3d(annotations))
    queries = [query for clip in read_vq2d(vq2d_annotations) for query in clip.queries]
    asked = place_questions(places, queries, read_mapping(mapping))
    system = _system(model, device, settings, cache)
    given = None if tracks is None else read_vq2d_predictions(tracks, queries)
    how_found = _of_model(system) if tracks is None else {"tracks": tracks.name}
    config = {**how_found, "place": to_dict(system.config.place), "depth": depth is not None}
    about = run_info("vq3d", config=config, seed=SEED)
    views = Views(_file(poses), _file(intrinsics), None if depth is None else _folder(depth))
    folder = Path() if clips is None else _folder(clips)
    answers = PlaceAnswers(system=system, clips=folder, strict=strict, views=views, tracks=given)
    found = _run(asked, answers, about, _How(out, workers, ray, resume))
    if _has_truth([place.boxes for place in places]):
        report = vq3d.report(places, found)
        score.show(tables.vq3d_table(report))
        score.note(report.missing, report.ignored)
        _save(out, about, report.to_json())


@app.command("egotracks")
def eval_egotracks(
    annotations: score.Annotations,
    clips: Clips,
    protocol: TrackingProtocol = TrackingProtocol.vct_vc,
    out: Out = Path("egotracks.jsonl"),
    split: score.Split = None,
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    model: common.Model = "mini",
    device: common.Device = None,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """EgoTracks: vct-vs starts at the first frame without a box, vct-vc at the crop and goes both ways."""
    asked = list(read_egotracks(annotations, split=split))
    system = _system(model, device, settings, cache)
    about = run_info("egotracks", config={"protocol": protocol.value, **_of_model(system)}, seed=SEED)
    answers = EgoTracksAnswers(system=system, clips=_folder(clips), strict=strict, protocol=protocol.value)
    found = _run(asked, answers, about, _How(out, workers, ray, resume))
    queries = [query for clip in asked for query in clip.queries]
    if _has_truth([query.truth for query in queries]):
        report = egotracks.report(queries, found)
        score.show(tables.egotracks_table(report))
        score.note(report.missing, 0)
        _save(out, about, report.to_json())


@app.command("trek150")
def eval_trek150(
    annotations: score.Annotations,
    protocol: score.TrekProtocol = score.TrekProtocol.ope,
    out: Out = Path("trek150.jsonl"),
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    model: common.Model = "mini",
    device: common.Device = None,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """TREK-150: every frame of a sequence, from its start, its anchors or its interactions."""
    sequences = list(read_trek150(annotations))
    system = _system(model, device, settings, cache)
    about = run_info("trek150", config={"protocol": protocol.value, **_of_model(system)}, seed=SEED)
    answers = Trek150Answers(system=system, clips=_folder(annotations), strict=strict)
    asked = [sequence.clip(protocol.value) for sequence in sequences]
    _run(asked, answers, about, _How(out, workers, ray, resume))
    boxes = trek150.read_trek150_predictions(out, sequences, protocol.value)
    report = trek150.report(sequences, protocol.value, boxes)
    score.show(tables.trek150_table(report))
    score.note(report.missing, 0)
    _save(out, about, report.to_json())


def _run(
    clips: Sequence[ClipQueries[Any]], answers: ClipAnswers, about: Mapping[str, Any], how: _How
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
        if answers.strict or len(missing) == len(named):
            raise DataError(f"{note} Give the folder that holds the clips.")
        typer.echo(f"{note} Their {sum(len(clip.queries) for clip in missing)} queries are not asked.")
    if how.workers > 1:  # else every process would take all cores
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // how.workers)))
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
    empty = [answer for answer in found.values() if answer.reason]
    if empty:
        typer.echo(
            f"{len(empty)} of {len(found)} queries have no full answer; "
            f"the first is {empty[0].key}: {empty[0].reason}"
        )
    typer.echo(f"Predictions are in {how.out}.")
    return found


def _system(model: str, device: str | None, settings: list[str] | None, cache: Path | None) -> System:
    """Paths are made absolute: other processes may start elsewhere."""
    name = str(Path(model).resolve()) if Path(model).exists() else model
    config = with_settings(LocalizerConfig(), settings or (), load_weights(find_weights(name)))
    return System(name, device, config, (cache or default_cache()).resolve())


def _of_model(system: System) -> dict[str, Any]:
    path = find_weights(system.model)
    return {"model": path.stem, "weights": load_weights(path).fingerprint, **to_dict(system.config)}


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DataError(f"There is no folder {path}.")
    return path.resolve()


def _file(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    return path.resolve()


def _has_truth(truths: Sequence[Any]) -> bool:
    if any(truth is None for truth in truths):
        typer.echo("The annotation file has no answers to score against; see `egohieraloc score submit`.")
        return False
    return True


def _save(out: Path, about: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    path = out.with_suffix(".results.json")
    write_results(path, about, scores)
    typer.echo(f"Scores, settings and versions are in {path}.")
