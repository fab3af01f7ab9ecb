"""Devices on real files: Aria recordings read, posed and lifted beside their truth; a walk given as TUM and
as transforms.json.

    python benchmarks/devices_real.py aria --data DIR [--answers 12]
    python benchmarks/devices_real.py walk --data DIR [--cache DIR] [--sfm]

`aria`: DIR is the folder `data` of projectaria_tools' repository (gen1/aria_digital_twin_test_data ...).
`walk`: DIR holds rgb/, poses.txt, intrinsics.json and objects.json: a HoloLens sequence of deep-video-mvs.
With --sfm one 3D answer is timed with its own poses and with structure from motion, in one run.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc import Localizer, Query, Video
from egohieraloc.boxes import iou_xyxy
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.device_depth import depth_of_device
from egohieraloc.geometry.formats.aria import read_mps_trajectory, read_points
from egohieraloc.geometry.formats.nerfstudio import write_transforms
from egohieraloc.geometry.formats.trajectory import write_tum
from egohieraloc.geometry.given import gaps
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.localize import SpaceSources
from egohieraloc.recorded import cameras_for, frame_table, recorded_cameras
from egohieraloc.types import Box, Floats, FramePrediction, Localization3D, ResponseTrack
from place_real import given_track

MIN_VISIBLE = 0.95  # share of an object in sight
MAX_SIDE_M = 0.6  # larger ones are furniture
MIN_SIDE_PX = 24
TOLERANCE_NS = 5_000_000
FRAMES_PER_S = 5.0


@dataclass(frozen=True, eq=False)
class Truth:
    """An object of ADT in one frame: its box as labelled (upright) and in the world."""

    name: str
    frame: int
    box: Box
    center_world: Floats  # (3,)
    corners_world: Floats  # (N, 3) a grid over the faces of its 3D box
    side_m: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("aria", "walk"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=12, help="objects to search for ourselves")
    parser.add_argument("--cache", type=Path, default=Path("runs/devices_real"))
    parser.add_argument("--sfm", action="store_true")
    options = parser.parse_args()
    if options.what == "aria":
        check_recordings(options.data)
        check_digital_twin(options.data / "gen1" / "aria_digital_twin_test_data", options)
    else:
        check_walk(options)


def check_recordings(data: Path) -> None:
    print("recordings")
    for path in sorted(data.rglob("*.vrs")):
        if "depth" in path.name or "segmentation" in path.name:
            continue
        video = Video.open(path)
        frame = video.frame(0)
        cameras = recorded_cameras(video)
        words = gaps(cameras) if cameras else "no trajectory beside it"
        started = video.backend.started_at
        print(
            f"  {path.name}: {video.info.num_frames} frames {frame.rgb.shape[1]}x{frame.rgb.shape[0]} at "
            f"{float(video.info.fps):.1f} fps, began {started or 'at an unknown time'}; {words}"
        )
    folder = data / "gen1" / "mps_sample" / "trajectory"
    for name in ("closed_loop_trajectory.csv", "open_loop_trajectory.csv"):
        path = read_mps_trajectory(folder / name)
        length = np.linalg.norm(np.diff(path.positions, axis=0), axis=1).sum()
        print(
            f"  {name}: {len(path.times_s)} poses over {np.ptp(path.times_s):.1f} s, {length:.2f} m of path"
        )
    print(f"  semi-dense points that are sure: {len(read_points(folder).xyz_world)}")


def check_digital_twin(folder: Path, options: argparse.Namespace) -> None:
    video = Video.open(folder / "video.vrs")
    cameras = recorded_cameras(video)
    assert cameras is not None
    truths = list(read_truths(folder, video))
    print(f"\nADT: {len(truths)} labels of objects at least {MIN_VISIBLE:.0%} in sight")
    check_boxes(truths, cameras)
    check_rectified(truths, cameras)
    depth = depth_of_device(folder / "depth_images.vrs", frame_table(video), video.backend.device_ns)
    check_lift(truths, cameras, depth)
    check_own_answers(truths, video, depth, options)


def read_truths(folder: Path, video: Video) -> Iterator[Truth]:
    names = {
        key: each["instance_name"]
        for key, each in json.loads((folder / "instances.json").read_text()).items()
    }
    ends = "xmin ymin zmin xmax ymax zmax"
    extent = {
        row["object_uid"]: _numbers(row, "p_local_obj_{}[m]", ends)
        for row in _rows(folder / "3d_bounding_box.csv")
    }
    poses: dict[str, list[dict[str, str]]] = {}
    for row in _rows(folder / "scene_objects.csv"):
        poses.setdefault(row["object_uid"], []).append(row)
    size = video.info.width
    for row in _rows(folder / "2d_bounding_box.csv"):
        stamp, key = int(row["timestamp[ns]"]), row["object_uid"]
        frame = int(np.abs(video.backend.device_ns - stamp).argmin())
        near = abs(int(video.backend.device_ns[frame]) - stamp) < TOLERANCE_NS
        if row["stream_id"] != "214-1" or not near or float(row["visibility_ratio[%]"]) < MIN_VISIBLE:
            continue
        x1, x2, y1, y2 = _numbers(row, "{}[pixel]", "x_min x_max y_min y_max")
        box = Box(size - (y2 + 1), x1, size - y1, x2 + 1)  # turned upright, from pixel numbers to edges
        still = min(poses[key], key=lambda pose: abs(int(pose["timestamp[ns]"]) - stamp))
        turn = Rotation.from_quat(_numbers(still, "q_wo_{}", "x y z w")).as_matrix()
        shift = _numbers(still, "t_wo_{}[m]", "x y z")
        low, high = extent[key][:3], extent[key][3:]
        steps = np.stack(np.meshgrid(*[np.linspace(a, b, 9) for a, b in zip(low, high, strict=True)]), -1)
        grid = steps.reshape(-1, 3) @ turn.T + shift
        center = turn @ ((low + high) / 2) + shift
        yield Truth(names[key], frame, box, center, grid, float((high - low).max()))


def iou(one: Box, other: Box) -> float:
    return float(iou_xyxy(np.array(one.xyxy), np.array(other.xyxy)))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _numbers(row: dict[str, str], form: str, names: str) -> Floats:
    return np.array([float(row[form.format(name)]) for name in names.split()])


def check_boxes(truths: list[Truth], cameras: Reconstruction) -> None:
    """A 3D box holds its object with room at the corners: its outline is somewhat larger than the label."""
    overlaps, inside, off = [], [], []
    for truth in truths:
        pixels = cameras.camera.project(cameras.poses[truth.frame].to_cam(truth.corners_world))
        if np.isnan(pixels).any():
            continue
        outline = Box(*pixels.min(0), *pixels.max(0)).clipped(cameras.camera.width, cameras.camera.height)
        overlaps.append(iou(outline, truth.box))
        common = max(0, min(outline.x2, truth.box.x2) - max(outline.x1, truth.box.x1)) * max(
            0, min(outline.y2, truth.box.y2) - max(outline.y1, truth.box.y1)
        )
        inside.append(common / truth.box.area)
        off.append(np.hypot(*np.subtract(outline.center, truth.box.center)))
    print(
        f"  true 3D boxes projected onto the images, beside the true 2D boxes ({len(overlaps)}): IoU median "
        f"{np.median(overlaps):.3f}, mean {np.mean(overlaps):.3f}; share of the label inside, median "
        f"{np.median(inside):.3f}; centres {np.median(off):.1f} px apart (median)"
    )


def check_rectified(truths: list[Truth], cameras: Reconstruction) -> None:
    """What a pinhole image would show of the same frame, by its focal length."""
    lens, labels = cameras.camera, [truth for truth in truths if truth.frame == 0]
    print("  a rectified image of the same size instead of the lens as it is:")
    for focal in (300.0, 450.0, 610.0):
        flat = Camera("PINHOLE", lens.width, lens.height, (focal, focal, lens.width / 2, lens.height / 2))
        kept = grown = 0.0
        for truth in labels:
            rays = lens.rays([(truth.box.x1, truth.box.y1), (truth.box.x2, truth.box.y2)])
            corners = flat.project(rays)
            whole = np.isfinite(corners).all() and (corners >= 0).all() and (corners <= lens.width).all()
            kept += whole
        centre = flat.project(lens.rays([(lens.width / 2 + d, lens.height / 2) for d in (-1, 1)]))
        grown = float(centre[1, 0] - centre[0, 0]) / 2
        print(
            f"    focal {focal:.0f} px: {kept:.0f} of {len(labels)} objects wholly in the image, pixels at "
            f"the centre {grown:.2f} times as dense"
        )


def check_lift(truths: list[Truth], cameras: Reconstruction, depth) -> None:
    """True 2D boxes of the frames that have depth, each on its own, and fused."""
    small = [t for t in truths if t.side_m <= MAX_SIDE_M and min(t.box.width, t.box.height) >= MIN_SIDE_PX]
    maps = depth([0, 1, 2])
    errors, inside = [], 0
    for name in {truth.name for truth in small}:
        views = [truth for truth in small if truth.name == name and truth.frame in maps]
        track = [FramePrediction(t.frame, t.frame, t.frame / 30, 1.0, t.box) for t in views]
        found = place(track, cameras, query_time_s=cameras.frames[-1].time_s, depth=maps) if track else None
        if isinstance(found, Localization3D):
            off = found.point_world - views[-1].center_world
            errors.append(np.linalg.norm(off))
            inside += float(off @ np.linalg.solve(found.covariance, off)) < 11.3  # 99 % of chi2 with 3
    centimetres = 100 * np.array(errors)
    print(
        f"  lifted from true 2D boxes, recorded depth ({len(errors)} objects up to {MAX_SIDE_M} m): error "
        f"median {np.median(centimetres):.1f} cm, mean {centimetres.mean():.1f}, 90 % within "
        f"{np.percentile(centimetres, 90):.1f}; truth inside the 99 % ellipsoid {inside}/{len(errors)}"
    )


def check_own_answers(truths: list[Truth], video: Video, depth, options: argparse.Namespace) -> None:
    """Queries from the first frame, answered by our own search over the recording."""
    chosen = [t for t in truths if t.frame == 0 and t.side_m <= MAX_SIDE_M]
    chosen = sorted(chosen, key=lambda truth: -truth.box.area)[: options.answers]
    localizer = Localizer.from_pretrained(cache=options.cache)
    rows = []
    for truth in chosen:
        query = Query.from_frame(video, index=0, box=truth.box)
        result = localizer.locate(query, video, in_3d=True, space=SpaceSources(depth=depth))
        track = result.track.predictions if isinstance(result.track, ResponseTrack) else ()
        labels = {t.frame: t.box for t in truths if t.name == truth.name}
        overlap = [iou(p.box, labels[p.frame_index]) for p in track if p.frame_index in labels]
        found = result.place
        error = (
            float(np.linalg.norm(found.point_world - truth.center_world))
            if isinstance(found, Localization3D)
            else np.inf
        )
        rows.append((truth.name, float(np.mean(overlap)) if overlap else 0.0, 100 * error))
    print(f"  our own answers to {len(rows)} queries from the first frame, the largest objects:")
    for name, overlap, centimetres in rows:
        print(f"    {name:<28} IoU {overlap:.2f}  error {centimetres:6.1f} cm")
    overlap, centimetres = np.median([row[1:] for row in rows], axis=0)
    print(f"    median IoU {overlap:.2f}, median error {centimetres:.1f} cm")


def check_walk(options: argparse.Namespace) -> None:
    data = options.data
    truth = true_walk(data)
    objects = json.loads((data / "objects.json").read_text())["objects"]
    video = Video.open(data / "rgb", folder_fps=FRAMES_PER_S)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tum(folder / "trajectory.txt", truth)
        lens = truth.camera
        (folder / "intrinsics.json").write_text(
            json.dumps(
                {"model": lens.model, "width": lens.width, "height": lens.height, "params": lens.params}
            )
        )
        images = {frame.index: video.backend.images[frame.index].name for frame in truth.frames}
        write_transforms(folder / "transforms.json", truth, images)
        given = {"its own poses": truth}
        for file in ("trajectory.txt", "transforms.json"):
            started = time.perf_counter()
            given[file], words = cameras_for(video, folder / file)
            print(f"{file}: {words[0]} {words[1]}; read and checked in {time.perf_counter() - started:.1f} s")
    depth = depth_of_device(data / "depth", frame_table(video), None)
    for source in ("without depth", "with the sensor's"):
        print(f"3D error in metres from given boxes, {source}")
        for name, cameras in given.items():
            read = depth if source != "without depth" else None
            errors = [object_error(instance, cameras, read) for instance in objects]
            print(f"  {name:<16}", *(f"{error:.4f}" for error in errors), f" median {np.median(errors):.4f}")
    if options.sfm:
        time_answer(objects[-1], video, given["trajectory.txt"], options.cache)


def true_walk(data: Path) -> Reconstruction:
    values = json.loads((data / "intrinsics.json").read_text())
    half = 0.5  # its pixel centres are integers
    params = (values["fx"], values["fy"], values["cx"] + half, values["cy"] + half)
    frames = tuple(
        PosedFrame(
            int(row[0]),
            row[0] / FRAMES_PER_S,
            CameraPose.from_rotation(Rotation.from_quat(row[4:]).as_matrix(), row[1:4]),
        )
        for row in np.loadtxt(data / "poses.txt")
    )
    return Reconstruction(Camera("PINHOLE", values["width"], values["height"], params), frames, "m")


def object_error(instance: dict, cameras: Reconstruction, depth) -> float:
    track = given_track(instance)
    maps = depth([p.frame_index for p in track]) if depth else None
    answer = place(track, cameras, query_time_s=cameras.frames[-1].time_s, depth=maps)
    if not isinstance(answer, Localization3D):
        return float("inf")
    return float(np.linalg.norm(answer.point_world - instance["center_world"]))


def time_answer(instance: dict, video: Video, cameras: Reconstruction, cache: Path) -> None:
    """One question in 3D, its 2D answer known, with given poses and with structure from motion."""
    localizer = Localizer.from_pretrained(cache=cache)
    shown_at = instance["query"]
    query = Query.from_frame(video, index=shown_at["frame"], box=Box(*(v + 0.5 for v in shown_at["box"])))
    answer = localizer.locate(query, video)
    seconds = []
    with tempfile.TemporaryDirectory() as name:  # nothing that was kept from before
        localizer.cache = Path(name)
        for space in (SpaceSources(cameras=cameras), SpaceSources()):
            started = time.perf_counter()
            localizer.place(answer, space)
            seconds.append(time.perf_counter() - started)
    given_s, sfm_s = seconds
    print(
        f"place of {instance['id']}: {given_s:.2f} s with given poses, {sfm_s:.1f} s with structure from "
        f"motion: {sfm_s / given_s:.0f} times as long"
    )


if __name__ == "__main__":
    cv2.setNumThreads(2)
    main()
