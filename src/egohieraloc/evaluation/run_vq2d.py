"""Our system as a run takes it: a clip is opened and encoded once, then its queries are asked.

A clip that cannot be read or a crop that lies outside its image is an answer with a reason, unless a run is
strict. Frames of answers are those of the annotation, boxes are in pixels of the original video.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from egohieraloc.data.base import ClipQueries, Ints, Track
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.errors import QueryError, VideoError
from egohieraloc.evaluation.predictions import Answer, TrackAnswer
from egohieraloc.evaluation.run import Ask, no_answer
from egohieraloc.localize import Localizer, LocalizerConfig
from egohieraloc.query import Query
from egohieraloc.types import FramePrediction, NotFound
from egohieraloc.video.reader import Video
from egohieraloc.video.sharpness import sharpness


@dataclass(frozen=True)
class System:
    """What answers, in a form that can be sent to other processes: each makes its own Localizer, once."""

    model: str = "mini"
    device: str | None = None
    config: LocalizerConfig = field(default_factory=LocalizerConfig)
    cache: Path | None = None

    def localizer(self) -> Localizer:
        return _localizer(self)


@cache
def _localizer(system: System) -> Localizer:
    return Localizer.from_pretrained(
        system.model, device=system.device, config=system.config, cache=system.cache
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipAnswers(ABC):
    """Opens the clips of a benchmark for `run`."""

    benchmark: ClassVar[str]
    system: System
    clips: Path  # the folder that holds them
    strict: bool = False  # whether what cannot be read stops the run

    @abstractmethod
    def open(self, clip: ClipQueries[Any]) -> Ask:
        """Get ready for the queries of a clip."""

    def paths(self, clip: ClipQueries[Any]) -> tuple[Path, ...]:
        """Where the clip's images may lie."""
        return (self.clips / f"{clip.clip_uid}.mp4", self.clips / f"{clip.clip_uid}")

    def has(self, clip: ClipQueries[Any]) -> bool:
        return any(path.exists() for path in self.paths(clip))

    def video(self, clip: ClipQueries[Any]) -> Video:
        paths = self.paths(clip)
        return Video.open(next((p for p in paths if p.exists()), paths[0]), folder_fps=clip.fps)

    @contextmanager
    def __call__(self, clip: ClipQueries[Any]) -> Iterator[Ask]:
        opened = cache(lambda: self.open(clip))

        def ask(query: Any) -> Answer:
            try:
                return opened()(query)
            except (VideoError, QueryError) as error:
                if self.strict:
                    raise
                return no_answer({"benchmark": self.benchmark}, query.key, str(error))

        yield ask


@dataclass(frozen=True, eq=False, kw_only=True)
class VisualAnswers(ClipAnswers):
    """VQ2D."""

    benchmark = "vq2d"

    def open(self, clip: ClipQueries[VisualQuery]) -> Ask:
        search = ClipSearch(self.system.localizer(), self.video(clip), clip.queries, clip.fps)

        def ask(query: VisualQuery) -> TrackAnswer:
            found = search.find(query)
            track = Track.from_boxes(
                [p.frame_index for p in found.predictions], [p.box.xyxy for p in found.predictions]
            )
            return TrackAnswer(
                query.key, track, found.score, found.reason, crop_sharpness=found.crop_sharpness
            )

        return ask


@dataclass(frozen=True, eq=False)
class Found:
    """The last appearance of a query. Frames and pixels are those of the annotation."""

    predictions: tuple[FramePrediction, ...]  # one for every frame of the appearance; none: see `reason`
    score: float
    crop_sharpness: float | None
    reason: str = ""


class ClipSearch:
    """A clip that was encoded once, for any number of VQ2D queries.

    The annotation counts frames at `fps`, 5 a second, whatever the file's own rate: its frame n is the one
    shown at n / fps seconds.
    """

    def __init__(
        self, localizer: Localizer, video: Video, queries: tuple[VisualQuery, ...], fps: float
    ) -> None:
        self.localizer, self.video, self.fps = localizer, video, fps
        until = max(query.query_frame for query in queries)
        self.encoded = localizer.encode(video, until_s=until / fps)
        # The sample that stands for each frame before the last question, as far as the clip goes.
        frames = np.arange(min(until, math.ceil(video.duration_s * fps - 0.01)))
        shown = video.shown_at(frames / fps)
        self.samples: Ints = np.searchsorted(self.encoded.frame_index, shown, side="right") - 1

    def find(self, query: VisualQuery) -> Found:
        """Search the frames before the question; the crop may lie after it."""
        info = self.video.info
        size = (info.width / query.width, info.height / query.height)  # clips may have been made smaller
        question = Query.from_time(
            self.video, time_s=query.crop_frame / self.fps, box=query.crop.scaled(*size)
        )
        sharp = sharpness(question.crop)
        samples = self.samples[: query.query_frame]
        known = self.encoded.first(int(samples[-1]) + 1 if len(samples) else 0)
        answer = self.localizer.ask(question, known)
        track = answer.track
        if isinstance(track, NotFound):
            # Every query of the benchmark has an answer, so the best candidate is given, however unsure.
            if not answer.alternatives:
                return Found((), track.score, sharp, track.reason)
            track = answer.alternatives[0]
        frames = np.flatnonzero((samples >= track.start) & (samples <= track.end))
        predictions = tuple(
            self._as_annotated(track.predictions[int(samples[n]) - track.start], int(n), size) for n in frames
        )
        return Found(predictions, track.score, sharp)

    def _as_annotated(self, seen: FramePrediction, frame: int, size: tuple[float, float]) -> FramePrediction:
        back = (1 / size[0], 1 / size[1])
        return replace(
            seen,
            frame_index=frame,
            sample=frame,
            time_s=frame / self.fps,
            box=seen.box.scaled(*back),
            mask_box=None if seen.mask_box is None else seen.mask_box.scaled(*back),
        )
