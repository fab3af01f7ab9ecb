"""VQ3D's camera poses, our own: structure from motion over the clips, each in metres of its scan.

A clip becomes one file, `<clip>.npz`, with lens, poses and sparse points; the pose file has the benchmark's
format and names these. What structure from motion has found is kept under the name of its input, so that a
run that was stopped goes on where it was, and another alignment costs seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.config import SfmConfig
from egohieraloc.data.base import ClipQueries, group_by_clip
from egohieraloc.data.ego4d import clip_paths
from egohieraloc.data.ego4d_3d import POSES_PER_S, ClipPoses, PlaceQuery, read_clip_poses
from egohieraloc.errors import DataError, GeometryError, QueryError, VideoError
from egohieraloc.files import atomic_path
from egohieraloc.geometry.align import align_to_positions
from egohieraloc.geometry.given import TRAJECTORY
from egohieraloc.geometry.interpolate import TOLERANCE_S, TimedPath
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, cameras_to_json, load, save
from egohieraloc.geometry.reference import PosedImages, read_posed_images
from egohieraloc.geometry.sfm_process import Anchor
from egohieraloc.poses import camera_poses
from egohieraloc.types import Floats, Ints, NotLocalized
from egohieraloc.video.reader import Video

_NO_POSE = np.zeros((3, 4)).tolist()


@dataclass(frozen=True)
class PosedClip:
    """What became of a clip."""

    name: str
    num_frames: int = 0
    num_posed: int = 0
    reason: str = ""  # why it has no poses


def clips_to_pose(places: Iterable[PlaceQuery]) -> list[ClipQueries[PlaceQuery]]:
    """The clips of VQ3D, each with one query of its: they name its scan."""
    clips = group_by_clip(
        (ClipQueries(place.key.clip, place.video_uid, place.key.clip, POSES_PER_S, ()), place)
        for place in places
    )
    return [replace(clip, queries=clip.queries[:1]) for clip in clips]


@dataclass(frozen=True, eq=False, kw_only=True)
class PoseClips:
    """Finds the poses of clips, in any process; it writes into `out`."""

    clips: Path
    out: Path
    sfm: SfmConfig
    scans: Path | None = None  # <scan>/: images of the scan and where they were taken
    known: Path | None = None  # a pose file with some frames of the clips
    max_gap_s: float = 0.0  # between posed frames no further apart the others are interpolated

    @contextmanager
    def __call__(self, clip: ClipQueries[PlaceQuery]) -> Iterator[Callable[[PlaceQuery], PosedClip]]:
        yield lambda place: self.pose(clip.name, place.scan_uid)

    def pose(self, name: str, scan_uid: str) -> PosedClip:
        """Write the clip's file; a clip that gives none says why."""
        try:
            path = map_path(self.out, name)
            found = self._reconstruction(name, scan_uid)
        except (DataError, GeometryError, QueryError, VideoError) as error:
            return PosedClip(name, reason=str(error))
        if isinstance(found, NotLocalized):
            return PosedClip(name, found.num_frames, reason=found.reason)
        if not found.num_posed:
            return PosedClip(name, len(found.frames), reason="no frame has a reliable camera pose")
        save(path, found)
        return PosedClip(name, len(found.frames), found.num_posed)

    def _reconstruction(self, name: str, scan_uid: str) -> Reconstruction | NotLocalized:
        file, frames = clip_paths(self.clips, name)
        video = Video.open(file if file.exists() else frames, folder_fps=POSES_PER_S)
        shown = video.shown_every(POSES_PER_S)
        anchors = self._anchors(scan_uid)
        found = camera_poses(video, np.unique(shown), self.out, self.sfm, anchors=anchors)
        if isinstance(found, NotLocalized):
            return found
        found = as_annotated(found, shown)
        if found.unit != "m":
            found, _ = align_to_positions(found, self._positions(name), max_error=self.sfm.anchor_error_m)
        return interpolated(found, self.max_gap_s)

    def _anchors(self, scan_uid: str) -> Sequence[Anchor]:
        if self.scans is None:
            return ()
        folder = self.scans / scan_uid
        if not scan_uid or not folder.is_dir():
            if self.known is not None:
                return ()
            raise DataError(f"There are no images of the scan {scan_uid!r}: there is no folder {folder}.")
        return self._read_images(folder).anchors

    def _positions(self, name: str) -> Mapping[int, Floats]:
        """Where the camera is known to have been; for the alignment of what no image of the scan has tied."""
        known = self._known.get(name)
        if known is None:
            images = "too few images of its scan could be registered into its map"
            missing = f"{self.known} does not have the clip"
            tried = [(self.scans, images), (self.known, missing)]
            raise GeometryError(f"Not aligned: {', and '.join(why for given, why in tried if given)}.")
        rotation, translation = known.cam_from_world[:, :, :3], known.cam_from_world[:, :, 3]
        centers = -np.einsum("nji,nj->ni", rotation, translation)  # of a matrix that is no pose: an outlier
        return {frame: centers[frame] for frame in np.flatnonzero(known.is_good).tolist()}

    @cached_property
    def _read_images(self) -> Callable[[Path], PosedImages]:
        return lru_cache(maxsize=1)(read_posed_images)  # of the scan of the clips in work

    @cached_property
    def _known(self) -> dict[str, ClipPoses]:
        return {} if self.known is None else read_clip_poses(self.known)


