"""A recording of Project Aria glasses as a video: upright colour images of Gen 1 and 2, at capture time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from egohieraloc.errors import VideoError
from egohieraloc.types import Floats, Ints, Rgb, VideoInfo
from egohieraloc.vrs import RGB, open_vrs, quarter_turns, quiet, rgb_stream

DIAGONAL_35MM = math.hypot(36, 24)
FIRST_GLASSES = datetime(2019, 1, 1, tzinfo=UTC)  # a clock that says less was never set


@dataclass(frozen=True, eq=False)
class AriaRecording:
    """The RGB stream of a VRS file."""

    path: Path
    info: VideoInfo
    times_s: Floats
    device_ns: Ints  # (num_frames,) capture time by the clock of the device, which its trajectories use
    started_at: datetime | None  # of the first image, where the glasses knew the time of day
    turns: int  # quarter turns clockwise that make the images upright

    @classmethod
    def open(cls, path: Path) -> AriaRecording:
        provider = open_vrs(path)
        stream = rgb_stream(provider, path)
        from projectaria_tools.core.sensor_data import TimeDomain

        stamps = np.array(provider.get_timestamps_ns(stream, TimeDomain.DEVICE_TIME), np.int64)
        times_s = (stamps - stamps[0]) / 1e9
        if (np.diff(times_s) <= 0).any():
            raise VideoError(f"The images of {path} are not in order of time. Is the file complete?")
        settings, turns = provider.get_image_configuration(stream), quarter_turns(provider)
        size = (int(settings.image_width), int(settings.image_height))
        width, height = size[::-1] if turns % 2 else size
        rate = (len(times_s) - 1) / times_s[-1] if len(times_s) > 1 else float(settings.nominal_rate_hz)
        info = VideoInfo(width, height, Fraction(rate).limit_denominator(1000), len(times_s))
        return cls(path, info, times_s, stamps, _started_at(provider, stream, TimeDomain), turns)

    def content_hash(self) -> str:
        """By the file's size, its tags (among them the session's own number) and the times of its images."""
        tags = open_vrs(self.path).get_file_tags()
        digest = hashlib.blake2b(f"vrs of {self.path.stat().st_size} bytes".encode(), digest_size=16)
        for key in sorted(tags):
            digest.update(f"{key}\0{tags[key]}\0".encode())
        digest.update(self.device_ns.tobytes())
        return digest.hexdigest()

    def focal_35mm(self) -> float | None:
        """Of the calibrated lens."""
        calibration = open_vrs(self.path).get_device_calibration()
        lens = calibration and calibration.get_camera_calib(RGB)
        if lens is None:
            return None
        return float(lens.get_focal_lengths()[0]) / math.hypot(*lens.get_image_size()) * DIAGONAL_35MM

    def read(
        self, indices: Sequence[int], *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Rgb]]:
        """The upright images of these numbers, scaled to `size` (width and height) where one is given."""
        provider = open_vrs(self.path)
        stream = rgb_stream(provider, self.path)
        for index in indices:
            with quiet():
                image, _ = provider.get_image_data_by_index(stream, index)
                rgb = image.to_numpy_array() if image.is_valid() else None
            if rgb is not None:
                upright = np.ascontiguousarray(np.rot90(rgb, -self.turns))
                yield (
                    index,
                    upright if size is None else cv2.resize(upright, size, interpolation=cv2.INTER_AREA),
                )


def _started_at(provider: Any, stream: Any, domains: Any) -> datetime | None:
    """By the clock that was recorded with the images, else by the time in the file's tags."""
    clock_s = math.nan
    if provider.supports_time_domain(stream, domains.UTC):
        clock_s = provider.get_first_time_ns(stream, domains.UTC) / 1e9
    for seconds in (clock_s, provider.get_file_tags().get("capture_time_epoch", "nan")):
        value = float(seconds)
        if value > FIRST_GLASSES.timestamp():
            return datetime.fromtimestamp(value, UTC)
    return None
