"""Our tracker as a run takes it: EgoTracks and TREK-150, whose answers have a box in every frame.

The frames a tracker sees are encoded once for all queries, protocols' passes and directions of a clip.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from egohieraloc.data import egotracks
from egohieraloc.data.base import ClipQueries, TrackingPass
from egohieraloc.data.egotracks import EXPORTED_FPS, FRAME_STEP, TrackingQuery
from egohieraloc.data.trek150 import TrekRun
from egohieraloc.errors import DataError, VideoError
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.evaluation.run import Ask, answer_by_following
from egohieraloc.evaluation.run_vq2d import ClipAnswers
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.tracker import follow, stored_samples
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.types import Floats
from egohieraloc.video.reader import Video
from egohieraloc.video.sharpness import sharpness

RATE_TOLERANCE = 0.01  # 29.97 frames a second are 30


@dataclass(frozen=True, eq=False, kw_only=True)
class TrackingAnswers(ClipAnswers):
    """Follows the passes of a query; `step` is the distance of the frames a pass goes through."""

    step: ClassVar[int]

    @abstractmethod
    def passes(self, query: Any, num_frames: int) -> tuple[TrackingPass, ...]:
        """The ways through a clip of so many frames."""

    def scale(self, query: Any, width: int, height: int) -> tuple[float, float]:
        """A clip's size by that of the annotated images, in x and y."""
        return 1.0, 1.0

    def open(self, clip: ClipQueries[Any]) -> Ask:
        localizer, video = self.system.localizer(), self.video(clip)

        @cache
        def encoded(start: int) -> EncodedVideo:
            return localizer.encode(video, indices=np.arange(start, video.info.num_frames, self.step))

        def ask(query: Any) -> TrackAnswer:
            info = video.info
            scale = self.scale(query, info.width, info.height)

            def walk(way: TrackingPass) -> tuple[Floats, Floats]:
                boxes, scores = _follow(localizer, video, encoded(int(way.frames[0]) % self.step), way, scale)
                return boxes / (scale * 2), scores

            ways = self.passes(query, info.num_frames)
            crop = ways[0].template.scaled(*scale)
            shown = Query.from_frame(video, index=ways[0].template_frame, box=crop)
            answer = answer_by_following(query.key, ways, walk)
            return replace(answer, crop_sharpness=sharpness(shown.crop))

        return ask


@dataclass(frozen=True, eq=False, kw_only=True)
class EgoTracksAnswers(TrackingAnswers):
    """EgoTracks. Its frame numbers are those of the exported clip."""

    benchmark = "egotracks"
    step = FRAME_STEP
    protocol: egotracks.Protocol

    def video(self, clip: ClipQueries[TrackingQuery]) -> Video:
        video = super().video(clip)
        if abs(float(video.info.fps) / EXPORTED_FPS - 1) > RATE_TOLERANCE:
            raise DataError(
                f"{video.path} has {float(video.info.fps):g} frames a second, but EgoTracks numbers frames "
                f"at {EXPORTED_FPS:g}. Give the exported clips as they are."
            )
        return video

    def scale(self, query: TrackingQuery, width: int, height: int) -> tuple[float, float]:
        """Clips may have been made smaller."""
        return (width / query.size[0], height / query.size[1]) if query.size else (1.0, 1.0)

    def passes(self, query: TrackingQuery, num_frames: int) -> tuple[TrackingPass, ...]:
        if query.crop_frame >= num_frames:
            raise VideoError(
                f"The crop is at frame {query.crop_frame}, but the clip has {num_frames} frames."
            )
        return egotracks.passes(query, num_frames, self.protocol)


@dataclass(frozen=True, eq=False, kw_only=True)
class Trek150Answers(TrackingAnswers):
    """TREK-150. The folder of clips is that of the sequences."""

    benchmark = "trek150"
    step = 1

    def paths(self, clip: ClipQueries[TrekRun]) -> tuple[Path, ...]:
        return (self.clips / clip.name / "img",)

    def passes(self, query: TrekRun, num_frames: int) -> tuple[TrackingPass, ...]:
        last = int(query.frames.max())
        if last >= num_frames:
            raise VideoError(f"Frame {last} is annotated, but the sequence has {num_frames} images.")
        if not query.visible[0]:
            raise VideoError(f"The object is not visible at frame {query.frames[0]}, where the run starts.")
        return query.passes


def _follow(
    localizer: Localizer, video: Video, encoded: EncodedVideo, way: TrackingPass, scale: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Boxes (N, 4) in the clip's pixels and scores (N,) along a pass; a given first box has score 1."""
    given = [(way.start.scaled(*scale).xyxy, 1.0)] if way.start else []
    samples = np.searchsorted(encoded.frame_index, way.frames[len(given) :])
    along = stored_samples(video, encoded, samples.tolist())
    shown, template = video.frame(way.template_frame), way.template.scaled(*scale)
    seen = follow(localizer.predictor, shown, template, along, localizer.config.tracker)
    boxes, scores = zip(*given, *((p.box.xyxy, p.score) for p in seen), strict=True)
    return np.array(boxes), np.array(scores)
