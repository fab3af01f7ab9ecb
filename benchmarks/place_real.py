"""Place seven objects of a real walk in 3D, from RGB alone, and compare with the truth.

    python benchmarks/place_real.py --data DIR [--cache DIR] [--depth points|sensor] [--answers given|own]

DIR holds rgb/, poses.txt and objects.json: a HoloLens sequence of deep-video-mvs with seven labelled objects.
Poses come from structure from motion; the true ones only align and check. The 2D answers are the given boxes,
or with `--answers own` those of our own search. The objects stand still, so any of their appearances will do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc import Localizer, Query, Video
from egohieraloc.config import FusionConfig, PlaceConfig, SfmConfig
from egohieraloc.geometry.align import align_to_positions, fit_sim3
from egohieraloc.geometry.depth import read_depth_folder
from egohieraloc.geometry.gsjc import ObjectView, fuse
from egohieraloc.geometry.lift import lift, object_points
from egohieraloc.geometry.place import last_appearance, place
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.geometry.sfm_process import reconstruct
from egohieraloc.images import read_image
from egohieraloc.settings import override
from egohieraloc.types import (
    Box,
    DepthMap,
    Floats,
    Frame,
    FramePrediction,
    NotLocalized,
    ResponseTrack,
)

FRAMES_PER_S = 5.0  # the source does not give it
HALF_PIXEL = 0.5  # its pixel centres are at integers, ours at halves
FACTORS = ("semantic_average", "semantic_threshold", "semantic_maximum", "depth", "reprojection", "baseline")
UNWEIGHTED = dict.fromkeys(FACTORS, False)

Rule = Callable[[Sequence[ObjectView]], Floats | None]
Track = tuple[FramePrediction, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("runs/place_real"))
    parser.add_argument("--depth", choices=("points", "sensor"), default="points")
    parser.add_argument("--answers", choices=("given", "own"), default="given")
    parser.add_argument("--model", default="mini", help="weights for our own answers")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="of SfM, e.g. overlap=8")
    options = parser.parse_args()
    found = poses(options.data, options.cache, override(SfmConfig(), options.settings))
    if isinstance(found, NotLocalized):
        raise SystemExit(f"no poses: {found.reason}")
    metric = check_poses(found, true_centers(options.data))
    objects = json.loads((options.data / "objects.json").read_text())["objects"]
    if options.answers == "own":
        tracks = own_tracks(
            objects, options.data, Localizer.from_pretrained(options.model, cache=options.cache)
        )
    else:
        tracks = [given_track(instance) for instance in objects]
    check_objects(objects, tracks, metric, options.data if options.depth == "sensor" else None)


def poses(data: Path, cache: Path, config: SfmConfig) -> Reconstruction | NotLocalized:
    started, stages = time.perf_counter(), {}

    def progress(stage: str, done: int, total: int) -> None:
        stages.setdefault(stage, time.perf_counter() - started)

    found = reconstruct(frames(data), cache / "hololens.npz", config=config, progress=progress)
    total = time.perf_counter() - started
    begun = " ".join(f"{stage} from {at:.0f} s," for stage, at in stages.items())
    print(f"structure from motion: {begun} {total:.1f} s in all")
    return found


def frames(data: Path) -> Iterator[Frame]:
    for path in sorted((data / "rgb").glob("*.jpg")):
        yield Frame(int(path.stem), int(path.stem) / FRAMES_PER_S, read_image(path))


def true_centers(data: Path) -> dict[int, Floats]:
    rows = np.loadtxt(data / "poses.txt")
    rotations = Rotation.from_quat(rows[:, 4:]).as_matrix()
    return {int(row[0]): -r.T @ row[1:4] for row, r in zip(rows, rotations, strict=True)}


def check_poses(found: Reconstruction, truth: dict[int, Floats]) -> Reconstruction:
    source = np.array([pose.center_world for pose in found.poses.values()])
    target = np.array([truth[index] for index in found.poses])
    error = np.linalg.norm(fit_sim3(source, target).points(source) - target, axis=1)
    print(
        f"posed {found.num_posed}/{len(found.frames)} frames; camera error after Sim3: "
        f"RMSE {np.sqrt((error**2).mean()):.3f} m, median {np.median(error):.3f}, largest {error.max():.3f}; "
        f"{len(found.points.xyz_world)} points; focal {found.camera.focal[0]:.1f}"
    )
    return align_to_positions(found, truth, max_error=0.5)[0]


def check_objects(
    objects: list[dict], tracks: list[Track], metric: Reconstruction, sensor: Path | None
) -> None:
    rules = {
        "last frame only (Ego4D)": last_view,
        "unweighted mean": fused(FusionConfig(triangulate=False, **UNWEIGHTED)),
        "score-weighted mean (EgoLoc)": fused(
            FusionConfig(triangulate=False, **UNWEIGHTED | {FACTORS[0]: True})
        ),
        "GSJC as in the paper": fused(FusionConfig(literal=True)),
        "rays alone": lambda views: fused(FusionConfig())([without_depth(view) for view in views]),
        "GSJC default": fused(FusionConfig()),
    }
    errors: dict[str, list[float]] = {name: [] for name in rules}
    seconds, inside, told = [], [], []
    for instance, track in zip(objects, tracks, strict=True):
        depth = read_depth_folder(sensor / "depth", [p.frame_index for p in track]) if sensor else {}
        center = np.array(instance["center_world"])
        for name, rule in rules.items():
            config = PlaceConfig(fusion=FusionConfig(literal=name == "GSJC as in the paper"))
            point = rule(views_of(track, metric, depth, config)) if track else None
            errors[name].append(float("nan") if point is None else float(np.linalg.norm(point - center)))
        started = time.perf_counter()
        answer = place(track, metric, query_time_s=metric.frames[-1].time_s, depth=depth)
        seconds.append(time.perf_counter() - started)
        if not isinstance(answer, NotLocalized):
            off = answer.point_world - center
            told.append((float(np.linalg.norm(off)) <= answer.uncertainty, bool(answer.doubts)))
            inside.append(float(off @ np.linalg.solve(answer.covariance, off)) < 11.3)  # 99 % of chi2 with 3
    width = max(map(len, rules))
    print(f"\n3D error in metres, depth from {'the sensor' if sensor else 'points of the map'}")
    print(" " * width, *(f"{instance['id'][:10]:>10}" for instance in objects), f"{'median':>10}")
    for name, row in errors.items():
        missed = [np.inf if np.isnan(v) else v for v in row]
        print(f"{name:<{width}}", *(f"{v:10.3f}" for v in row), f"{np.median(missed):10.3f}")
    print(f"\none question in 3D: {1000 * max(seconds):.0f} ms at most")
    within, flagged = sum(right for right, _ in told), sum(doubtful for _, doubtful in told)
    silent = sum(not right and not doubtful for right, doubtful in told)
    print(
        f"of {len(told)} answers: truth inside the 99 % ellipsoid {sum(inside)}, within the stated "
        f"uncertainty {within}, flagged {flagged}, neither {silent}"
    )


def given_track(instance: dict) -> Track:
    boxes = instance["last_appearance"]["boxes"].items()
    return tuple(
        FramePrediction(int(i), int(i), int(i) / FRAMES_PER_S, 1.0, our_box(box)) for i, box in boxes
    )


def own_tracks(objects: list[dict], data: Path, localizer: Localizer) -> list[Track]:
    """Our own answers to queries from an earlier frame of the walk."""
    video, tracks = Video.open(data / "rgb", folder_fps=FRAMES_PER_S), []
    for instance in objects:
        shown_at = instance["query"]
        query = Query.from_frame(video, index=shown_at["frame"], box=our_box(shown_at["box"]))
        track = localizer.locate(query, video).track
        found = track.predictions if isinstance(track, ResponseTrack) else ()
        inside = [shown(instance, prediction.frame_index) for prediction in found]
        span = f"{found[0].frame_index} to {found[-1].frame_index}" if found else "nowhere"
        print(f"{instance['id']}: seen in frames {span}, {sum(inside)} of {len(inside)} show it")
        tracks.append(tuple(found))
    return tracks


def shown(instance: dict, frame: int) -> bool:
    return any(first <= frame <= last for first, last in instance["visible_intervals"])


def our_box(box: Sequence[float]) -> Box:
    return Box(*(v + HALF_PIXEL for v in box))


def views_of(
    track: Sequence[FramePrediction], metric: Reconstruction, depth: dict[int, DepthMap], config: PlaceConfig
) -> list[ObjectView]:
    track = last_appearance(track)
    points = object_points(track, metric, config)
    return [
        lift(p, metric.camera, pose, config, depth_map=depth.get(p.frame_index), points=points)
        for p in track
        if (pose := metric.poses.get(p.frame_index)) is not None
    ]


def fused(config: FusionConfig) -> Rule:
    def rule(views: Sequence[ObjectView]) -> Floats | None:
        answer = fuse(views, config)
        return None if answer is None else answer.point_world

    return rule


def last_view(views: Sequence[ObjectView]) -> Floats | None:
    with_depth = [view for view in views if view.depth is not None]
    return with_depth[-1].point_world if with_depth else None


def without_depth(view: ObjectView) -> ObjectView:
    return replace(view, depth=None)


if __name__ == "__main__":
    main()
