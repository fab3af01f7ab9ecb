"""`egohieraloc eval`: run our system over a benchmark and score its predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from egohieraloc import threads
from egohieraloc.cli import common, score
from egohieraloc.cli.option_groups import spread
from egohieraloc.config import FusionConfig
from egohieraloc.data.base import ClipQueries, QueryKey
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import read_mapping, read_vq3d, visual_queries_of_places
from egohieraloc.data.egotracks import read_clip_lengths, read_egotracks
from egohieraloc.data.trek150 import read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, tables, trek150, vq2d, vq3d
from egohieraloc.evaluation.predictions import TrackAnswer, read_vq2d_predictions
from egohieraloc.evaluation.run_ovq2d import FEATURES_ALONE, Budget, Forget, Ovq2dAnswers
from egohieraloc.evaluation.run_tracking import EgoTracksAnswers, Trek150Answers
from egohieraloc.evaluation.run_vq2d import ClipAnswers, System, Vq2dAnswers
from egohieraloc.evaluation.run_vq3d import (
    DepthModel,
    ScanCameras,
    Vq3dAnswers,
    mapped_queries,
    median_depth_variance,
)
from egohieraloc.evaluation.runner import Execution, run_benchmark, run_info
from egohieraloc.inference.store import default_cache
from egohieraloc.models.weights import find_weights
from egohieraloc.paper import settings_for
from egohieraloc.progress import progress_bars
from egohieraloc.settings import to_dict, update

app = typer.Typer(help="Run over a benchmark and score the predictions.", no_args_is_help=True)

SEED = 0  # for the record: answering draws no random numbers
Clips = Annotated[Path, typer.Option(help="Folder with <clip>.mp4, or a folder of frames for each clip.")]


class TrackingProtocol(StrEnum):
    vct_vs = "vct-vs"
    vct_vc = "vct-vc"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that every benchmark has."""

    annotations: score.Annotations
    out: Annotated[Path, typer.Option(help="Prediction file; scores go to NAME.results.json beside it.")]
    workers: Annotated[int, typer.Option(min=1, help="Processes, each answering a clip at a time.")] = 1
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to run on; 'local' starts one.")
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a query or clip that is missing or cannot be read.")
    ] = False
    model: common.Model = "mini"
    device: common.Device = None
    engine: common.Engine = None
    settings: common.Settings = None
    paper: common.Paper = False
    sam: common.Sam = None
    cache: common.Cache = None

    @cached_property
    def system(self) -> System:
        """Paths are made absolute: other processes may start elsewhere."""
        model = str(Path(self.model).resolve()) if Path(self.model).is_file() else self.model
        cache = (self.cache or default_cache()).resolve()
        sam = str(Path(self.sam).resolve()) if self.sam and Path(self.sam).is_dir() else self.sam
        settings = settings_for(self.settings, paper=self.paper)
        return System(model, self.device, settings, cache, engine=self.engine, sam=sam)

    @property
    def model_info(self) -> dict[str, Any]:
        model, weights = find_weights(self.system.model).stem, self.system.weights.fingerprint
        sam = {} if self.sam is None else {"sam": self.sam}
        return {"model": model, "weights": weights, **sam, **to_dict(self.system.config)}


@dataclass(frozen=True, kw_only=True)
class TrekOptions(RunOptions):
    """Those of TREK-150, whose annotations are a folder."""

    annotations: score.TrekFolder


