"""The Localizer: composes the parts and holds no maths of its own."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import (
    NetworkConfig,
    PlaceConfig,
    SearchConfig,
    SfmConfig,
    TemporalConfig,
    TrackerConfig,
)
from egohieraloc.geometry.depth import in_one_unit
from egohieraloc.geometry.place import last_appearance, place
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.geometry.reference import PosedImages, Reference, to_metres
from egohieraloc.inference import tracker
from egohieraloc.inference.answer import Answer2D, answer
from egohieraloc.inference.complete import completed
from egohieraloc.inference.live import LiveVideo
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.search import (
    EncodedVideo,
    Progress,
    coarse_scores,
    decode_where_it_matters,
    encode_video,
    no_progress,
)
from egohieraloc.inference.store import FeatureStore, default_cache, trim_cache
from egohieraloc.models.query_mask import MaskProvider
from egohieraloc.models.weights import Weights, find_weights, load_weights
from egohieraloc.poses import camera_poses
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.settings import override
from egohieraloc.types import (
    Box,
    DepthMap,
    FramePrediction,
    NotLocalized,
    ResponseTrack,
    Rgb,
    VideoRef,
)
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

DepthSource = Callable[[Sequence[int]], Mapping[int, DepthMap]]  # frame numbers to maps, where there are any


@dataclass(frozen=True, kw_only=True)
class LocalizerConfig:
    """What can be set without training anew. Of the network, all that leaves its layers as they are."""

    network: NetworkConfig | None = None  # None: as the weights were trained
    search: SearchConfig = field(default_factory=SearchConfig)
    temporal: TemporalConfig = field(default_factory=TemporalConfig)
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    sfm: SfmConfig = field(default_factory=SfmConfig)
    place: PlaceConfig = field(default_factory=PlaceConfig)


def with_settings(config: LocalizerConfig, words: Iterable[str], weights: Weights) -> LocalizerConfig:
    """The config changed by words like `network.qam.decay=0.3`; the network's begins as the weights'."""
    return override(replace(config, network=config.network or weights.network.config), words)


class Localizer:
    """Answers where an object was last seen. One can serve any number of videos and queries."""

    def __init__(
        self,
        weights: Weights,
        *,
        device: str | None = None,
        config: LocalizerConfig | None = None,
        cache: Path | None = None,
        provider: MaskProvider | None = None,
    ) -> None:
        self.config = config or LocalizerConfig()
        self.weights = weights if self.config.network is None else weights.with_settings(self.config.network)
        self.cache = cache or default_cache()
        self.predictor = Predictor(self.weights, device=device, provider=provider)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = "mini",
        *,
        device: str | None = None,
        config: LocalizerConfig | None = None,
        settings: Iterable[str] = (),
        cache: Path | None = None,
        provider: MaskProvider | None = None,
    ) -> Localizer:
        """With the weights that ship under a name, or of a file. The device is chosen unless given.

        settings: changes of the config, as `temporal.rule=paper` or `network.qam.decay=0.3`;
        cache: folder for features of videos, shared by all questions; `provider` makes the query's mask.
        """
        weights = load_weights(find_weights(name))
        config = with_settings(config or LocalizerConfig(), settings, weights)
        return cls(weights, device=device, config=config, cache=cache, provider=provider)

    def encode(
        self,
        video: Video,
        *,
        indices: NDArray[np.int64] | None = None,
        until_s: float | None = None,
        progress: Progress = no_progress,
    ) -> EncodedVideo:
        """Bring what is known of a video up to date; a second call finds everything there.

        indices: numbers of the frames to know, instead of those sampled at `search.fps`.
        """
        everything = video.sample_indices(self.config.search.fps) if indices is None else indices
        name = f"{video.content_hash} {self.weights.features_fingerprint}".encode()
        key = hashlib.blake2b(name + everything.tobytes(), digest_size=12).hexdigest()
        store = FeatureStore.of(self.cache, key)
        encoded = encode_video(video, self.predictor, store, everything, until_s=until_s, progress=progress)
        trim_cache(self.cache, keep=store.folder)
        return encoded

    def locate(
        self,
        query: Query,
        video: Video | str | Path,
        *,
        until_s: float | None = None,
        in_3d: bool = False,
        poses: Reconstruction | None = None,
        depth: DepthSource | None = None,
        reference: Reference | None = None,
        progress: Progress = no_progress,
    ) -> Result:
        """Find the last appearance of the query before `until_s`, the query time (default: the end).

        in_3d: also where it is, seen from the camera at the query time. Camera poses come from the video
        itself, or from `poses`. `depth` gives depth maps of frames that show the object; `reference` what
        makes the camera path metric.
        """
        if not isinstance(video, Video):
            video = Video.open(video)
        clock = _Clock()
        encoded = self.encode(video, until_s=until_s, progress=progress)
        clock.lap("read the video")
        found = self.ask(query, encoded, video.info.width, video.info.height, progress=progress)
        clock.lap("look for the object")
        fps = self.config.search.fps
        about = VideoRef(
            str(video.path),
            video.info,
            min(float(video.info.fps), fps or math.inf),
            tuple(int(i) for i in encoded.frame_index),
        )
        result = Result(query, about, found.track, found.curve, found.alternatives)
        if not in_3d:
            return replace(result, timings_s=clock.laps)
        anchors = reference.anchors if isinstance(reference, PosedImages) else ()
        sfm = self.config.sfm
        cameras = poses or camera_poses(video, encoded, self.cache, sfm, progress, anchors=anchors)
        clock.lap("camera poses")
        if isinstance(cameras, NotLocalized):
            return replace(result, place=cameras, timings_s=clock.laps)
        if reference is not None:
            cameras = to_metres(cameras, reference)
        result = self._placed(result, cameras, depth, until_s)
        clock.lap("place in space")
        return replace(result, timings_s=clock.laps)

    def _placed(
        self, result: Result, cameras: Reconstruction, depth: DepthSource | None, until_s: float | None
    ) -> Result:
        track = result.track
        predictions = last_appearance(track.predictions) if isinstance(track, ResponseTrack) else ()
        maps: Mapping[int, DepthMap] = {}
        if depth is not None and predictions:
            maps = depth([p.frame_index for p in predictions])
            cameras, maps = in_one_unit(cameras, maps, self.config.place.depth)
        last_s = float(result.curve.time_s[-1]) if len(result.curve.time_s) else 0.0
        query_time_s = last_s if until_s is None else min(until_s, last_s)
        found = place(predictions, cameras, query_time_s=query_time_s, depth=maps, config=self.config.place)
        return replace(result, place=found, cameras=cameras)

    def ask(
        self,
        query: Query,
        encoded: EncodedVideo,
        width: int,
        height: int,
        *,
        progress: Progress = no_progress,
    ) -> Answer2D:
        """Answer from stored features of a video of this size: nothing is decoded or encoded."""
        prepared = self.predictor.prepare(query)
        coarse = coarse_scores(self.predictor, prepared, encoded, progress)
        decoded = decode_where_it_matters(
            self.predictor, prepared, encoded, coarse, self.config.search, progress
        )
        letterbox = Letterbox(width, height, self.predictor.config.input_size)
        temporal, stride = self.config.temporal, self.config.search.stride
        found = answer(decoded, encoded, letterbox, self.weights.calibration, temporal, stride=stride)
        return completed(
            found, self.predictor, encoded, decoded, letterbox, temporal, stride=stride, progress=progress
        )

    def track(
        self, video: Video | str | Path, box: Box, *, at_s: float, backward: bool = False
    ) -> Iterator[FramePrediction]:
        """Follow what a box shows at a time through the rest of the video, an answer for every sample."""
        if not isinstance(video, Video):
            video = Video.open(video)
        start = video.frame_at(at_s).index
        return tracker.track(
            self.predictor,
            video,
            box,
            start,
            self.config.tracker,
            fps=self.config.search.fps,
            backward=backward,
        )

    def live(self) -> LiveSession:
        """A session into which frames are pushed."""
        return LiveSession(self)


class _Clock:
    """How long each step took."""

    def __init__(self) -> None:
        self.laps: tuple[tuple[str, float], ...] = ()
        self._last_s = time.perf_counter()

    def lap(self, name: str) -> None:
        now_s = time.perf_counter()
        self.laps += ((name, now_s - self._last_s),)
        self._last_s = now_s


class LiveSession:
    """`add` frames as they come, `ask` at any moment."""

    def __init__(self, localizer: Localizer) -> None:
        self._localizer = localizer
        self._video = LiveVideo(localizer.predictor)

    def add(self, frame: Rgb, time_s: float) -> None:
        """Push the next frame."""
        self._video.add(frame, time_s)

    def ask(self, query: Query) -> Answer2D:
        """Where was this last seen, among the frames so far?"""
        box = self._video.letterbox
        width, height = (box.width, box.height) if box else (1, 1)
        return self._localizer.ask(query, self._video.encoded(), width, height)

    def close(self) -> None:
        """Forget everything."""
        self._video.close()
