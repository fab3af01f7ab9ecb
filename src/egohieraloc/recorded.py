"""Camera poses that a device or another program gives for a video, instead of structure from motion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from egohieraloc.geometry.cameras_from import read_given
from egohieraloc.geometry.convention import checked
from egohieraloc.geometry.formats.aria import aria_cameras, is_mps_trajectory
from egohieraloc.geometry.given import FrameTable, GivenCameras, fitted_to, gaps, matched
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.video.aria import AriaRecording
from egohieraloc.video.folder import Folder
from egohieraloc.video.reader import Video


@dataclass(frozen=True, kw_only=True)
class CameraOptions:
    """What a file of camera poses may leave open."""

    intrinsics: Path | None = None  # the lens, for trajectories
    time_offset_s: float = 0.0  # the time of the poses' clock at the start of the video
    unit: Literal["m", "sfm"] | None = None  # instead of the format's own


def cameras_for(
    video: Video, path: Path, options: CameraOptions | None = None
) -> tuple[Reconstruction, tuple[str, ...]]:
    """The poses of a video's frames from any known file, checked by what the frames show; and words on it."""
    options = options or CameraOptions()
    given = _aria(video, path) or read_given(path, options.intrinsics)
    given = replace(given, unit=options.unit or given.unit)
    table = frame_table(video)
    if options.time_offset_s:
        table = replace(table, times_s=table.times_s + options.time_offset_s)
    given, words = checked(given, table, video.frames)
    found = _for_frames(given, table, video)
    return found, (words, gaps(found))


def recorded_cameras(video: Video) -> Reconstruction | None:
    """Poses that belong to the recording itself and need not be given: those of Project Aria's glasses."""
    if not isinstance(video.backend, AriaRecording):
        return None
    given = aria_cameras(video.path, video.backend.device_ns)
    return None if given is None else _for_frames(given, frame_table(video), video)


def frame_table(video: Video) -> FrameTable:
    names = tuple(image.name for image in video.backend.images) if isinstance(video.backend, Folder) else ()
    return FrameTable(video.times_s, names)


def _for_frames(given: GivenCameras, table: FrameTable, video: Video) -> Reconstruction:
    found = matched(given, table)
    fitted_to(found.camera, video.info.width, video.info.height)  # refuses another shape
    frames = tuple(
        replace(frame, time_s=float(time_s))
        for frame, time_s in zip(found.frames, video.times_s, strict=True)
    )
    return replace(found, frames=frames).resized(video.info.width, video.info.height)


def _aria(video: Video, path: Path) -> GivenCameras | None:
    """A trajectory of MPS is of the device: only the recording knows the lens."""
    if not isinstance(video.backend, AriaRecording) or not path.is_file():
        return None
    with path.open("rb") as stream:
        head = stream.read(4096).decode("utf-8", errors="replace")
    return aria_cameras(video.path, video.backend.device_ns, path) if is_mps_trajectory(head) else None
