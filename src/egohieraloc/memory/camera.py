"""Frames of a camera as they come, by the wall clock: a device, a network stream, or a file in its stead.

A camera that goes away is waited for; a file ends.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import av
from av.error import FFmpegError

from egohieraloc.errors import VideoError
from egohieraloc.memory.wall_clock import start_of
from egohieraloc.types import Rgb
from egohieraloc.video.reader import Video

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between attempts to connect
SILENCE_S = 20.0  # after which a stream counts as gone
RATE_SLACK = 0.1  # a camera's clock jitters
DEVICES = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}  # FFmpeg's name of a system's cameras


@dataclass(frozen=True, eq=False)
class CameraFrame:
    """One frame and when it was seen."""

    time: datetime
    rgb: Rgb


Told = Callable[[str, str], None]  # what happened, and why: "connected", "disconnected"


@dataclass(frozen=True)
class Camera:
    """A number or path of a device, a URL, or a file."""

    source: str

    @property
    def is_file(self) -> bool:
        """Whether it ends; devices and streams do not."""
        return Path(self.source).is_file() or Path(self.source).is_dir()

    @property
    def name(self) -> str:
        """A name for it that is fit for a folder, without passwords."""
        parts = urlsplit(self.source)
        plain = f"{parts.hostname}{parts.path}" if parts.hostname else Path(self.source).stem
        return re.sub(r"[^\w-]+", "_", plain).strip("_") or "camera"

    def frames(self, fps: float, stop: threading.Event, told: Told) -> Iterator[CameraFrame]:
        """At most `fps` frames a second until the file ends or `stop` is set."""
        return self._of_file(fps, stop) if self.is_file else self._of_stream(fps, stop, told)

    def _of_file(self, fps: float, stop: threading.Event) -> Iterator[CameraFrame]:
        video = Video.open(self.source)
        start = start_of(video).time
        for frame in video.samples(fps):
            if stop.is_set():
                return
            yield CameraFrame(start + timedelta(seconds=frame.time_s), frame.rgb)

    def _of_stream(self, fps: float, stop: threading.Event, told: Told) -> Iterator[CameraFrame]:
        pause_s, last = FIRST_PAUSE_S, datetime.min.replace(tzinfo=UTC)
        least_gap = timedelta(seconds=(1 - RATE_SLACK) / fps)
        while not stop.is_set():
            reason = "it ended"
            try:
                with self._opened() as container:
                    told("connected", "")
                    for frame in container.decode(video=0):
                        now = datetime.now(UTC)
                        if stop.is_set():
                            return
                        if now - last >= least_gap:
                            last, pause_s = now, FIRST_PAUSE_S
                            yield CameraFrame(now, frame.to_ndarray(format="rgb24"))
            except (FFmpegError, OSError) as error:
                reason = error.strerror or type(error).__name__  # not its text: that may hold a password
            told("disconnected", reason)
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _opened(self) -> Any:
        device = Path(f"/dev/video{self.source}") if self.source.isdecimal() else Path(self.source)
        if self.source.isdecimal() or str(device).startswith("/dev/"):
            kind = DEVICES.get(sys.platform, "v4l2")
            return av.open(str(device) if kind == "v4l2" else self.source, format=kind, timeout=SILENCE_S)
        if "://" not in self.source:
            raise VideoError(f"{self.source} is neither a file nor a camera. Give /dev/video0, 0, or a URL.")
        options = {"rtsp_transport": "tcp"} if self.source.startswith("rtsp") else {}
        return av.open(self.source, options=options, timeout=SILENCE_S)
