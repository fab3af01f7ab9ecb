"""Our system on the clips of a benchmark, and VQ2D: a clip is encoded once, then its queries are answered.

A clip that cannot be read, or a crop that lies outside its image, becomes an answer with a reason, unless the
run is strict. Frames of answers are those of the annotation, boxes are in pixels of the annotated video.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from egohieraloc.data.base import ClipQueries, Ints, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths
from egohieraloc.errors import DataError, GeometryError, QueryError, VideoError
from egohieraloc.evaluation.predictions import Answer, TrackAnswer
from egohieraloc.evaluation.runner import no_answer
from egohieraloc.evaluation.workers import AnswerQuery
from egohieraloc.geometry.lift import mask_confidence
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.localize import Localizer, LocalizerConfig, with_settings
from egohieraloc.models.sam import SamProvider
from egohieraloc.models.weights import Weights, find_weights, load_weights
from egohieraloc.query import Query
from egohieraloc.types import FramePrediction, NotFound
from egohieraloc.video.reader import Video
from egohieraloc.video.sharpness import sharpness


@dataclass(frozen=True)
class System:
    """Our system, by its settings. It loads the weights when first used and frees them when it goes.

    Other processes are sent the settings alone and load for themselves.
    """

    model: str = "mini"
    device: str | None = None
    settings: tuple[str, ...] = ()
    cache: Path | None = None
    engine: str | None = None
    sam: str | None = None  # segments the queries; None: the network's own segmenter

    @cached_property
    def weights(self) -> Weights:
        return load_weights(find_weights(self.model))

    @cached_property
    def config(self) -> LocalizerConfig:
        return with_settings(LocalizerConfig(), self.settings, self.weights)

    @cached_property
    def localizer(self) -> Localizer:
        provider = None if self.sam is None else SamProvider(self.sam, device=self.device)
        return Localizer(
            self.weights,
            device=self.device,
            engine=self.engine,
            config=self.config,
            cache=self.cache,
            provider=provider,
        )

    def __reduce__(self) -> tuple[type[System], tuple[Any, ...]]:
        return System, astuple(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipAnswers(ABC):
    """Our system as `run_benchmark` takes it: opens the clips of a benchmark and answers their queries."""

    benchmark: ClassVar[str]
    system: System
    clips: Path  # the folder that holds them
    strict: bool = False  # whether a clip or query that cannot be read stops the run

    @abstractmethod
    def open(self, clip: ClipQueries[Any]) -> AnswerQuery:
        """Get ready for the queries of a clip."""

    def paths(self, clip: ClipQueries[Any]) -> tuple[Path, ...]:
        """Where the clip's images may lie."""
        return clip_paths(self.clips, clip.name)

    def has(self, clip: ClipQueries[Any]) -> bool:
        return any(path.exists() for path in self.paths(clip))

    def video(self, clip: ClipQueries[Any]) -> Video:
        paths = self.paths(clip)
        return Video.open(next((p for p in paths if p.exists()), paths[0]), folder_fps=clip.fps)

    @contextmanager
    def __call__(self, clip: ClipQueries[Any]) -> Iterator[AnswerQuery]:
        opened = cache(lambda: self.open(clip))

        def answer(query: Any) -> Answer:
            try:
                if query.problem:
                    raise DataError(query.problem)
                return opened()(query)
            except (DataError, GeometryError, QueryError, VideoError) as error:
                if self.strict:
                    raise
                return no_answer(self.benchmark, query.key, str(error))

        yield answer


@dataclass(frozen=True, eq=False, kw_only=True)
class Vq2dAnswers(ClipAnswers):
    """VQ2D."""

    benchmark = "vq2d"

    def open(self, clip: ClipQueries[VisualQuery]) -> AnswerQuery:
        search = self.search(clip)

        def answer(query: VisualQuery) -> TrackAnswer:
            found = search.find(query)
            track = Track.from_boxes(
                [p.frame_index for p in found.predictions], [p.box.xyxy for p in found.predictions]
            )
            sure = [mask_confidence(p, self.system.config.place.fusion) for p in found.predictions]
            return TrackAnswer(
                query.key,
                track,
                found.score,
                found.reason,
                crop_sharpness=found.crop_sharpness,
                frame_confidences=np.array([astuple(s) for s in sure]).reshape(-1, 3),
                mask_quality=found.mask_quality,
            )

        return answer

    def search(self, clip: ClipQueries[VisualQuery]) -> ClipSearch:
        return ClipSearch(self.system.localizer, self.video(clip), clip.queries, clip.fps)


@dataclass(frozen=True, eq=False)
class LastAppearance:
    """The last appearance of a query's object. Frames and pixels are those of the annotation."""

    predictions: tuple[FramePrediction, ...]  # one for every frame; none: see `reason`
    score: float
    crop_sharpness: float | None
    reason: str = ""
    mask_quality: float | None = None


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
        # The sample that stands for each frame before the last query frame, as far as the clip goes.
        shown = video.shown_every(fps)[:until]
        self.samples: Ints = np.searchsorted(self.encoded.frame_index, shown, side="right") - 1

    def find(self, query: VisualQuery) -> LastAppearance:
        """Search the frames before the query frame; the crop may come from a later one."""
        info = self.video.info
        scale = (info.width / query.width, info.height / query.height)  # clips may have been made smaller
        crop = Query.from_time(self.video, time_s=query.crop_frame / self.fps, box=query.crop.scaled(*scale))
        sharp = sharpness(crop.crop)
        samples = self.samples[: query.query_frame]
        kept, searched = self.remembered(int(samples[-1]) + 1 if len(samples) else 0)
        answer = self.localizer.ask(crop, searched)
        track, mask = answer.track, answer.query_mask
        quality = None if mask is None else mask.quality
        if isinstance(track, NotFound):
            # Every query of the benchmark has a response track, so the best candidate is given, whatever its
            # confidence.
            if not answer.alternatives:
                return LastAppearance((), track.score, sharp, track.reason, quality)
            track = answer.alternatives[0]
        frames = np.flatnonzero((samples >= kept[track.start]) & (samples <= kept[track.end]))
        shown = np.searchsorted(kept, samples[frames], side="right") - 1
        predictions = tuple(
            self._as_annotated(track.predictions[sample - track.start], frame, scale)
            for frame, sample in zip(frames.tolist(), shown.tolist(), strict=True)
        )
        return LastAppearance(predictions, track.score, sharp, mask_quality=quality)

    def remembered(self, count: int) -> tuple[Ints, EncodedVideo]:
        """Of the clip's first samples those that are searched: their numbers, and what is known of them."""
        return np.arange(count), self.encoded.first(count)

    def _as_annotated(
        self, prediction: FramePrediction, frame: int, scale: tuple[float, float]
    ) -> FramePrediction:
        back, mask_box = (1 / scale[0], 1 / scale[1]), prediction.mask_box
        return replace(
            prediction,
            frame_index=frame,
            sample=frame,
            time_s=frame / self.fps,
            box=prediction.box.scaled(*back),
            mask_box=None if mask_box is None else mask_box.scaled(*back),
        )
