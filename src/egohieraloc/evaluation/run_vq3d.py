"""VQ3D answers: the last appearance in 2D, ours or anybody's, lifted with the benchmark's camera poses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from egohieraloc.data.base import ClipQueries, QueryKey, group_by_clip
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.data.ego4d_3d import (
    ClipPoses,
    Intrinsics,
    PlaceQuery,
    read_clip_poses,
    read_intrinsics,
)
from egohieraloc.errors import GeometryError
from egohieraloc.evaluation.predictions import PlaceAnswer, TrackAnswer
from egohieraloc.evaluation.run import Ask
from egohieraloc.evaluation.run_vq2d import ClipAnswers, ClipSearch, Found
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.depth import read_depth_folder
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.types import Box, Floats, FramePrediction, NotLocalized

Find = Callable[[VisualQuery], Found]


@dataclass(frozen=True, eq=False)
class PlaceQuestion:
    """A VQ3D query and the VQ2D query behind it."""

    key: QueryKey
    scan_uid: str
    visual: VisualQuery


def place_questions(
    places: Iterable[PlaceQuery], visual: Mapping[QueryKey, VisualQuery]
) -> list[ClipQueries[PlaceQuestion]]:
    """VQ3D's queries by clip, each with its VQ2D query."""
    return group_by_clip(
        (
            ClipQueries(place.key.clip, place.video_uid, place.key.clip, visual[place.key].fps, ()),
            PlaceQuestion(place.key, place.scan_uid, visual[place.key]),
        )
        for place in places
    )


@dataclass(frozen=True, eq=False)
class Views:
    """The benchmark's files about the cameras."""

    poses: Path  # all_clips_camera_poses_*.json
    intrinsics: Path  # scan_to_intrinsics.json
    depth: Path | None = None  # <clip>/<frame>.png or .npy; without it rays from several frames must do

    def reconstruction(self, question: PlaceQuestion) -> Reconstruction | NotLocalized:
        """The camera path of the clip, in metres of the scan."""
        clip, visual = question.key.clip, question.visual
        poses = _poses_from(self.poses).get(clip)
        if poses is None:
            return NotLocalized("the pose file does not have this clip")
        sizes = {(c.width, c.height): c for c in _intrinsics_from(self.intrinsics).get(question.scan_uid, ())}
        lens = sizes.get((visual.width, visual.height))
        if lens is None:
            return NotLocalized(
                f"there are no intrinsics for scan {question.scan_uid!r} at {visual.width}x{visual.height}, "
                f"only for the sizes {sorted(sizes)}"
            )
        return _reconstruction(lens, poses, visual.fps)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlaceAnswers(ClipAnswers):
    """VQ3D. With `tracks` nothing is searched and no clip is opened."""

    benchmark = "vq3d"
    views: Views
    tracks: Mapping[QueryKey, TrackAnswer] | None = None  # by VQ2D query

    def has(self, clip: ClipQueries[PlaceQuestion]) -> bool:
        return self.tracks is not None or super().has(clip)

    def open(self, clip: ClipQueries[PlaceQuestion]) -> Ask:
        find = self._find(clip)
        return lambda question: self._answer(question, find)

    def _find(self, clip: ClipQueries[PlaceQuestion]) -> Find:
        tracks = self.tracks
        if tracks is not None:
            return lambda query: found_from_track(tracks.get(query.key), query.fps)
        queries = tuple(question.visual for question in clip.queries)
        return ClipSearch(self.system.localizer(), self.video(clip), queries, clip.fps).find

    def _answer(self, question: PlaceQuestion, find: Find) -> PlaceAnswer:
        world = self.views.reconstruction(question)
        if isinstance(world, NotLocalized):
            return PlaceAnswer(question.key, None, reason=world.reason)
        found = find(question.visual)
        return replace(self._placed(question, found, world), crop_sharpness=found.crop_sharpness)

    def _placed(self, question: PlaceQuestion, found: Found, world: Reconstruction) -> PlaceAnswer:
        key, visual, config = question.key, question.visual, self.system.config.place
        seen = found.predictions
        folder = None if self.views.depth is None else self.views.depth / key.clip
        frames = [p.frame_index for p in seen]
        depth = read_depth_folder(folder, frames) if folder is not None and folder.is_dir() else {}
        query_time_s = visual.query_frame / visual.fps
        there = place(seen, world, query_time_s=query_time_s, depth=depth, config=config)
        if not isinstance(there, NotLocalized):
            pose = np.vstack([world.poses[there.query_frame].cam_from_world, [0.0, 0.0, 0.0, 1.0]])
            return PlaceAnswer(key, there.point_world, there.displacement, pose)
        if seen:
            # Without a pose for the query camera, the point in the scan is still an answer.
            alone = place(seen, world, query_time_s=seen[-1].time_s, depth=depth, config=config)
            if not isinstance(alone, NotLocalized):
                return PlaceAnswer(key, alone.point_world, reason=there.reason)
        return PlaceAnswer(key, None, reason=there.reason)


def found_from_track(answer: TrackAnswer | None, fps: float) -> Found:
    """Anybody's boxes as predictions without masks."""
    if answer is None:
        return Found((), 0.0, None)
    track = answer.track
    scores = np.ones(len(track)) if answer.frame_scores is None else np.clip(answer.frame_scores, 0, 1)
    rows = zip(track.frames.tolist(), track.boxes_xyxy.tolist(), scores.tolist(), strict=True)
    predictions = tuple(FramePrediction(n, n, n / fps, score, Box(*box)) for n, box, score in rows)
    return Found(predictions, answer.score, answer.crop_sharpness, answer.reason)


def _reconstruction(lens: Intrinsics, poses: ClipPoses, fps: float) -> Reconstruction:
    params = (lens.focal, lens.center_x, lens.center_y, lens.k1, lens.k2)
    camera = Camera("RADIAL_FISHEYE", lens.width, lens.height, params)
    frames = tuple(
        PosedFrame(number, number / fps, _pose(matrix) if good else None)
        for number, (matrix, good) in enumerate(zip(poses.cam_from_world, poses.is_good, strict=True))
    )
    return Reconstruction(camera, frames, "m")


def _pose(matrix: Floats) -> CameraPose | None:
    """Some matrices that are marked good are no poses."""
    try:
        return CameraPose(matrix)
    except GeometryError:
        return None


@cache
def _poses_from(path: Path) -> dict[str, ClipPoses]:
    return read_clip_poses(path)


@cache
def _intrinsics_from(path: Path) -> dict[str, tuple[Intrinsics, ...]]:
    return read_intrinsics(path)
