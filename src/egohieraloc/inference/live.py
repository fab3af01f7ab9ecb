"""Live use: frames are pushed as they come, and a question may be asked at any moment."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np

from egohieraloc.errors import VideoError
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.search import EncodedVideo
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.types import Rgb
from egohieraloc.video.letterbox import Letterbox


class LiveVideo:
    """What has been seen so far. Features go to a temporary folder, so memory stays small for hours."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._folder = tempfile.TemporaryDirectory(prefix="egohieraloc-live-")
        self._store = FeatureStore(Path(self._folder.name))
        self._open: list[PackedFeatures] = []  # the chunk that is not full yet
        self._times: list[float] = []
        self.letterbox: Letterbox | None = None

    def add(self, rgb: Rgb, time_s: float) -> None:
        """Push the next frame. Times must increase and the size must stay."""
        if not (math.isfinite(time_s) and (not self._times or time_s > self._times[-1])):
            last = f" after {self._times[-1]} s" if self._times else ""
            raise VideoError(f"Frames must come in order: wanted a time{last}, got {time_s} s.")
        if not isinstance(rgb, np.ndarray):
            raise VideoError(f"A frame must be an array (H, W, 3), got {type(rgb).__name__}.")
        if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0 or rgb.dtype != np.uint8:
            raise VideoError(f"A frame must be 8-bit RGB (H, W, 3), got {rgb.dtype} of {rgb.shape}.")
        height, width = rgb.shape[:2]
        if self.letterbox is None:
            self.letterbox = Letterbox(width, height, self._predictor.config.input_size)
        if (self.letterbox.width, self.letterbox.height) != (width, height):
            raise VideoError(
                f"Frames must keep their size {self.letterbox.width}x{self.letterbox.height}, "
                f"got {width}x{height}."
            )
        number = len(self._times)
        packed = self._predictor.encode([self.letterbox.apply(rgb)], np.array([number]), np.array([time_s]))
        chunk = [*self._open, packed]
        if len(chunk) == CHUNK:
            self._store.write(number // CHUNK, PackedFeatures.cat(chunk))
            chunk = []
        self._open = chunk  # last, so that a frame that could not be kept may be pushed again
        self._times.append(float(time_s))

    def encoded(self) -> EncodedVideo:
        """All frames so far, ready to be searched. `frame_index` counts pushed frames."""
        if self._open:
            self._store.write(len(self._times) // CHUNK, PackedFeatures.cat(self._open))
        return EncodedVideo(self._store, np.arange(len(self._times)), np.array(self._times))

    def close(self) -> None:
        self._folder.cleanup()