def command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that takes `RunOptions` and writes to a file of its own name."""
    return lambda function: app.command(name)(spread(function, out=Path(f"{name}.jsonl")))


@command("vq2d")
def eval_vq2d(run: RunOptions, clips: Clips, split: score.Split = None) -> None:
    """Ego4D VQ2D: the last appearance before the query frame."""
    annotated = list(read_vq2d(run.annotations, split=split))
    about = run_info("vq2d", config=run.model_info, seed=SEED)
    answers = Vq2dAnswers(system=run.system, clips=common.folder(clips), strict=run.strict)
    found = _run(annotated, answers, about, run)
    queries = [query for clip in annotated for query in clip.queries]
    if _has_truth([query.response is not None for query in queries]):
        _finish(vq2d.report_vq2d(queries, found), about, run)


@command("ovq2d")
def eval_ovq2d(
    run: RunOptions,
    clips: Clips,
    budget_mb: Annotated[
        float, typer.Option(min=0, help="Megabytes of features remembered of past frames; 0: all of them.")
    ] = 64.0,
    forget: Annotated[Forget, typer.Option(help="Which sample is forgotten when the budget is spent.")] = (
        Forget.least_novel
    ),
    split: score.Split = None,
) -> None:
    """Ego4D VQ2D online: the query comes when the frames have passed, of which a budget is remembered."""
    if budget_mb:
        run = replace(run, settings=[*(run.settings or ()), *FEATURES_ALONE])
    annotated = list(read_vq2d(run.annotations, split=split))
    config = {"budget_mb": budget_mb, "forget": forget.value, **run.model_info}
    about = run_info("ovq2d", config=config, seed=SEED)
    budget = Budget(budget_mb * 1e6, forget) if budget_mb else None
    answers = Ovq2dAnswers(system=run.system, clips=common.folder(clips), strict=run.strict, budget=budget)
    found = _run(annotated, answers, about, run)
    queries = [query for clip in annotated for query in clip.queries]
    if _has_truth([query.response is not None for query in queries]):
        _finish(vq2d.report_vq2d(queries, found), about, run)


@command("vq3d")
def eval_vq3d(
    run: RunOptions,
    vq2d_annotations: Annotated[Path, typer.Option("--vq2d", help="The VQ2D annotations of the same split.")],
    mapping: Annotated[Path, typer.Option(help="mapping_vq2d_to_vq3d_queries_annotations_*.json.")],
    poses: Annotated[
        Path, typer.Option(help="all_clips_camera_poses_*.json, or what `egohieraloc poses` wrote.")
    ],
    intrinsics: Annotated[
        Path | None, typer.Option(help="scan_to_intrinsics.json; the poses of `egohieraloc poses` need none.")
    ] = None,
    clips: Annotated[Path | None, typer.Option(help="Folder of clips, to search with our system.")] = None,
    tracks: Annotated[
        Path | None, typer.Option(help="A VQ2D prediction file to lift, of any system, instead of --clips.")
    ] = None,
    depth: Annotated[
        Path | None, typer.Option(help="Metric depth: <clip>/<frame>.png (16 bit, mm) or .npy (m).")
    ] = None,
    depth_model: Annotated[
        str | None,
        typer.Option(
            help="A depth network of the hub, by name or folder, instead of --depth; reads --clips."
        ),
    ] = None,
    sigma_0: Annotated[
        Path | None,
        typer.Option(
            help="Predictions of an earlier run with depth: their median depth variance is sigma_0²."
        ),
    ] = None,
    split: score.Split = None,
) -> None:
    """Ego4D VQ3D: the object's place in the scan, from our 2D response tracks or given ones."""
    _check_sources(clips, tracks, depth, depth_model)
    cameras = ScanCameras(
        common.file(poses), intrinsics and common.file(intrinsics), depth and common.folder(depth)
    )
    cameras.check()
    places = list(read_vq3d(run.annotations, split=split))
    queries = [query for clip in read_vq2d(vq2d_annotations, split=split) for query in clip.queries]
    visual = visual_queries_of_places(places, queries, read_mapping(mapping))
    given = None if tracks is None else read_vq2d_predictions(tracks, queries)
    if given is not None and visual and not any(query.key in given for query in visual.values()):
        raise DataError(f"None of the {len(given)} predictions in {tracks} is for one of the 2D queries.")
    source = run.model_info if tracks is None else {"tracks": tracks.name}
    place = run.system.config.place
    _check_fusion(place.fusion, given, has_depth=depth is not None or depth_model is not None)
    if sigma_0 is not None:
        place = update(place, {"fusion": {"depth_variance": median_depth_variance(sigma_0, place.fusion)}})
    config = {**source, "place": to_dict(place), "depth": depth_model or depth is not None}
    about = run_info("vq3d", config=config, seed=SEED)
    answers = Vq3dAnswers(
        system=run.system,
        clips=Path() if clips is None else common.folder(clips),
        strict=run.strict,
        cameras=cameras,
        place=place,
        tracks=given,
        depth_model=None if depth_model is None else DepthModel(depth_model, run.device),
    )
    found = _run(mapped_queries(places, visual), answers, about, run)
    if place.fusion.literal and place.fusion.depth_variance is None:
        typer.echo(
            "sigma_0 was the median over each track's views; the paper's is that over the validation set: "
            f"run again with --sigma-0 {run.out}."
        )
    if _has_truth([place.boxes is not None for place in places if not place.problem]):
        _finish(vq3d.report_vq3d(places, found, visual), about, run)


@command("egotracks")
def eval_egotracks(
    run: RunOptions,
    clips: Clips,
    protocol: Annotated[
        TrackingProtocol, typer.Option(help="Start at the first frame (vs) or at the crop (vc).")
    ] = TrackingProtocol.vct_vc,
    clip_info: score.ClipInfo = None,
    grid: score.Grid = False,
    split: score.Split = None,
) -> None:
    """EgoTracks: vct-vs starts at the first frame without a box, vct-vc at the crop and goes both ways."""
    annotated = list(read_egotracks(run.annotations, split=split))
    about = run_info("egotracks", config={"protocol": protocol.value, **run.model_info}, seed=SEED)
    answers = EgoTracksAnswers(
        system=run.system, clips=common.folder(clips), strict=run.strict, protocol=protocol.value
    )
    found = _run(annotated, answers, about, run)
    queries = [query for clip in annotated for query in clip.queries]
    if _has_truth([any(query.truth is not None for query in queries)]):
        lengths = read_clip_lengths(clip_info) if clip_info else None
        _finish(egotracks.report_egotracks(queries, found, lengths, grid=grid), about, run)


