"""The map of structure from motion: features and matches of frames in COLMAP's database, and what its mapper
makes of them. All of it is kept in the folder of the job, so that a stopped run resumes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.documents import read_json
from egohieraloc.files import write_json
from egohieraloc.geometry.selection import (
    Pair,
    sequential_pairs,
    sharpest_run,
    similar_pairs,
    vlad,
)
from egohieraloc.geometry.sfm_job import NoMapError, SfmJob, report

_MIN_CALIBRATION_FRAMES = 10
_ANCHOR_NEIGHBOURS = 20  # frames each anchor is matched with
_ATTACHING_GROWTH = 3.0  # how far the map grows before all attached frames are adjusted together
_ENOUGH = 1e-4  # an adjustment ends with a step that lowers its error by no more than this share
_BLOCK = 50  # frames or, times ten, pairs between two lines of progress
_SMALL_SIDE = 800  # below it SIFT starts at double size, which costs four times as much ...
_FEW_FEATURES = 400  # ... where a frame would have fewer features than this
_PROBED_FRAMES = 8


def extract(folder: Path, job: SfmJob, positions: Sequence[int]) -> None:
    """Features of frames; those the database has already are kept."""
    import pycolmap

    reader, options = _frame_reader(job), _extraction_options(folder, job)
    with pycolmap.Database.open(folder / "database.db") as database:
        started_before = database.exists_camera(1)
    for start in range(0, len(positions), _BLOCK):
        report("features", start, len(positions))
        if start or started_before:
            reader.existing_camera_id = 1
        _extract_block(folder, "database.db", positions[start : start + _BLOCK], reader, options)


def extract_anchors(folder: Path, job: SfmJob) -> None:
    import pycolmap

    reader = pycolmap.ImageReaderOptions(camera_model="SIMPLE_PINHOLE")  # renders have no distortion
    if job.anchor_camera is not None:
        params = ",".join(str(v) for v in job.anchor_camera.params)
        reader = pycolmap.ImageReaderOptions(camera_model=job.anchor_camera.model, camera_params=params)
    _extract_block(folder, "database.db", job.anchors, reader, _extraction_options(folder, job))


def _frame_reader(job: SfmJob) -> Any:
    import pycolmap

    width, height = job.size
    model = job.config.camera_model
    focal = job.focal_px * width / job.full_size[0] if job.focal_px else job.config.focal_factor * width
    camera = pycolmap.Camera.create_from_model_name(1, model, focal, width, height)
    return pycolmap.ImageReaderOptions(
        camera_model=model, camera_params=",".join(str(v) for v in camera.params)
    )


@cache
def _extraction_options(folder: Path, job: SfmJob) -> Any:
    """How features are found: small images that give few, by a look at some of them, are doubled."""
    import pycolmap

    options = pycolmap.FeatureExtractionOptions(num_threads=job.config.num_threads)
    options.sift.max_num_features = job.config.max_features
    options.sift.first_octave = 0
    if max(job.size) < _SMALL_SIDE:
        few = np.unique(np.linspace(0, len(job.frame_index) - 1, _PROBED_FRAMES).astype(int)).tolist()
        (folder / "probe.db").unlink(missing_ok=True)
        _extract_block(folder, "probe.db", few, _frame_reader(job), options)
        with pycolmap.Database.open(folder / "probe.db") as database:
            if database.num_keypoints() < _FEW_FEATURES * len(few):
                options.sift.first_octave = -1
    return options


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


def calibrate(folder: Path, job: SfmJob) -> None:
    """A better focal length from a few sharp consecutive frames, where they give a map. It is found once:
    with the matches of later stages it would come out otherwise."""
    import pycolmap

    run = _calibration_run(job)
    if not run:
        return
    known = folder / "camera.json"
    if not known.exists():
        extract(folder, job, run)
        match_pairs(folder, job, calibration_pairs(job), "calibrating")
        model = largest(map_images(folder, job, run))
        good = model is not None and model.num_reg_images() >= _MIN_CALIBRATION_FRAMES
        write_json(known, next(iter(model.cameras.values())).params.tolist() if good else None)
    params = read_json(known)
    if params is not None:
        with pycolmap.Database.open(folder / "database.db") as database:
            camera = database.read_camera(1)
            camera.params = params
            camera.has_prior_focal_length = True
            database.update_camera(camera)


def calibration_pairs(job: SfmJob) -> set[Pair]:
    run = _calibration_run(job)
    return {(run[i], run[j]) for i, j in sequential_pairs(len(run), len(run))}


def _calibration_run(job: SfmJob) -> list[int]:
    """The frames that give the focal length; none where it is known or they would be too few."""
    length = min(job.config.calibration_frames, len(job.sharpness))
    if job.focal_px is not None or length < _MIN_CALIBRATION_FRAMES:
        return []
    return sharpest_run(job.sharpness, length)


def map_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
    """Neighbours in time, and frames that look alike (loops)."""
    config, count = job.config, len(mapped)
    pairs = sequential_pairs(count, config.overlap) | similar_pairs(
        vlad(_local_descriptors(folder, job, mapped)),
        range(0, count, config.loop_stride),
        range(count),
        neighbours=config.loop_neighbours,
        min_gap=config.overlap,
    )
    return {(mapped[i], mapped[j]) for i, j in pairs}


def anchor_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
    """Each anchor with the frames of the map that look most like it."""
    if not job.anchors:
        return set()
    positions = [*mapped, *job.anchors]
    described = vlad(_local_descriptors(folder, job, positions))
    rows = range(len(mapped), len(positions))
    pairs = similar_pairs(described, rows, range(len(mapped)), neighbours=_ANCHOR_NEIGHBOURS)
    return {(positions[i], positions[j]) for i, j in pairs}


def _local_descriptors(folder: Path, job: SfmJob, mapped: Sequence[int]) -> list[NDArray[np.uint8]]:
    import pycolmap

    found = []
    with pycolmap.Database.open(folder / "database.db") as database:
        for position in mapped:
            image: Any = database.read_image_with_name(job.name(position))
            rows = database.read_descriptors(image.image_id)
            found.append(np.asarray(getattr(rows, "data", rows)))
    if sum(len(rows) for rows in found) == 0:
        raise NoMapError("no frame has a feature that could be matched")
    return found


def match_pairs(folder: Path, job: SfmJob, pairs: Iterable[Pair], stage: str) -> None:
    """Match pairs of positions; those the database has already are not matched again."""
    import pycolmap

    ordered = sorted(pairs)
    options = pycolmap.FeatureMatchingOptions(num_threads=job.config.num_threads)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = job.config.seed
    listing = folder / "pairs.txt"
    for start in range(0, len(ordered), 10 * _BLOCK):
        report(stage, start, len(ordered))
        block = ordered[start : start + 10 * _BLOCK]
        listing.write_text("".join(f"{job.name(i)} {job.name(j)}\n" for i, j in block))
        pycolmap.match_image_pairs(
            folder / "database.db",
            options,
            pycolmap.ImportedPairingOptions(match_list_path=listing),
            verification,
        )


def verify_again(folder: Path, job: SfmJob, *, keep: Iterable[Pair]) -> None:
    """Forget which matches of other pairs were verified: a killed run had come to attaching frames, and the
    map must be made from the same pairs as in one that was not killed."""
    import pycolmap

    with pycolmap.Database.open(folder / "database.db") as database:
        numbers = {image.name: image.image_id for image in database.read_all_images()}
        kept = {frozenset(numbers[job.name(position)] for position in pair) for pair in keep}
        for pair in database.read_two_view_geometry_num_inliers()[0]:
            images = pycolmap.pair_id_to_image_pair(pair)
            if frozenset(images) not in kept:
                database.delete_two_view_geometry(*images)


def map_images(
    folder: Path, job: SfmJob, positions: Sequence[int], *, start_from: Path | None = None
) -> list[Any]:
    """The models the mapper makes of these images, or of these and an existing model with its poses fixed."""
    import pycolmap

    names = [job.name(i) for i in positions]
    output = folder / "models"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    if job.config.mapper == "global" and start_from is None:
        choice = pycolmap.GlobalPipelineOptions(
            num_threads=job.config.num_threads, random_seed=job.config.seed, image_names=names
        )
        return list(
            pycolmap.global_mapping(folder / "database.db", folder / "images", output, choice).values()
        )
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=job.config.num_threads,
        random_seed=job.config.seed,
        image_names=names,
        extract_colors=False,
        fix_existing_frames=start_from is not None,
        constant_cameras={2} if job.anchor_camera else set(),
    )
    options.mapper.abs_pose_min_num_inliers = job.config.min_inliers
    options.mapper.ba_global_ignore_redundant_points3D = job.config.adjust_thinned
    options.ba_global_frames_ratio = options.ba_global_points_ratio = job.config.adjust_growth
    options.ba_global_max_refinements = job.config.adjust_rounds
    options.ba_global_function_tolerance = options.ba_local_function_tolerance = _ENOUGH
    if start_from is not None:  # fixed frames need not be adjusted again and again
        options.ba_global_frames_ratio = options.ba_global_points_ratio = _ATTACHING_GROWTH
        options.ba_local_max_refinements = 1
    models = pycolmap.incremental_mapping(
        folder / "database.db", folder / "images", output, options, input_path=start_from or ""
    )
    return list(models.values())


def grown(folder: Path, job: SfmJob, model: Any, positions: Sequence[int]) -> Any:
    """The map with further images: their poses are solved and points added while any can be."""
    start = folder / "map"
    shutil.rmtree(start, ignore_errors=True)
    start.mkdir()
    model.write(start)
    return largest([model, *map_images(folder, job, positions, start_from=start)])


def largest(models: Sequence[Any]) -> Any:
    """The model with the most registered images, the first of several; None when there is none."""
    return max(models, key=lambda model: model.num_reg_images(), default=None)
