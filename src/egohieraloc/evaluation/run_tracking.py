"""Our tracker on EgoTracks and TREK-150, whose answers have a box in every frame.

The frames of a clip are encoded once for all its queries, passes and directions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from egohieraloc.data import egotracks
from egohieraloc.data.base import ClipQueries, QueryKey, Track, TrackingPass
from egohieraloc.data.egotracks import EXPORTED_FPS, FRAME_STEP, TrackingQuery
from egohieraloc.data.trek150 import TrekRun
from egohieraloc.errors import EgoHieraLocError, VideoError
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.evaluation.run_vq2d import ClipAnswers
from egohieraloc.evaluation.workers import AnswerQuery
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.tracker import follow, stored_samples
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.types import Floats
from egohieraloc.video.reader import Video
from egohieraloc.video.sharpness import sharpness

TrackPass = Callable[[TrackingPass], tuple[Floats, Floats]]  # to boxes (N, 4) and scores (N,)
RATE_TOLERANCE = 0.01  # 29.97 frames a second are 30


@dataclass(frozen=True, eq=False, kw_only=True)
class TrackingAnswers(ClipAnswers):
    """Tracks along the passes of a query; `step` is the distance between the frames of a pass."""

    step: ClassVar[int]

    @abstractmethod
    def passes(self, query: Any, num_frames: int) -> tuple[TrackingPass, ...]:
        """The passes over a clip of so many frames."""

    def scale(self, query: Any, width: int, height: int) -> tuple[float, float]:
        """A clip's size by that of the annotated images, in x and y."""
        return 1.0, 1.0

    def open(self, clip: ClipQueries[Any]) -> AnswerQuery:
        localizer, video = self.system.localizer, self.video(clip)

        @cache
        def encoded(start: int) -> EncodedVideo:
            indices = np.arange(start, video.info.num_frames, self.step)
            return localizer.encode(video, indices=indices, dense=True)

        def answer(query: Any) -> TrackAnswer:
            info = video.info
            scale = self.scale(query, info.width, info.height)

            def track(one: TrackingPass) -> tuple[Floats, Floats]:
                boxes, scores = _track(localizer, video, encoded(int(one.frames[0]) % self.step), one, scale)
                return boxes / (scale * 2), scores

            passes = self.passes(query, info.num_frames)
            crop = passes[0].template.scaled(*scale)
            template = Query.from_frame(video, index=passes[0].template_frame, box=crop)
            tracked = answer_by_tracking(query.key, passes, track)
            return replace(tracked, crop_sharpness=sharpness(template.crop))

        return answer


@dataclass(frozen=True, eq=False, kw_only=True)
class EgoTracksAnswers(TrackingAnswers):
    """EgoTracks. Its frame numbers are those of the exported clip."""

    benchmark = "egotracks"
    step = FRAME_STEP
    protocol: egotracks.Protocol

    def video(self, clip: ClipQueries[TrackingQuery]) -> Video:
        video = super().video(clip)
        if abs(float(video.info.fps) / EXPORTED_FPS - 1) > RATE_TOLERANCE:
            raise VideoError(
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


def answer_by_tracking(key: QueryKey, passes: Sequence[TrackingPass], track: TrackPass) -> TrackAnswer:
    """A tracking benchmark's answer from a tracker that gives a box and a score for every frame of a pass.

    Where two passes share a frame, which is where both start, the first counts.
    """
    frames, boxes, scores = [], [], []
    for one in passes:
        found_boxes, found_scores = track(one)
        if found_boxes.shape != (len(one.frames), 4) or found_scores.shape != (len(one.frames),):
            raise EgoHieraLocError(
                f"The tracker gave {found_boxes.shape} boxes for {len(one.frames)} frames."
            )
        frames.append(one.frames)
        boxes.append(found_boxes)
        scores.append(found_scores)
    numbers, first = np.unique(np.concatenate(frames), return_index=True)
    frame_scores = np.concatenate(scores)[first]
    whole = Track(numbers, np.concatenate(boxes)[first])
    return TrackAnswer(key, whole, float(frame_scores.max()), frame_scores=frame_scores)


def _track(
    localizer: Localizer, video: Video, encoded: EncodedVideo, one: TrackingPass, scale: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Boxes (N, 4) in the clip's pixels and scores (N,) along a pass; a given first box has score 1."""
    given = [(one.start.scaled(*scale).xyxy, 1.0)] if one.start else []
    samples = np.searchsorted(encoded.frame_index, one.frames[len(given) :])
    along = stored_samples(video, encoded, samples.tolist())
    shown, template = video.frame(one.template_frame), one.template.scaled(*scale)
    predictions = follow(localizer.predictor, shown, template, along, localizer.config.tracker)
    boxes, scores = zip(*given, *((p.box.xyxy, p.score) for p in predictions), strict=True)
    return np.array(boxes), np.array(scores)