@command("trek150")
def eval_trek150(run: TrekOptions, protocol: score.TrekProtocolOption = score.TrekProtocol.ope) -> None:
    """TREK-150: every frame of a sequence, from its start, its anchors or its interactions."""
    sequences = list(read_trek150(run.annotations))
    about = run_info("trek150", config={"protocol": protocol.value, **run.model_info}, seed=SEED)
    answers = Trek150Answers(system=run.system, clips=common.folder(run.annotations), strict=run.strict)
    _run([sequence.clip(protocol.value) for sequence in sequences], answers, about, run)
    boxes = trek150.read_trek150_predictions(run.out, sequences, protocol.value)
    _finish(trek150.report_trek150(sequences, protocol.value, boxes), about, run)


def _check_sources(
    clips: Path | None, tracks: Path | None, depth: Path | None, depth_model: str | None
) -> None:
    """Tracks are searched or given, depth is computed or given; what is computed needs the clips."""
    if (clips is None and tracks is None) or (clips and tracks and not depth_model):
        raise DataError("Say where the response tracks come from: --clips DIR to search, or --tracks FILE.")
    if depth_model and depth:
        raise DataError("Give --depth or --depth-model, not both.")
    if depth_model and clips is None:
        raise DataError("--depth-model looks at the frames: give the folder of clips, --clips DIR.")


def _check_fusion(
    fusion: FusionConfig, tracks: Mapping[QueryKey, TrackAnswer] | None, *, has_depth: bool
) -> None:
    """A mean of back-projected points needs depth; its semantic factors need confidences of masks."""
    if fusion.triangulate and not fusion.literal:
        return
    if not has_depth:
        raise DataError(
            "The paper's mean of back-projected points (place.fusion.literal=true or triangulate=false, so "
            "also --paper and the rows gsjc-*) needs depth: give --depth DIR or --depth-model NAME."
        )
    if tracks and all(answer.frame_confidences is None for answer in tracks.values()):
        typer.echo(
            "The tracks have no confidences of masks (frame_confidences): P_ave, P_thr and P_max are equal."
        )


def _run(
    clips: Sequence[ClipQueries[Any]], answers: ClipAnswers, about: dict[str, Any], run: RunOptions
) -> dict[QueryKey, Any]:
    """Answer the queries of all clips that exist, and say what is missing."""
    score.tell_problems([query for clip in clips for query in clip.queries], strict=run.strict)
    existing = _existing(clips, answers, strict=run.strict)
    threads.settle(run.workers)  # else every process would take all cores
    execution = Execution(workers=run.workers, ray_address=run.ray, resume=run.resume)
    try:
        with progress_bars() as progress:
            found = run_benchmark(
                existing, answers, run.out, about=about, execution=execution, progress=progress
            )
    except KeyboardInterrupt:
        typer.echo("Stopped. Answers so far are kept; continue with the same command and --resume.", err=True)
        raise
    incomplete = [answer for answer in found.values() if answer.reason]
    if incomplete:
        typer.echo(
            f"{len(incomplete)} of {len(found)} queries have no full answer; "
            f"the first is {incomplete[0].key}: {incomplete[0].reason}"
        )
    typer.echo(f"Predictions are in {run.out}.")
    return found


def _existing(
    clips: Sequence[ClipQueries[Any]], answers: ClipAnswers, *, strict: bool
) -> list[ClipQueries[Any]]:
    """The clips to answer: those with queries whose video exists, and those that never had one."""
    clips = [clip for clip in clips if clip.queries]
    if not clips:
        raise DataError("There are no queries. Are these the annotations of the benchmark and split?")
    named = [clip for clip in clips if clip.clip_uid is not None]
    missing = [clip for clip in named if not answers.has(clip)]
    if missing:
        wanted = " or ".join(str(path) for path in answers.paths(missing[0]))
        note = f"{len(missing)} of {len(named)} clips do not exist; the first is {wanted}."
        if strict or len(missing) == len(named):
            raise DataError(f"{note} Give the folder that holds the clips.")
        skipped = sum(len(clip.queries) for clip in missing)
        typer.echo(f"{note} Their {skipped} queries are left out.")
    return [clip for clip in clips if clip not in missing]


def _has_truth(known: Sequence[bool]) -> bool:
    if not all(known):
        typer.echo("The annotations have no ground truth to score against; see `egohieraloc score submit`.")
    return all(known)


def _finish(report: tables.BenchmarkReport, about: dict[str, Any], run: RunOptions) -> None:
    path = run.out.with_suffix(".results.json")
    score.publish(report, about, path)
    typer.echo(f"Scores, settings and versions are in {path}.")
