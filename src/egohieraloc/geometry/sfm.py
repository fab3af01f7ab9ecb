"""Structure from motion with pycolmap, run as a process of its own: `python -m egohieraloc.geometry.sfm DIR`.

The failures of pycolmap may end the process: `sfm_process.py` starts it, reads its progress (one JSON line
each) and survives it. DIR holds job.json and images/; features and matches stay in
its database, so that a stopped run resumes. Follows the appendix "Camera Pose Estimation".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.children import end_with_input
from egohieraloc.errors import GeometryError
from egohieraloc.files import write_json
from egohieraloc.geometry.align import align
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.check import MatchedPair, drop_unreliable_poses
from egohieraloc.geometry.mapping import (
    anchor_pairs,
    calibrate,
    calibration_pairs,
    extract,
    extract_anchors,
    grown,
    largest,
    map_images,
    map_pairs,
    match_pairs,
    verify_again,
)
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, save
from egohieraloc.geometry.resection import Resected, position_of, resect_followed, resect_matched
from egohieraloc.geometry.selection import attaching_pairs, sequential_pairs, sharpest_per_window
from egohieraloc.geometry.sfm_job import NoMapError, SfmJob, report

_FEW_LEFT = 0.1  # of the frames outside the map may get no pose; where more do not, the map must grow
_CHECKED_NEIGHBOURS = 3  # frames ahead with which a frame's matches are held against its pose ...
_MIN_CHECKED_MATCHES = 15  # ... where there are so many


def main(folder: Path) -> None:
    job = SfmJob.read(folder)
    try:
        save(folder / "result.npz", _reconstruct(folder, job))
    except NoMapError as error:
        write_json(folder / "failure.json", {"reason": str(error)})


def _reconstruct(folder: Path, job: SfmJob) -> Reconstruction:
    import pycolmap

    pycolmap.logging.logtostderr = True  # not to files of its own in the temporary folder
    pycolmap.set_random_seed(job.config.seed)
    config = job.config
    mapped = sharpest_per_window(job.sharpness, config.max_map_frames)
    extract(folder, job, mapped)
    calibrate(folder, job)
    pairs = map_pairs(folder, job, mapped)
    match_pairs(folder, job, pairs, "matching")
    verify_again(folder, job, keep=pairs | calibration_pairs(job))
    report("mapping")
    model = largest(map_images(folder, job, mapped))
    if model is None:
        raise NoMapError("the frames do not overlap enough")
    if job.anchors:
        extract_anchors(folder, job)
        match_pairs(folder, job, anchor_pairs(folder, job, mapped), "attaching")
        model = grown(folder, job, model, [*mapped, *job.anchors])
    resected, left = _pose_others(folder, job, model)
    if len(left) > _FEW_LEFT * (len(left) + len(resected)):
        model = grown(folder, job, model, [*mapped, *left, *job.anchors])
        resected, _ = _pose_others(folder, job, model)
    whole = _to_reconstruction(model, job, resected)
    matches = [*_neighbour_matches(folder, job), *_tracked(job, resected)]
    found = drop_unreliable_poses(whole, config, matches).resized(*job.full_size)
    return _aligned(found, model, job) if job.anchors else found


def _pose_others(folder: Path, job: SfmJob, model: Any) -> tuple[dict[int, Resected], list[int]]:
    """Poses of frames outside the map by the points that they show; and the frames that remain without.

    Points are followed into them; features are found in those frames only where that fails."""
    config, positions = job.config, set(range(len(job.frame_index)))
    report("registering")
    found = resect_followed(folder / "images", model, len(positions), config)
    left = sorted(positions - set(_positions(model)) - set(found))
    if left:
        extract(folder, job, left)
        pairs = attaching_pairs(_positions(model), left, neighbours=config.attach_neighbours)
        match_pairs(folder, job, pairs, "attaching")
        found |= resect_matched(folder / "database.db", model, pairs, config)
    return found, sorted(set(left) - set(found))


def _positions(model: Any) -> list[int]:
    return sorted(position_of(image) for image in model.images.values() if image.has_pose)


def _to_reconstruction(model: Any, job: SfmJob, resected: Mapping[int, Resected]) -> Reconstruction:
    lens = model.cameras[1]
    camera = Camera(lens.model.name, lens.width, lens.height, tuple(float(v) for v in lens.params))
    row = {point: i for i, point in enumerate(model.points3D)}
    xyz = np.array([point.xyz for point in model.points3D.values()]).reshape(-1, 3)
    poses: dict[int, CameraPose] = {}
    seen: list[tuple[int, int, float, float]] = []
    for image in model.images.values():
        position = position_of(image)
        if not image.has_pose or position in job.anchors:
            continue
        index = job.frame_index[position]
        poses[index] = CameraPose(image.cam_from_world().matrix())
        seen += [(index, row[p.point3D_id], *p.xy) for p in image.get_observation_points2D()]
    for position, frame in resected.items():
        index = job.frame_index[position]
        poses[index] = CameraPose(frame.cam_from_world)
        rows = zip(frame.point_ids.tolist(), frame.pixels.tolist(), strict=True)
        seen += [(index, row[point], x, y) for point, (x, y) in rows]
    frames = tuple(
        PosedFrame(index, time_s, poses.get(index))
        for index, time_s in zip(job.frame_index, job.time_s, strict=True)
    )
    table = np.array(seen, np.float64).reshape(-1, 4)
    points = SparsePoints(xyz, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])
    return Reconstruction(camera, frames, "sfm", points)


def _neighbour_matches(folder: Path, job: SfmJob) -> list[MatchedPair]:
    """The verified matches of frames beside each other, those included that no point of the map came from."""
    import pycolmap

    found = []
    with pycolmap.Database.open(folder / "database.db") as database:
        images = {image.image_id: int(Path(image.name).stem) for image in database.read_all_images()}
        frames = sorted(
            (position, number) for number, position in images.items() if position < len(job.frame_index)
        )
        pixels = {
            number: np.asarray(database.read_keypoints(number), np.float64)[:, :2] for _, number in frames
        }
        for i, j in sequential_pairs(len(frames), _CHECKED_NEIGHBOURS):
            (first, a), (second, b) = frames[i], frames[j]
            if not database.exists_two_view_geometry(a, b):
                continue
            rows = np.asarray(database.read_two_view_geometry(a, b).inlier_matches)
            if len(rows) >= _MIN_CHECKED_MATCHES:
                indices = job.frame_index[first], job.frame_index[second]
                found.append(MatchedPair(*indices, pixels[a][rows[:, 0]], pixels[b][rows[:, 1]]))
    return found


def _tracked(job: SfmJob, resected: Mapping[int, Resected]) -> list[MatchedPair]:
    """The points that were followed into frames, those included that contradict their poses."""
    return [
        MatchedPair(
            job.frame_index[track.source], job.frame_index[position], track.pixels_source, track.pixels
        )
        for position, frame in resected.items()
        for track in frame.tracks
        if len(track.point_ids) >= _MIN_CHECKED_MATCHES
    ]


def _aligned(found: Reconstruction, model: Any, job: SfmJob) -> Reconstruction:
    """In the frame of the anchors, or unchanged when too few of them were registered or agree."""
    pairs = [
        (image.projection_center(), job.anchor_center[position - len(job.frame_index)])
        for image in model.images.values()
        if image.has_pose and (position := position_of(image)) in job.anchors
    ]
    source, target = np.array(pairs, np.float64).reshape(-1, 2, 3).swapaxes(0, 1)
    try:
        alignment = align(source, target, max_error=job.config.anchor_error_m)
    except GeometryError as error:
        print(f"not aligned: {error}", file=sys.stderr)
        return found
    return alignment.target_from_source.reconstruction(found)


if __name__ == "__main__":
    end_with_input()
    main(Path(sys.argv[1]))
