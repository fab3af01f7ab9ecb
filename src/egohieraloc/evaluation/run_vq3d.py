"""VQ3D: the last appearance in 2D, ours or from a prediction file, lifted with given cameras or our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from egohieraloc.config import DepthConfig, FusionConfig, PlaceConfig
from egohieraloc.data.base import ClipQueries, QueryKey, group_by_clip
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.data.ego4d_3d import (
    POSES_PER_S,
    ClipPoses,
    Intrinsics,
    PlaceQuery,
    read_clip_poses,
    read_intrinsics,
)
from egohieraloc.errors import DataError, GeometryError
from egohieraloc.evaluation.predictions import PlaceAnswer, TrackAnswer, is_own, read_own
from egohieraloc.evaluation.run_vq2d import ClipAnswers, ClipSearch, LastAppearance
from egohieraloc.evaluation.workers import AnswerQuery
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.depth import fit_to_points, read_depth_folder
from egohieraloc.geometry.place import last_appearance, object_views, place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, load
from egohieraloc.inference.predict import choose_device
from egohieraloc.models.depth import DepthNetwork
from egohieraloc.types import (
    Box,
    DepthMap,
    DepthUnit,
    Floats,
    FramePrediction,
    MaskConfidence,
    NotLocalized,
)
from egohieraloc.video.reader import Video

FindAppearance = Callable[[VisualQuery], LastAppearance]
FindDepth = Callable[[Sequence[int], Reconstruction], dict[int, DepthMap]]


@dataclass(frozen=True, eq=False)
class MappedQuery:
    """A VQ3D query and the VQ2D query behind it."""

    key: QueryKey
    scan_uid: str
    visual: VisualQuery
    problem: str = ""  # of either


def mapped_queries(
    places: Iterable[PlaceQuery], visual: Mapping[QueryKey, VisualQuery]
) -> list[ClipQueries[MappedQuery]]:
    """VQ3D's queries by clip, each with its VQ2D query."""
    return group_by_clip(
        (
            ClipQueries(place.key.clip, place.video_uid, place.key.clip, visual[place.key].fps, ()),
            MappedQuery(
                place.key, place.scan_uid, visual[place.key], place.problem or visual[place.key].problem
            ),
        )
        for place in places
    )


@dataclass(frozen=True)
class ScanCameras:
    """The files about the cameras, each read once in a process that needs it."""

    poses: Path  # all_clips_camera_poses_*.json, or of `egohieraloc poses`
    intrinsics: Path | None = None  # scan_to_intrinsics.json; our own poses bring their lens
    depth: Path | None = None  # <clip>/<frame>.png or .npy; without it, points are triangulated from rays

    def __reduce__(self) -> tuple[type[ScanCameras], tuple[Path | None, ...]]:
        return ScanCameras, (self.poses, self.intrinsics, self.depth)  # other processes read for themselves

    @cached_property
    def _poses_by_clip(self) -> dict[str, ClipPoses]:
        return read_clip_poses(self.poses)

    @cached_property
    def _intrinsics_by_scan(self) -> dict[str, tuple[Intrinsics, ...]]:
        return {} if self.intrinsics is None else read_intrinsics(self.intrinsics)

    @cached_property
    def _read_map(self) -> Callable[[Path], Reconstruction]:
        return lru_cache(maxsize=1)(load)  # of the clip whose queries are being answered

    def check(self) -> None:
        """Poses of others need a lens."""
        if self.intrinsics is not None:
            return
        for clip, poses in self._poses_by_clip.items():
            if not poses.map_file and not poses.problem:
                raise DataError(
                    f"{self.poses} has no lens for clip {clip}: give --intrinsics FILE, or poses made by "
                    "`egohieraloc poses`."
                )

    def reconstruction(self, query: MappedQuery) -> Reconstruction | NotLocalized:
        """The camera path of the clip, in metres of the scan."""
        visual = query.visual
        poses = self._poses_by_clip.get(query.key.clip)
        if poses is None:
            return NotLocalized("the pose file does not have this clip")
        if poses.problem:
            return NotLocalized(poses.problem)
        if poses.map_file:
            return self._read_map(self.poses.parent / poses.map_file).resized(visual.width, visual.height)
        sizes = {(c.width, c.height): c for c in self._intrinsics_by_scan.get(query.scan_uid, ())}
        lens = sizes.get((visual.width, visual.height))
        if lens is None:
            return NotLocalized(
                f"there are no intrinsics for scan {query.scan_uid!r} at {visual.width}x{visual.height}, "
                f"only for the sizes {sorted(sizes)}"
            )
        return _reconstruction(lens, poses, visual.fps)

    def depth_maps(self, clip: str, frames: Sequence[int]) -> dict[int, DepthMap]:
        """Of those frames of a clip that have one."""
        folder = None if self.depth is None else self.depth / clip
        return read_depth_folder(folder, frames) if folder is not None and folder.is_dir() else {}


