"""A Localizer for a memory that finds the red square of every clip at 2 to 3 seconds, without a network."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from fake_localizer import _track

from egohieraloc.config import SearchConfig
from egohieraloc.errors import QueryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.store import FeatureStore
from egohieraloc.progress import Progress, no_progress
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Localization3D, NotFound, SampledVideo, ScoreCurve
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

UPRIGHT = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # looks along y, z up


@dataclass(frozen=True)
class FakeMemoryLocalizer:
    """Of more than two views it finds nothing; it fails for a blue one; the file `hold` keeps it busy."""

    cache: Path
    predictor: ClassVar[Any] = SimpleNamespace(
        config=SimpleNamespace(input_size=64), features_fingerprint="fake", engine="torch"
    )
    config: ClassVar[Any] = SimpleNamespace(search=SearchConfig(fps=5.0))

    def encode(self, video: Video, *, progress: Progress = no_progress) -> EncodedVideo:
        sampled = video.sampled(5.0)
        for _ in video.frames(sampled.frame_index):
            progress("encode", 1, 1)
        return self.reopen(sampled, video.content_hash)

    def reopen(self, sampled: SampledVideo, key: str) -> EncodedVideo:
        letterbox = Letterbox(sampled.info.width, sampled.info.height, 64)
        return EncodedVideo(sampled, letterbox, FeatureStore.of(self.cache, key))

    def ask(self, query: Query, encoded: EncodedVideo, *, progress: Progress = no_progress) -> Result:
        while (self.cache / "hold").exists():
            progress("decode", 1, 2)
            time.sleep(0.02)
        if query.image[..., 2].mean() > 200:
            raise QueryError("There is something wrong with this query.")
        smooth = np.full(len(encoded), 0.1)
        curve = ScoreCurve(encoded.time_s, smooth, smooth, 0.5)
        track = _track(10, 15, 0.87)
        if len(query.views) > 2 or len(encoded) < 16:
            return Result(query, encoded.video, NotFound("Nothing looks like it.", 0.1), curve)
        return Result(query, encoded.video, track, curve)

    def place(self, result: Result, space: None = None, *, progress: Progress = no_progress) -> Result:
        """Two metres before a camera that walks along x."""
        progress("poses: mapping", 1, 2)
        frames = tuple(
            PosedFrame(int(index), float(time_s), CameraPose.from_rotation(UPRIGHT, [-time_s, 1.6, 0]))
            for index, time_s in zip(result.video.frame_index, result.video.time_s, strict=True)
        )
        info = result.video.info
        lens = Camera("PINHOLE", info.width, info.height, (60.0, 60.0, info.width / 2, info.height / 2))
        point, seen = np.array([1.0, 2.0, 0.9]), np.array([0.0, 0.7, 2.0])
        last = int(result.video.frame_index[-1])
        found = Localization3D(point, seen, np.eye(3) / 100, "m", last, len(frames), len(frames), ())
        return replace(result, place=found, cameras=Reconstruction(lens, frames, "m"))
