"""A Localizer that finds objects at once, or when told to, without a network."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np

from egohieraloc.errors import QueryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.progress import Progress, no_progress
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import (
    Box,
    FramePrediction,
    Localization3D,
    NotFound,
    NotLocalized,
    QueryMask,
    ResponseTrack,
    SampledVideo,
    ScoreCurve,
    ViewEvidence,
)
from egohieraloc.video.reader import Video

WIDTH, HEIGHT, FPS, FRAMES = 160, 120, 10, 40


@dataclass(frozen=True)
class FakeLocalizer:
    """Finds the object at 2.0 to 3.0 s, and with less confidence at 0.6 to 1.0 s; in 3D at 2.2 m.

    Files in `switches` change what it does: `hold` keeps it busy in the stage it names (or `decode`), `die`
    ends its process, `fail` makes it fail, `miss` and `lost` let it find nothing, in 2D and in 3D. It writes
    `encoded-...` and `posed-...` once it knows a video.
    """

    switches: Path
    step_s: float = 0.0

    def locate(
        self,
        query: Query,
        video: str | Path,
        *,
        until_s: float | None = None,
        in_3d: bool = False,
        space: Any = None,
        progress: Progress = no_progress,
    ) -> Result:
        if (self.switches / "die").exists():
            os._exit(3)
        if (self.switches / "fail").exists():
            raise QueryError(f"There is something wrong with {video}.")
        source = Video.open(video)
        indices = source.sample_indices(5.0, until_s=math.inf if until_s is None else until_s)
        self._work_once(f"encoded-{source.content_hash}", "encode", len(indices), progress)
        self._work("decode", 2, progress)
        times_s = source.times_s[indices]
        smooth = np.where((times_s > 1.9) & (times_s < 3.1), 0.9, 0.05)
        smooth[(times_s > 0.5) & (times_s < 1.1)] = 0.6
        curve = ScoreCurve(times_s, smooth, smooth, 0.5, ((3, 5), (10, 15)))
        sampled = source.sampled(5.0, indices=indices)
        tracks = _track(10, 15, 0.87), _track(3, 5, 0.6)
        if (self.switches / "miss").exists():
            return Result(query, sampled, NotFound("Nothing looks like it.", 0.2), curve, tracks[:1])
        result = Result(query, sampled, tracks[0], curve, tracks[1:])
        if space is not None:
            (self.switches / f"height-{space.reference.height_m}").touch()
        if not in_3d:
            return result
        self._work_once(f"posed-{source.content_hash}", "poses: matching", 4, progress)
        if (self.switches / "lost").exists():
            return replace(result, place=NotLocalized(f"its last words are in {video}.work/log.txt", 0, 20))
        other = replace(_place(), displacement=np.array([1.0, 0.0, 2.0]))
        others = (other,) if result.alternatives else ()
        return replace(result, place=_place(), alternative_places=others, cameras=_cameras(sampled))

    def foreground(self, query: Query) -> QueryMask:
        """The left half of the box."""
        mask = np.zeros((4, 4), np.uint8)
        mask[:, :2] = 255
        return QueryMask(mask, query.box, 0.9, 0)

    def _work_once(self, name: str, stage: str, steps: int, progress: Progress) -> None:
        done = self.switches / name
        if not done.exists():
            self._work(stage, steps, progress)
            done.touch()

    def _work(self, stage: str, steps: int, progress: Progress) -> None:
        hold = self.switches / "hold"
        for step in range(1, steps + 1):
            progress(stage, step, steps)
            time.sleep(self.step_s)
            while step == steps // 2 and hold.exists() and (hold.read_text() or "decode") == stage:
                progress(stage, step, steps)
                time.sleep(0.02)


def _place() -> Localization3D:
    point = np.array([0.5, 2.0, 0.9])
    views = tuple(ViewEvidence(2 * sample, point, 0.9, 0.8, 0.7, 0.6, 0.5) for sample in range(10, 16))
    seen = np.array([-0.6, 0.7, 2.0])
    return Localization3D(point, seen, np.diag([0.01, 0.04, 0.01]), "m", 20, 20, 38, views)


def _cameras(video: SampledVideo) -> Reconstruction:
    """A head that walks along x and looks along y, z up."""
    looking = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    frames = tuple(
        PosedFrame(index, time_s, CameraPose(np.column_stack([looking, -looking @ [0.3 * time_s, 0, 1.6]])))
        for index, time_s in zip(video.frame_index.tolist(), video.time_s.tolist(), strict=True)
    )
    return Reconstruction(Camera("PINHOLE", WIDTH, HEIGHT, (150.0, 150.0, 80.0, 60.0)), frames, "m")


def _track(first: int, last: int, score: float) -> ResponseTrack:
    return ResponseTrack(tuple(_prediction(sample) for sample in range(first, last + 1)), score)


def _prediction(sample: int) -> FramePrediction:
    box = square(2 * sample)
    mask = np.ones((4, 4), bool)
    return FramePrediction(2 * sample, sample, sample / 5, 0.9, box, mask, box)


def square(frame: int) -> Box:
    """Where the clip's red square is."""
    return Box.from_xywh(10 + 2 * frame, 30, 40, 40)


def write_clip(path: Path, *, codec: str = "h264", faststart: bool = False) -> Path:
    """Four seconds of a red square that moves to the right."""
    options = {"movflags": "faststart"} if faststart else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(FRAMES):
            rgb = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
            x1, y1, x2, y2 = (int(v) for v in square(number).xyxy)
            rgb[y1:y2, x1:x2] = (220, 30, 30)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())
    return path