@dataclass(frozen=True)
class DepthModel:
    """A depth network by its name; a process that needs it loads it once."""

    name: str
    device: str | None = None

    def __reduce__(self) -> tuple[type[DepthModel], tuple[str, str | None]]:
        return DepthModel, (self.name, self.device)

    @cached_property
    def _network(self) -> DepthNetwork:
        return DepthNetwork.from_pretrained(self.name, device=str(choose_device(self.device)))

    def maps(
        self, video: Video, frames: Sequence[int], world: Reconstruction, config: DepthConfig
    ) -> dict[int, DepthMap]:
        """In metres, of frames of the annotation; relative ones are fitted to the points of the map."""
        file_frame = dict(enumerate(video.shown_every(POSES_PER_S).tolist()))
        shown = {frame: file_frame[frame] for frame in frames if frame in file_frame}
        by_file = dict(self._network.predict(video.frames(sorted(set(shown.values())))))
        maps = {frame: by_file[number] for frame, number in shown.items() if number in by_file}
        if not len(world.points.xyz_world) and any(m.unit is DepthUnit.RELATIVE for m in maps.values()):
            raise DataError(
                f"{self.name} gives relative depth, which is fitted to points of a map: give poses made by "
                "`egohieraloc poses`, or a metric depth network."
            )
        return fit_to_points(maps, world, config)


@dataclass(frozen=True, eq=False, kw_only=True)
class Vq3dAnswers(ClipAnswers):
    """VQ3D. With `tracks` nothing is searched: no clip is opened, no weights are loaded."""

    benchmark = "vq3d"
    cameras: ScanCameras
    place: PlaceConfig
    tracks: Mapping[QueryKey, TrackAnswer] | None = None  # by VQ2D query
    depth_model: DepthModel | None = None  # in place of the cameras' depth maps

    def has(self, clip: ClipQueries[MappedQuery]) -> bool:
        return (self.tracks is not None and self.depth_model is None) or super().has(clip)

    def open(self, clip: ClipQueries[MappedQuery]) -> AnswerQuery:
        find, depth = self._find(clip), self._depth(clip)
        return lambda query: self._answer(query, find, depth)

    def _find(self, clip: ClipQueries[MappedQuery]) -> FindAppearance:
        tracks = self.tracks
        if tracks is not None:
            return lambda visual: appearance_from_track(tracks.get(visual.key), visual.fps)
        queries = tuple(query.visual for query in clip.queries)
        return ClipSearch(self.system.localizer, self.video(clip), queries, clip.fps).find

    def _depth(self, clip: ClipQueries[MappedQuery]) -> FindDepth:
        model = self.depth_model
        if model is None:
            return lambda frames, world: self.cameras.depth_maps(clip.name, frames)
        video = self.video(clip)
        return lambda frames, world: model.maps(video, frames, world, self.place.depth)

    def _answer(self, query: MappedQuery, find: FindAppearance, find_depth: FindDepth) -> PlaceAnswer:
        world = self.cameras.reconstruction(query)
        if isinstance(world, NotLocalized):
            return PlaceAnswer(query.key, None, reason=world.reason)
        found = find(query.visual)
        depth = find_depth([p.frame_index for p in last_appearance(found.predictions)], world)
        return replace(self._placed(query, found, world, depth), crop_sharpness=found.crop_sharpness)

    def _placed(
        self, query: MappedQuery, found: LastAppearance, world: Reconstruction, depth: dict[int, DepthMap]
    ) -> PlaceAnswer:
        key, visual, seen = query.key, query.visual, found.predictions
        query_time_s = visual.query_frame / visual.fps
        # Without a pose for the query camera, the point in the scan is still an answer: from any other.
        viewer = world.nearest_posed(query_time_s)
        viewed_s = query_time_s if viewer is None else viewer.time_s
        there = place(seen, world, query_time_s=viewed_s, depth=depth, config=self.place)
        if isinstance(there, NotLocalized):
            return PlaceAnswer(key, None, reason=there.reason)
        views = object_views(last_appearance(seen), world, depth, self.place) if depth else []
        variances = tuple(view.depth_variance for view in views if view.depth is not None)
        gap_s, shown_s = self.place.max_pose_gap_s, world.frame_gap_s / 2
        if abs(viewed_s - query_time_s) > max(gap_s, shown_s):
            reason = f"no frame within {gap_s:g} s of the query time ({query_time_s:.1f} s) has a camera pose"
            return PlaceAnswer(key, there.point_world, reason=reason, depth_variances=variances)
        pose = np.vstack([world.poses[there.query_frame].cam_from_world, [0.0, 0.0, 0.0, 1.0]])
        return PlaceAnswer(key, there.point_world, there.displacement, pose, depth_variances=variances)


