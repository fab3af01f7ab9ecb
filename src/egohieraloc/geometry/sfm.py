"""Structure from motion with pycolmap, run as a process of its own: `python -m egohieraloc.geometry.sfm DIR`.

The failures of pycolmap may end the process: `sfm_process.py` starts it, reads its progress (one JSON line
each) and survives it. DIR holds job.json and images/; features and matches stay in
its database, so that a stopped run resumes. Follows the appendix "Camera Pose Estimation".
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.children import end_with_input
from egohieraloc.config import SfmConfig
from egohieraloc.documents import read_json
from egohieraloc.errors import GeometryError
from egohieraloc.files import write_json
from egohieraloc.geometry.align import align
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.check import MatchedPair, drop_unreliable_poses
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, save
from egohieraloc.geometry.resection import Resected, image_name, position_of, resect
from egohieraloc.geometry.selection import (
    Pair,
    attaching_pairs,
    sequential_pairs,
    sharpest_per_window,
    sharpest_run,
    similar_pairs,
    vlad,
)

_MIN_CALIBRATION_FRAMES = 10
_ANCHOR_NEIGHBOURS = 20  # frames each anchor is matched with
_ATTACHING_GROWTH = 3.0  # how far the map grows before all attached frames are adjusted together
_ENOUGH_RESECTED = 0.9  # of the frames outside the map; with fewer the map must grow to reach them
_BLOCK = 50  # frames or, times ten, pairs between two lines of progress
_SMALL_SIDE = 800  # below it SIFT starts at double size, which costs four times as much ...
_FEW_FEATURES = 400  # ... where a frame would have fewer features than this
_PROBED_FRAMES = 8
_CHECKED_NEIGHBOURS = 3  # frames ahead with which a frame's matches are held against its pose ...
_MIN_CHECKED_MATCHES = 15  # ... where there are so many


@dataclass(frozen=True, kw_only=True)
class SfmJob:
    """What the process is to do. Images are images/<position>.jpg: the frames, then the anchors."""

    frame_index: tuple[int, ...]
    time_s: tuple[float, ...]
    sharpness: tuple[float, ...]
    size: tuple[int, int]  # width and height of the images in images/
    full_size: tuple[int, int]  # and of the frames
    focal_px: float | None  # in pixels of the frames, where it is known
    config: SfmConfig
    anchor_camera: Camera | None = None  # where it is known
    anchor_center: tuple[tuple[float, ...], ...] = ()  # known positions of the anchors' cameras

    @property
    def anchors(self) -> range:
        """Positions of the anchors."""
        count = len(self.frame_index)
        return range(count, count + len(self.anchor_center))

    @staticmethod
    def name(position: int) -> str:
        return image_name(position)

    def write(self, folder: Path) -> None:
        write_json(folder / "job.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> SfmJob:
        value = read_json(folder / "job.json")
        camera, lists = value["anchor_camera"], ("frame_index", "time_s", "sharpness", "size", "full_size")
        return cls(
            **{key: tuple(value[key]) for key in lists},
            focal_px=value["focal_px"],
            config=SfmConfig(**value["config"]),
            anchor_camera=camera and Camera(**{**camera, "params": tuple(camera["params"])}),
            anchor_center=tuple(tuple(center) for center in value["anchor_center"]),
        )


class NoMapError(Exception):
    """The frames do not give a map. Expected: it becomes NotLocalized."""


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
    count = len(job.frame_index)
    _extract(folder, job)
    if job.focal_px is None and config.calibration_frames:
        _calibrate(folder, job)
    mapped = sharpest_per_window(job.sharpness, config.max_map_frames)
    pairs = _map_pairs(folder, job, mapped)
    _match(folder, job, pairs, "matching")
    _verify_again(folder, job, keep=pairs | _calibration_pairs(job))
    _report("mapping")
    model = _largest(_map(folder, job, [job.name(i) for i in mapped]))
    if model is None:
        raise NoMapError("the frames do not overlap enough")
    others = sorted(set(range(count)) - set(_positions(model)))
    resected: dict[int, Resected] = {}
    if others or job.anchors:
        pairs = attaching_pairs(_positions(model), others, neighbours=config.attach_neighbours)
        _match(folder, job, pairs | _anchor_pairs(folder, job, mapped), "attaching")
        _report("registering")
        if not job.anchors:
            resected = resect(folder / "database.db", model, pairs, config)
        if job.anchors or len(resected) < _ENOUGH_RESECTED * len(others):
            model, resected = _attach(folder, job, model), {}
    whole = _to_reconstruction(model, job, resected)
    found = drop_unreliable_poses(whole, config, _neighbour_matches(folder, job)).resized(*job.full_size)
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
    with pycolmap.Database.open(folder / "database.db") as database:
        started_before = database.exists_camera(1)
    for start in range(0, len(job.frame_index), _BLOCK):
        _report("features", start, len(job.frame_index))
        if start or started_before:
            reader.existing_camera_id = 1
        block = range(start, min(start + _BLOCK, len(job.frame_index)))
        _extract_block(folder, "database.db", block, reader, options)
    if job.anchors:
        reader = pycolmap.ImageReaderOptions(camera_model="SIMPLE_PINHOLE")  # renders have no distortion
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
    with pycolmap.Database.open(folder / "probe.db") as database:
        return float(database.num_keypoints() / len(few))


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
    """A better focal length from a few sharp consecutive frames, where they give a map. It is found once:
    with the matches of later stages it would come out otherwise."""
    import pycolmap

    run = sharpest_run(job.sharpness, job.config.calibration_frames)
    if len(run) < _MIN_CALIBRATION_FRAMES:
        return
    known = folder / "camera.json"
    if not known.exists():
        _match(folder, job, _calibration_pairs(job), "calibrating")
        model = _largest(_map(folder, job, [job.name(i) for i in run]))
        good = model is not None and model.num_reg_images() >= _MIN_CALIBRATION_FRAMES
        write_json(known, next(iter(model.cameras.values())).params.tolist() if good else None)
    params = read_json(known)
    if params is not None:
        with pycolmap.Database.open(folder / "database.db") as database:
            camera = database.read_camera(1)
            camera.params = params
            camera.has_prior_focal_length = True
            database.update_camera(camera)


def _calibration_pairs(job: SfmJob) -> set[Pair]:
    if not job.config.calibration_frames:
        return set()
    run = sharpest_run(job.sharpness, job.config.calibration_frames)
    return {(run[i], run[j]) for i, j in sequential_pairs(len(run), len(run))}


def _verify_again(folder: Path, job: SfmJob, *, keep: Iterable[Pair]) -> None:
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


def _map_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
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


def _anchor_pairs(folder: Path, job: SfmJob, mapped: Sequence[int]) -> set[Pair]:
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


def _match(folder: Path, job: SfmJob, pairs: Iterable[Pair], stage: str) -> None:
    """Match pairs of positions; those the database has already are not matched again."""
    import pycolmap

    ordered = sorted(pairs)
    options = pycolmap.FeatureMatchingOptions(num_threads=job.config.num_threads)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = job.config.seed
    listing = folder / "pairs.txt"
    for start in range(0, len(ordered), 10 * _BLOCK):
        _report(stage, start, len(ordered))
        block = ordered[start : start + 10 * _BLOCK]
        listing.write_text("".join(f"{job.name(i)} {job.name(j)}\n" for i, j in block))
        pycolmap.match_image_pairs(
            folder / "database.db",
            options,
            pycolmap.ImportedPairingOptions(match_list_path=listing),
            verification,
        )


def _map(folder: Path, job: SfmJob, names: Sequence[str], *, start_from: Path | None = None) -> list[Any]:
    """The models the mapper makes of these images, or of these and an existing model with its poses fixed."""
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
    options.mapper.ba_global_ignore_redundant_points3D = job.config.adjust_thinned
    options.ba_global_frames_ratio = options.ba_global_points_ratio = job.config.adjust_growth
    options.ba_global_max_refinements = job.config.adjust_rounds
    if start_from is not None:  # fixed frames need not be adjusted again and again
        options.ba_global_frames_ratio = options.ba_global_points_ratio = _ATTACHING_GROWTH
        options.ba_local_max_refinements = 1
    models = pycolmap.incremental_mapping(
        folder / "database.db", folder / "images", output, options, input_path=start_from or ""
    )
    return list(models.values())


def _attach(folder: Path, job: SfmJob, model: Any) -> Any:
    """Register the remaining frames: solve their poses and triangulate with them while any can be added."""
    start = folder / "map"
    shutil.rmtree(start, ignore_errors=True)
    start.mkdir()
    model.write(start)
    names = [job.name(i) for i in [*range(len(job.frame_index)), *job.anchors]]
    return _largest([model, *_map(folder, job, names, start_from=start)])


def _largest(models: Sequence[Any]) -> Any:
    """The model with the most registered images, the first of several; None when there is none."""
    return max(models, key=lambda model: model.num_reg_images(), default=None)


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
        images: list[Any] = [database.read_image_with_name(job.name(i)) for i in range(len(job.frame_index))]
        numbers = [image.image_id for image in images]
        pixels = [np.asarray(database.read_keypoints(number), np.float64)[:, :2] for number in numbers]
        for i, j in sequential_pairs(len(numbers), _CHECKED_NEIGHBOURS):
            if not database.exists_two_view_geometry(numbers[i], numbers[j]):
                continue
            rows = np.asarray(database.read_two_view_geometry(numbers[i], numbers[j]).inlier_matches)
            if len(rows) >= _MIN_CHECKED_MATCHES:
                first, second = job.frame_index[i], job.frame_index[j]
                found.append(MatchedPair(first, second, pixels[i][rows[:, 0]], pixels[j][rows[:, 1]]))
    return found


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


def _report(stage: str, done: int = 0, total: int = 1) -> None:
    print(json.dumps({"stage": stage, "done": done, "total": total}), flush=True)


if __name__ == "__main__":
    end_with_input()
    main(Path(sys.argv[1]))
