"""Depth as devices write it: folders of images matched to frames by name, number or time; VRS files.

16-bit images hold millimetres, EXR and NumPy files metres; all are along z and metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.depth import read_depth
from egohieraloc.geometry.given import FrameTable, time_in_name
from egohieraloc.geometry.interpolate import TOLERANCE_S
from egohieraloc.types import DepthMap, DepthUnit, Ints
from egohieraloc.vrs import GEN1_TURNS, SUFFIX, open_vrs, quiet

ENDINGS = (".png", ".tif", ".tiff", ".exr", ".npy")
ADT_STREAM = "345-1"  # depth of the colour camera in the data set ADT


@dataclass(frozen=True, eq=False)
class DepthFolder:
    """The depth image of each frame that has one."""

    file_of_frame: Mapping[int, Path]

    @classmethod
    def open(cls, folder: Path, frames: FrameTable) -> DepthFolder:
        try:
            files = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
        except OSError as error:
            raise GeometryError(f"Cannot read depth maps from {folder}: {error}.") from error
        found = _by_name(files, frames) or _by_number(files, frames) or _by_time(files, frames)
        if not found:
            have = f"its first is {files[0].name}" if files else f"it holds no {', '.join(ENDINGS)}"
            raise GeometryError(
                f"No depth map in {folder} belongs to a frame: {have}. Name them as the images, by frame "
                f"number (000012.png), or by a time within {TOLERANCE_S:g} s of the frame's."
            )
        return cls(found)

    def __call__(self, indices: Sequence[int]) -> dict[int, DepthMap]:
        """The maps of these frames, where there are any."""
        return {i: read_depth(self.file_of_frame[i]) for i in indices if i in self.file_of_frame}


@dataclass(frozen=True, eq=False)
class DepthRecording:
    """The depth of the colour camera in a VRS file of the data set ADT, for a recording's frames."""

    path: Path
    device_ns: Ints  # (F,) capture time of each frame

    def __call__(self, indices: Sequence[int]) -> dict[int, DepthMap]:
        from projectaria_tools.core.sensor_data import TimeDomain
        from projectaria_tools.core.stream_id import StreamId

        provider = open_vrs(self.path)
        stream = StreamId(ADT_STREAM)
        if stream not in provider.get_all_streams():
            raise GeometryError(f"{self.path} holds no depth of the colour camera (stream {ADT_STREAM}).")
        with quiet():
            stamps = np.array(provider.get_timestamps_ns(stream, TimeDomain.DEVICE_TIME), np.int64)
        found: dict[int, DepthMap] = {}
        for index in indices:
            nearest = int(np.abs(stamps - self.device_ns[index]).argmin())
            if abs(int(stamps[nearest] - self.device_ns[index])) <= TOLERANCE_S * 1e9:
                with quiet():
                    millimetres = provider.get_image_data_by_index(stream, nearest)[0].to_numpy_array()
                upright = np.rot90(millimetres, -GEN1_TURNS).astype(np.float32)
                found[index] = DepthMap(upright / 1000, DepthUnit.METRIC)
        return found


def depth_of_device(path: Path, frames: FrameTable, device_ns: Ints | None) -> DepthFolder | DepthRecording:
    """Depth maps from a folder, or with an Aria recording from a VRS file."""
    if path.suffix.lower() != SUFFIX:
        return DepthFolder.open(path, frames)
    if device_ns is None:
        raise GeometryError(f"{path} is depth of an Aria recording: give the recording (.vrs) as the video.")
    return DepthRecording(path, device_ns)


def _by_name(files: Sequence[Path], frames: FrameTable) -> dict[int, Path]:
    frame_of_stem = {_plain(Path(name).stem): index for index, name in enumerate(frames.names)}
    return {frame_of_stem[_plain(path.stem)]: path for path in files if _plain(path.stem) in frame_of_stem}


def _by_number(files: Sequence[Path], frames: FrameTable) -> dict[int, Path]:
    count = len(frames.times_s)
    return {int(path.stem): path for path in files if path.stem.isdecimal() and int(path.stem) < count}


def _by_time(files: Sequence[Path], frames: FrameTable) -> dict[int, Path]:
    """Files called by their time; each frame takes the nearest one that is near enough."""
    timed = [(time_s, path) for path in files if (time_s := time_in_name(path.name)) is not None]
    if not timed:
        return {}
    times_s = np.array([time_s for time_s, _ in timed])
    best: dict[int, Path] = {}
    for clock in frames.clocks():
        nearest = np.abs(times_s[None] - clock[:, None]).argmin(1)
        near = np.abs(times_s[nearest] - clock) <= TOLERANCE_S
        if near.sum() > len(best):
            best = {i: timed[nearest[i]][1] for i in np.flatnonzero(near).tolist()}
    return best


def _plain(stem: str) -> str:
    return str(int(stem)) if stem.isdecimal() else stem
