"""Segments of a camera: short videos, each under its own starting time, whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.error import FFmpegError

from egohieraloc.errors import OutputError
from egohieraloc.files import to_disk
from egohieraloc.memory.camera import CameraFrame

UNFINISHED = ".unfinished"  # ending of a segment in work
TICKS = 1000  # a second, in a segment
OPTIONS: dict[str, object] = {"crf": "21", "preset": "veryfast"}


class Segment:
    """A video that grows by a frame at a time and is there once it is closed."""

    def __init__(self, folder: Path, first: CameraFrame, fps: float) -> None:
        self.start = first.time
        self._path = folder / segment_name(first.time)
        self._temporary = self._path.with_name(f"{self._path.stem}{UNFINISHED}")
        self._size = first.rgb.shape
        self._last_tick = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._container: Any = av.open(str(self._temporary), "w", format="mp4")
        except OSError as error:
            raise OutputError(f"Cannot record into {folder}: {error}.") from error
        # Also makes segments differ that show the same, such as darkness.
        self._container.metadata["creation_time"] = first.time.astimezone(UTC).isoformat()
        self._stream = self._container.add_stream("h264", rate=Fraction(fps).limit_denominator(1000))
        self._stream.height, self._stream.width = (side - side % 2 for side in self._size[:2])
        self._stream.pix_fmt, self._stream.time_base = "yuv420p", Fraction(1, TICKS)
        self._stream.codec_context.time_base = Fraction(1, TICKS)
        self._stream.options = OPTIONS
        self.add(first)

    def fits(self, frame: CameraFrame, length_s: float) -> bool:
        """Whether a frame still belongs to this segment: by its size and its time."""
        return frame.rgb.shape == self._size and 0 < (frame.time - self.start).total_seconds() < length_s

    def add(self, frame: CameraFrame) -> None:
        tick = max(round((frame.time - self.start).total_seconds() * TICKS), self._last_tick + 1)
        self._last_tick = tick
        even = frame.rgb[: self._stream.height, : self._stream.width]
        image = av.VideoFrame.from_ndarray(even, format="rgb24")
        image.pts, image.time_base = tick, Fraction(1, TICKS)
        with self._writing():
            self._container.mux(self._stream.encode(image))

    def close(self) -> Path:
        """Finish the file, wait until it is on the disk and give it its name."""
        with self._writing():
            self._container.mux(self._stream.encode())
            self._container.close()
            to_disk(self._temporary)
            self._temporary.replace(self._path)
            to_disk(self._path.parent)
        return self._path

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What cannot be written leaves nothing behind."""
        try:
            yield
        except (OSError, FFmpegError) as error:
            with suppress(OSError, FFmpegError):
                self._container.close()
            self._temporary.unlink(missing_ok=True)
            raise OutputError(f"Cannot record to {self._path}: {error}. Is the disk full?") from error


def segment_name(start: datetime) -> str:
    """The start in UTC, which `wall_clock` reads again."""
    return f"{start.astimezone(UTC):%Y%m%dT%H%M%S}.{start.microsecond // 1000:03d}Z.mp4"
