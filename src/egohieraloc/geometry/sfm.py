"""Structure from motion with pycolmap, run as a process of its own: `python -m egohieraloc.geometry.sfm DIR`.

The only file that imports pycolmap, whose failures may end the process; `reconstruct.py` starts it, reads its
progress (one JSON line each) and outlives it. DIR holds job.json and images/; features and matches stay in
its database, so that a stopped run goes on where it was. Follows the appendix "Camera Pose Estimation".
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import GeometryError
from egohieraloc.files import write_json
from egohieraloc.geometry.align import align
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.check import believed
from egohieraloc.geometry.job import SfmJob, read_job
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, save
from egohieraloc.geometry.selection import (
    Pair,
    alike_pairs,
    attaching_pairs,
    sequential_pairs,
    sharpest_per_window,
    sharpest_run,
    vlad,
)

_MIN_CALIBRATION_FRAMES = 10
_ANCHOR_NEIGHBOURS = 20  # frames that look like an anchor
_ATTACHING_GROWTH = 3.0  # before all that was attached is adjusted together
_BLOCK = 50  # frames or, times ten, pairs between two lines of progress
_SMALL_SIDE = 800  # below it SIFT starts at double size, which costs four times as much ...
_FEW_FEATURES = 400  # ... where a frame would have fewer features than this
_PROBED_FRAMES = 8


class NoMapError(Exception):
    """The frames do not give a map. Expected: it becomes NotLocalized."""


def main(folder: Path) -> None:
    job = read_job(folder)
    try:
        save(folder / "result.npz", _reconstruct(folder, job))
    except NoMapError as error:
        write_json(folder / "failure.json", {"reason": str(error)})


def _reconstruct(folder: Path, job: SfmJob) -> Reconstruction:
    import pycolmap

    pycolmap.logging.logtostderr = True  # not to files of its own in the temporary folder
    pycolmap.set_random_seed(job.config.seed)
    config = job.config
    count = len(job.frame_index)
    _extract(folder, job)
    if job.focal_px is None and config.calibration_frames:
        _calibrate(folder, job)
    mapped = sharpest_per_window(job.sharpness, config.max_map_frames)
    _match(folder, job, _map_pairs(folder, job, mapped), "matching")
    _report("mapping", 0.0)
    model = _largest(_map(folder, job, [job.name(i) for i in mapped]), "the frames do not overlap enough")
    others = sorted(set(range(count)) - set(_positions(model)))
    if others or job.anchors:
        pairs = attaching_pairs(_positions(model), others, neighbours=config.attach_neighbours)
        _match(folder, job, pairs | _anchor_pairs(folder, job, mapped), "attaching")
        _report("registering", 0.0)
        model = _attach(folder, job, model)
    found = _enlarged(believed(_to_reconstruction(model, job), config), job)
    return _aligned(found, model, job) if job.anchors else found


def _extract(folder: Path, job: SfmJob) -> None:
    import pycolmap

    config = job.config
    width, height = job.size
    focal = job.focal_px * width / job.full_size[0] if job.focal_px else config.focal_factor * width
    camera = pycolmap.Camera.create_from_model_name(1, config.camera_model, focal, width, height)
    reader = pycolmap.ImageReaderOptions(
        camera_model=config.camera_model, camera_params=",".join(str(v) for v in camera.params)
    )
    options = pycolmap.FeatureExtractionOptions(num_threads=config.num_threads)
    options.sift.max_num_features = config.max_features
    options.sift.first_octave = 0
    if max(width, height) < _SMALL_SIDE and _features_a_frame(folder, job, reader, options) < _FEW_FEATURES:
        options.sift.first_octave = -1
    database = pycolmap.Database.open(folder / "database.db")
    started_before = database.exists_camera(1)
    database.close()
    for start in range(0, len(job.frame_index), _BLOCK):
        _report("features", start / len(job.frame_index))
        if start or started_before:
            reader.existing_camera_id = 1
        block = range(start, min(start + _BLOCK, len(job.frame_index)))
        _extract_block(folder, "database.db", block, reader, options)
    if job.anchor_camera is not None:
        params = ",".join(str(v) for v in job.anchor_camera.params)
        reader = pycolmap.ImageReaderOptions(camera_model=job.anchor_camera.model, camera_params=params)
        _extract_block(folder, "database.db", job.anchors, reader, options)


def _features_a_frame(folder: Path, job: SfmJob, reader: Any, options: Any) -> float:
    """How many features a frame has, from a few of them."""
    import pycolmap

    few = np.unique(np.linspace(0, len(job.frame_index) - 1, _PROBED_FRAMES).astype(int)).tolist()
    (folder / "probe.db").unlink(missing_ok=True)
    _extract_block(folder, "probe.db", few, reader, options)
    database = pycolmap.Database.open(folder / "probe.db")
    found = database.num_keypoints() / len(few)
    database.close()
    return float(found)


def _extract_block(folder: Path, database: str, positions: Iterable[int], reader: Any, options: Any) -> None:
    """Features of images of one camera; those the database has already are kept."""
    import pycolmap

    pycolmap.extract_features(
        folder / database,
        folder / "images",
        image_names=[SfmJob.name(position) for position in positions],
        camera_mode=pycolmap.CameraMode.SINGLE,
        reader_options=reader,
        extraction_options=options,
    )


def _calibrate(folder: Path, job: SfmJob) -> None:
    """A better focal length from a few sharp neighbouring frames, where they give a map."""
    import pycolmap

    run = sharpest_run(job.sharpness, job.config.calibration_frames)
    if len(run) < _MIN_CALIBRATION_FRAMES:
        return
    pairs = {(run[i], run[j]) for i, j in sequential_pairs(len(run), len(run))}
    _match(folder, job, pairs, "calibrating")
    models = _map(folder, job, [job.name(i) for i in run])
    model = max(models, key=lambda m: m.num_reg_images(), default=None)
    if model is None or model.num_reg_images() < _MIN_CALIBRATION_FRAMES:
        return
    database = pycolmap.Database.open(folder / "database.db")
    camera = database.read_camera(1)
    camera.params = next(iter(model.cameras.values())).params
    camera.has_prior_focal_length = True
    database.update_camera(camera)
    database.close()


def _map_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
    """Neighbours in time, and frames that look alike."""
    config, count = job.config, len(mapped)
    pairs = sequential_pairs(count, config.overlap) | alike_pairs(
        vlad(_local_descriptors(folder, job, mapped)),
        range(0, count, config.loop_stride),
        range(count),
        neighbours=config.loop_neighbours,
        min_gap=config.overlap,
    )
    return {(mapped[i], mapped[j]) for i, j in pairs}


def _anchor_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
    """Each anchor with the frames of the map that look most like it."""
    if not job.anchors:
        return set()
    positions = [*mapped, *job.anchors]
    described = vlad(_local_descriptors(folder, job, positions))
    rows = range(len(mapped), len(positions))
    pairs = alike_pairs(described, rows, range(len(mapped)), neighbours=_ANCHOR_NEIGHBOURS)
    return {(positions[i], positions[j]) for i, j in pairs}


def _local_descriptors(folder: Path, job: SfmJob, mapped: Sequence[int]) -> list[NDArray[np.uint8]]:
    import pycolmap

    database = pycolmap.Database.open(folder / "database.db")
    found = []
    for position in mapped:
        image: Any = database.read_image_with_name(job.name(position))
        rows = database.read_descriptors(image.image_id)
        found.append(np.asarray(getattr(rows, "data", rows)))
    database.close()
    if sum(len(rows) for rows in found) == 0:
        raise NoMapError("no frame has a feature that could be matched")
    return found


def _match(folder: Path, job: SfmJob, pairs: Iterable[Pair], stage: str) -> None:
    """Match pairs of positions; those the database has already are not matched again."""
    import pycolmap

    ordered = sorted(pairs)
    options = pycolmap.FeatureMatchingOptions(num_threads=job.config.num_threads)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = job.config.seed
    listing = folder / "pairs.txt"
    for start in range(0, len(ordered), 10 * _BLOCK):
        _report(stage, start / len(ordered))
        block = ordered[start : start + 10 * _BLOCK]
        listing.write_text("".join(f"{job.name(i)} {job.name(j)}\n" for i, j in block))
        pycolmap.match_image_pairs(
            folder / "database.db",
            options,
            pycolmap.ImportedPairingOptions(match_list_path=listing),
            verification,
        )


def _map(folder: Path, job: SfmJob, names: Sequence[str], *, start_from: Path | None = None) -> list[Any]:
    """The models the mapper makes of these images, or of these and an existing model, whose poses stay."""
    import pycolmap

    output = folder / "models"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    if job.config.mapper == "global" and start_from is None:
        choice = pycolmap.GlobalPipelineOptions(
            num_threads=job.config.num_threads, random_seed=job.config.seed, image_names=list(names)
        )
        return list(
            pycolmap.global_mapping(folder / "database.db", folder / "images", output, choice).values()
        )
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=job.config.num_threads,
        random_seed=job.config.seed,
        image_names=list(names),
        extract_colors=False,
        fix_existing_frames=start_from is not None,
        constant_cameras={2} if job.anchor_camera else set(),
    )
    options.mapper.abs_pose_min_num_inliers = job.config.min_inliers
    if start_from is not None:  # what stays where it is need not be adjusted again and again
        options.ba_global_frames_ratio = options.ba_global_points_ratio = _ATTACHING_GROWTH
        options.ba_local_max_refinements = 1
    models = pycolmap.incremental_mapping(
        folder / "database.db", folder / "images", output, options, input_path=start_from or ""
    )
    return list(models.values())


def _attach(folder: Path, job: SfmJob, model: Any) -> Any:
    """Register the remaining frames: solve their poses, triangulate with them, until none is gained."""
    start = folder / "map"
    shutil.rmtree(start, ignore_errors=True)
    start.mkdir()
    model.write(start)
    names = [job.name(i) for i in [*range(len(job.frame_index)), *job.anchors]]
    grown = _map(folder, job, names, start_from=start)
    return max([model, *grown], key=lambda m: m.num_reg_images())


def _largest(models: Sequence[Any], reason: str) -> Any:
    if not models:
        raise NoMapError(reason)
    return max(models, key=lambda model: model.num_reg_images())


def _positions(model: Any) -> list[int]:
    return sorted(int(Path(image.name).stem) for image in model.images.values() if image.has_pose)


def _to_reconstruction(model: Any, job: SfmJob) -> Reconstruction:
    lens = model.cameras[1]
    camera = Camera(lens.model.name, lens.width, lens.height, tuple(float(v) for v in lens.params))
    row = {point: i for i, point in enumerate(model.points3D)}
    xyz = np.array([point.xyz for point in model.points3D.values()]).reshape(-1, 3)
    poses: dict[int, CameraPose] = {}
    seen: list[tuple[int, int, float, float]] = []
    for image in model.images.values():
        position = int(Path(image.name).stem)
        if not image.has_pose or position in job.anchors:
            continue
        index = job.frame_index[position]
        poses[index] = CameraPose(image.cam_from_world().matrix())
        seen += [(index, row[p.point3D_id], *p.xy) for p in image.get_observation_points2D()]
    frames = tuple(
        PosedFrame(index, time_s, poses.get(index))
        for index, time_s in zip(job.frame_index, job.time_s, strict=True)
    )
    table = np.array(seen, np.float64).reshape(-1, 4)
    points = SparsePoints(xyz, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])
    return Reconstruction(camera, frames, "sfm", points)


def _enlarged(reduced: Reconstruction, job: SfmJob) -> Reconstruction:
    """The same in pixels of the frames. With pixel centres at halves this is a plain product."""
    across, down = (full / small for full, small in zip(job.full_size, job.size, strict=True))
    camera = reduced.camera
    focal_count = 2 if camera.model == "PINHOLE" else 1
    scale = [(across + down) / 2] * focal_count + [across, down]
    params = tuple(v * (scale[i] if i < len(scale) else 1.0) for i, v in enumerate(camera.params))
    points = replace(reduced.points, pixel=reduced.points.pixel * (across, down))
    return replace(reduced, camera=Camera(camera.model, *job.full_size, params), points=points)


def _aligned(found: Reconstruction, model: Any, job: SfmJob) -> Reconstruction:
    """In the frame of the anchors, or as it was when too few of them were registered or agree."""
    pairs = [
        (image.projection_center(), job.anchor_center[position - len(job.frame_index)])
        for image in model.images.values()
        if image.has_pose and (position := int(Path(image.name).stem)) in job.anchors
    ]
    source, target = np.array(pairs, np.float64).reshape(-1, 2, 3).swapaxes(0, 1)
    try:
        alignment = align(source, target, max_error=job.config.anchor_error_m)
    except GeometryError as error:
        print(f"not aligned: {error}", file=sys.stderr)
        return found
    return alignment.target_from_source.reconstruction(found)


def _report(stage: str, share: float) -> None:
    print(json.dumps({"stage": stage, "share": share}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
