"""Live use: frames are pushed as they come, and a query may come at any moment.

A session records into a folder: the frames as JPEG with their times, which `Video.open` reads as it reads any
folder of images, and their features. So an answer can be saved, reported and placed like any other.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from threading import Lock

import numpy as np

from egohieraloc.errors import VideoError
from egohieraloc.files import scratch_folder
from egohieraloc.images import write_image
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.encoded import EncodedVideo, write_features
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.types import Rgb, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.folder import TIMES
from egohieraloc.video.letterbox import Letterbox

RATE_SLACK = 0.1  # a camera's clock jitters


class LiveVideo:
    """What has been seen so far, in a temporary folder: memory stays small for hours."""

    def __init__(self, predictor: Predictor, *, fps: float | None = None, back: bool = False) -> None:
        """`back`: get ready for questions that look back."""
        if fps is not None and not (math.isfinite(fps) and fps > 0):
            raise VideoError(f"A rate must be a positive number of frames a second, got {fps}.")
        self._predictor, self._back = predictor, back
        self._least_gap_s = 0.0 if fps is None else (1 - RATE_SLACK) / fps
        self._folder = scratch_folder()
        self._frames = Path(self._folder.name) / "frames"
        self._frames.mkdir()
        self._store = FeatureStore(Path(self._folder.name) / "features")
        self._memory = RegionMemory(Path(self._folder.name) / "memory")
        self._open: list[PackedFeatures] = []  # the stretch that is not full yet
        self._times: list[float] = []
        self._letterbox: Letterbox | None = None
        self._closed = False
        self._turn = Lock()  # a camera's thread may add while another asks

    def add(self, rgb: Rgb, time_s: float) -> bool:
        """Push the next frame; whether it was kept. Times must increase and the size must stay."""
        with self._turn:
            return self._add(rgb, time_s)

    def _add(self, rgb: Rgb, time_s: float) -> bool:
        self._check_open()
        self._check_time(time_s)
        letterbox = self._checked_letterbox(rgb)
        if self._letterbox is None:
            self._predictor.prepare_encoding(letterbox)
            self._predictor.prepare_search(letterbox, back=self._back)
        if self._times and time_s - self._times[-1] < self._least_gap_s:
            return False
        number = len(self._times)
        packed = self._predictor.encode([letterbox.apply(rgb)])
        write_image(self._frames / f"{number:07d}.jpg", rgb)
        stretch = [*self._open, packed]
        if len(stretch) == STRETCH:
            start = number + 1 - STRETCH
            write_features(PackedFeatures.cat(stretch), self._store, self._memory, start=start)
            stretch = []
        with (self._frames / TIMES).open("a", encoding="ascii") as file:
            file.write(f"{float(time_s)!r}\n")
        # Last, so that a frame that could not be kept may be pushed again.
        self._open, self._letterbox = stretch, letterbox
        self._times.append(float(time_s))
        return True

    def encoded(self) -> EncodedVideo:
        """All frames so far, ready to be searched. `frame_index` counts pushed frames."""
        with self._turn:
            return self._encoded()

    def _encoded(self) -> EncodedVideo:
        self._check_open()
        if self._letterbox is None:
            raise VideoError("No frame has been pushed yet: add one before asking.")
        if self._open:
            start = len(self._times) - len(self._open)
            write_features(PackedFeatures.cat(self._open), self._store, start=start)
        times_s, count = np.array(self._times), len(self._times)
        rate = float(count - 1) / float(times_s[-1] - times_s[0]) if count > 1 else 1.0
        fps = max(Fraction(rate).limit_denominator(1000), Fraction(1, 1000))
        info = VideoInfo(*self._letterbox.frame_size, fps, count)
        source = VideoSource(str(self._frames), float(fps))
        sampled = SampledVideo(source, info, float(fps), np.arange(count), times_s)
        return EncodedVideo(sampled, self._letterbox, self._store, memory=self._memory)

    def close(self) -> None:
        with self._turn:
            self._folder.cleanup()
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise VideoError("This live session was closed: start another with `localizer.live()`.")

    def _check_time(self, time_s: float) -> None:
        if not (math.isfinite(time_s) and (not self._times or time_s > self._times[-1])):
            last = f" after {self._times[-1]} s" if self._times else ""
            raise VideoError(f"Frames must come in order: wanted a time{last}, got {time_s} s.")

    def _checked_letterbox(self, rgb: Rgb) -> Letterbox:
        if not isinstance(rgb, np.ndarray):
            raise VideoError(f"A frame must be an array (H, W, 3), got {type(rgb).__name__}.")
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0 or rgb.dtype != np.uint8:
            raise VideoError(f"A frame must be 8-bit RGB (H, W, 3), got {rgb.dtype} of {rgb.shape}.")
        size = rgb.shape[1], rgb.shape[0]
        if self._letterbox is None:
            return self._predictor.letterbox(*size)
        if self._letterbox.frame_size != size:
            width, height = self._letterbox.frame_size
            raise VideoError(f"Frames must keep their size {width}x{height}, got {size[0]}x{size[1]}.")
        return self._letterbox
