"""A Localizer that finds things at once, or when told to, without a network."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from egohieraloc.errors import QueryError
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box, FramePrediction, NotFound, ResponseTrack, ScoreCurve, VideoRef
from egohieraloc.video.reader import Video
from egohieraloc.web.process import Report

WIDTH, HEIGHT, FPS, FRAMES = 160, 120, 10, 40


@dataclass(frozen=True)
class FakeLocalizer:
    """Finds the thing at 2.0 to 3.0 s, and less surely at 0.6 to 1.0 s.

    Files in `switches` change what it does: `hold` keeps it busy, `die` ends its process, `fail` and `miss`
    make it fail and find nothing; it writes `encoded` once it has read a video.
    """

    switches: Path
    step_s: float = 0.0

    def locate(
        self, query: Query, video: str | Path, *, until_s: float | None = None, progress: Report = print
    ) -> Result:
        if (self.switches / "die").exists():
            os._exit(3)
        if (self.switches / "fail").exists():
            raise QueryError(f"There is something wrong with {video}.")
        source = Video.open(video)
        indices = source.sample_indices(5.0, until_s=until_s)
        seen = self.switches / f"encoded-{source.content_hash}"
        if not seen.exists():
            for done in range(len(indices)):
                progress("encode", done + 1, len(indices))
                time.sleep(self.step_s)
            seen.touch()
        while (self.switches / "hold").exists():
            progress("decode", 1, 2)
            time.sleep(0.02)
        times_s = source.times_s[indices]
        smooth = np.where((times_s > 1.9) & (times_s < 3.1), 0.9, 0.05)
        smooth[(times_s > 0.5) & (times_s < 1.1)] = 0.6
        curve = ScoreCurve(times_s, smooth, smooth, 0.5, ((3, 5), (10, 15)))
        reference = VideoRef(str(video), source.info, 5.0, tuple(int(i) for i in indices))
        tracks = _track(10, 15, 0.87), _track(3, 5, 0.6)
        if (self.switches / "miss").exists():
            return Result(query, reference, NotFound("Nothing looks like it.", 0.2), curve, tracks[:1])
        return Result(query, reference, tracks[0], curve, tracks[1:])


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