def median_depth_variance(path: Path, fusion: FusionConfig) -> float:
    """sigma_0^2 as printed: the median over all views of an earlier run over the validation set."""
    if not is_own(path):
        raise DataError(f"{path} is not one of our prediction files (JSON lines with a header).")
    header, answers = read_own(path)
    config = header.get("config", {}).get("place", {}).get("fusion", {})
    variances = [value for answer in answers.values() for value in getattr(answer, "depth_variances", ())]
    if config.get("literal") != fusion.literal or not variances:
        wanted = "with" if fusion.literal else "without"
        raise DataError(
            f"{path} gives no sigma_0: it must be of `eval vq3d` {wanted} place.fusion.literal, with depth."
        )
    return float(np.median(variances))


def appearance_from_track(answer: TrackAnswer | None, fps: float) -> LastAppearance:
    """The boxes of a prediction file as predictions without masks."""
    if answer is None:
        return LastAppearance((), 0.0, None)
    track = answer.track
    scores = np.ones(len(track)) if answer.frame_scores is None else np.clip(answer.frame_scores, 0, 1)
    sure = answer.frame_confidences
    confidences = [None] * len(track) if sure is None else [MaskConfidence(*row) for row in sure.tolist()]
    rows = zip(track.frames.tolist(), track.boxes_xyxy.tolist(), scores.tolist(), confidences, strict=True)
    predictions = tuple(
        FramePrediction(n, n, n / fps, score, Box(*box), confidence=known) for n, box, score, known in rows
    )
    return LastAppearance(predictions, answer.score, answer.crop_sharpness, answer.reason)


def _reconstruction(lens: Intrinsics, poses: ClipPoses, fps: float) -> Reconstruction:
    params = (lens.focal, lens.center_x, lens.center_y, lens.k1, lens.k2)
    camera = Camera("RADIAL_FISHEYE", lens.width, lens.height, params)
    frames = tuple(
        PosedFrame(number, number / fps, _pose(matrix) if good else None)
        for number, (matrix, good) in enumerate(zip(poses.cam_from_world, poses.is_good, strict=True))
    )
    return Reconstruction(camera, frames, "m")


def _pose(matrix: Floats) -> CameraPose | None:
    """Some matrices that are marked good are not rigid poses."""
    try:
        return CameraPose(matrix)
    except GeometryError:
        return None