def as_annotated(found: Reconstruction, shown: Ints) -> Reconstruction:
    """With the annotation's count of frames: its frame n is the file's frame `shown[n]`."""
    poses = {frame.index: frame.pose for frame in found.frames}
    frames = tuple(PosedFrame(n, n / POSES_PER_S, poses.get(i)) for n, i in enumerate(shown.tolist()))
    files, first = np.unique(shown, return_index=True)
    numbers = first[np.searchsorted(files, found.points.frame)]
    return replace(found, frames=frames, points=replace(found.points, frame=numbers))


def interpolated(found: Reconstruction, max_gap_s: float) -> Reconstruction:
    """With poses for the frames between two posed ones that are at most `max_gap_s` apart."""
    posed = [(frame.time_s, frame.pose) for frame in found.frames if frame.pose is not None]
    others = [frame for frame in found.frames if frame.pose is None]
    if not posed or not others or max_gap_s <= 0:
        return found
    matrices = np.stack([TRAJECTORY.matrix(pose) for _, pose in posed])
    path = TimedPath.sorted(np.array([time_s for time_s, _ in posed]), matrices)
    times_s = np.array([frame.time_s for frame in others])
    between, known = path.at(times_s, max_gap_s=max_gap_s + TOLERANCE_S)
    made = {
        frame.index: TRAJECTORY.pose(matrix)
        for frame, matrix, there in zip(others, between, known.tolist(), strict=True)
        if there
    }
    frames = tuple(replace(frame, pose=made.get(frame.index, frame.pose)) for frame in found.frames)
    return replace(found, frames=frames)


def map_path(folder: Path, name: str) -> Path:
    """The file of a clip; names come from annotation files and must stay in the folder."""
    if Path(name).name != name:
        raise DataError(f"The clip's id {name!r} cannot name a file.")
    return folder / f"{name}.npz"


def write_pose_file(path: Path, folder: Path, posed: Iterable[PosedClip]) -> None:
    """The benchmark's format, `camera_poses` (3x4, camera from scan) and `good_poses`; and for each clip its
    camera and its `map`, or the `reason` why it has none."""
    content = {clip.name: _record(clip, path, folder) for clip in posed}
    text = json.dumps(content, allow_nan=False)
    with atomic_path(path, durable=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _record(clip: PosedClip, path: Path, folder: Path) -> dict[str, Any]:
    if clip.reason:
        return {"good_poses": [], "camera_poses": [], "reason": clip.reason}
    found = load(map_path(folder, clip.name))
    return {
        "good_poses": [frame.pose is not None for frame in found.frames],
        "camera_poses": [
            _NO_POSE if frame.pose is None else frame.pose.cam_from_world.tolist() for frame in found.frames
        ],
        "camera": cameras_to_json(found)["camera"],
        "map": map_path(folder, clip.name).relative_to(path.parent).as_posix(),
    }
