"""The Localizer: composes the parts and holds no maths of its own."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType

import numpy as np

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
from egohieraloc.geometry.visible import with_visible_points
from egohieraloc.inference import tracker
from egohieraloc.inference.answer import answer, maps_of
from egohieraloc.inference.chunks import STRETCH, all_chunks, sparse_chunks
from egohieraloc.inference.complete import completed
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.joined import JoinedVideo, likely_parts
from egohieraloc.inference.live import LiveVideo
from egohieraloc.inference.predict import Predictor, PreparedQuery
from egohieraloc.inference.reading import Reading
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.search import QuerySearch, last_look
from egohieraloc.inference.store import FeatureStore, default_cache
from egohieraloc.models.query_mask import MaskProvider
from egohieraloc.models.weights import Weights, find_weights, load_weights
from egohieraloc.poses import camera_poses, whole_video_samples
from egohieraloc.progress import Progress, no_progress
from egohieraloc.query import Query
from egohieraloc.recorded import recorded_cameras
from egohieraloc.result import Result
from egohieraloc.settings import override
from egohieraloc.types import (
    Box,
    DepthMap,
    FramePrediction,
    Ints,
    NotLocalized,
    QueryMask,
    ResponseTrack,
    Rgb,
    SampledVideo,
)
from egohieraloc.versions import versions
from egohieraloc.video.reader import Video

logger = logging.getLogger(__name__)
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


@dataclass(frozen=True, kw_only=True)
class SpaceSources:
    """What is known of the space besides the video itself."""

    cameras: Reconstruction | None = None  # poses, instead of structure from motion
    depth: DepthSource | None = None  # depth maps of frames that show the object
    reference: Reference | None = None  # what makes the camera path metric


@dataclass(frozen=True)
class Glimpse:
    """A stretch of a video that looks like a query, from memory alone."""

    start_s: float
    end_s: float
    similarity: float  # in [-1, 1], of the best pair of regions


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
        engine: str | None = None,
        config: LocalizerConfig | None = None,
        cache: Path | None = None,
        provider: MaskProvider | None = None,
    ) -> None:
        self.config = config or LocalizerConfig()
        self.weights = weights if self.config.network is None else weights.with_settings(self.config.network)
        self.cache = cache or default_cache()
        self.predictor = Predictor(self.weights, device=device, engine=engine, provider=provider)
        self._last: tuple[Query, PreparedQuery] | None = None

    def __repr__(self) -> str:
        name, predictor = self.weights.network.config.backbone.name, self.predictor
        return f"Localizer({name}, {predictor.engine} on {predictor.device})"

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = "mini",
        *,
        device: str | None = None,
        engine: str | None = None,
        config: LocalizerConfig | None = None,
        settings: Iterable[str] = (),
        cache: Path | None = None,
        provider: MaskProvider | None = None,
    ) -> Localizer:
        """With the weights that ship under a name, or of a file. Device and engine are chosen unless given.

        settings: changes of the config, as `temporal.rule=paper` or `network.qam.decay=0.3`;
        cache: folder for features of videos, shared by all queries; `provider` makes the query's mask.
        """
        weights = load_weights(find_weights(name))
        config = with_settings(config or LocalizerConfig(), settings, weights)
        return cls(weights, device=device, engine=engine, config=config, cache=cache, provider=provider)

    def encode(
        self,
        video: Video,
        *,
        indices: Ints | None = None,
        until_s: float | None = None,
        dense: bool = False,
        progress: Progress = no_progress,
    ) -> EncodedVideo:
        """Bring what is known of a video up to date; a second call finds everything there.

        indices: numbers of the frames to know, instead of those sampled at `search.fps`;
        dense: read every sample now. Else every second one is, and the others where a question needs them:
        the answer is the same.
        """
        encoded = self._known(video, indices, until_s)
        self._prepare_encoding(encoded)
        if dense:
            encoded.fill(all_chunks(len(encoded)), progress=progress)
        encoded.remember(progress=progress)
        return encoded

    def _known(self, video: Video, indices: Ints | None, until_s: float | None) -> EncodedVideo:
        """A video with what was made of it before."""
        sampled = video.sampled(self.config.search.fps, indices=indices)
        name = f"{video.content_hash} {self.predictor.features_fingerprint}".encode()
        key = hashlib.blake2b(name + sampled.frame_index.tobytes(), digest_size=12).hexdigest()
        return self._stored(sampled, key, video).until(until_s)

    def _prepare_encoding(self, encoded: EncodedVideo) -> None:
        """Get ready to read a video, unless the last chunk that a first reading makes is there."""
        if not all(encoded.store.has(number) for number in sparse_chunks(len(encoded))[-1:]):
            self.predictor.prepare_encoding(encoded.letterbox)

    def reopen(self, sampled: SampledVideo, key: str) -> EncodedVideo:
        """A video that was encoded before, by its samples and the `key` of its store. The video itself is
        opened only where its features were thrown out."""
        return self._stored(sampled, key)

    def _stored(self, sampled: SampledVideo, key: str, video: Video | None = None) -> EncodedVideo:
        letterbox = self.predictor.letterbox(sampled.info.width, sampled.info.height)
        reading = Reading(sampled, letterbox, self.predictor, video)
        store, memory = FeatureStore.of(self.cache, key), RegionMemory.of(self.cache, key)
        return EncodedVideo(sampled, letterbox, store, reading, memory)

    def ask(
        self, query: Query | str | Path, encoded: EncodedVideo, *, progress: Progress = no_progress
    ) -> Result:
        """Answer from stored features; frames are decoded and encoded only where there are none yet, and
        a few of the best appearances for a look back or a second look."""
        query = _asked(query)
        self._prepare_search(encoded)
        search = self._search(query, encoded, progress)
        found = completed(search, answer(search, search.decode(search.coarse_scores())))
        return Result(
            query,
            encoded.video,
            found.track,
            found.curve,
            found.alternatives,
            query_mask=search.query.mask,
            maps=maps_of(found, encoded.letterbox),
            versions=self._versions(found.look),
        )

    def _prepare_search(self, encoded: EncodedVideo) -> None:
        self.predictor.prepare_search(encoded.letterbox, back=self._looks_back)

    @property
    def _looks_back(self) -> bool:
        """Whether what is found is searched for in the query's image."""
        config = self.config
        return last_look(config.search, config.temporal, self.predictor.calibration) == "back"

    def foreground(self, query: Query | str | Path) -> QueryMask:
        """What of a query will be searched: its pixels as the network sees them."""
        return self.predictor.prepare(_asked(query)).mask

    def likely(
        self, query: Query, videos: Sequence[EncodedVideo], *, progress: Progress = no_progress
    ) -> dict[int, float]:
        """Which of many videos, by rising time, seem to show the query: their numbers, and how sure that is;
        where none does, the one that comes closest. They are searched as one long video is; `ask` answers
        for each."""
        found: dict[int, float] = {}
        shapes = [video.letterbox.canvas_size for video in videos]
        for shape in dict.fromkeys(shapes):
            numbers = [number for number, other in enumerate(shapes) if other == shape]
            joined = JoinedVideo.of([videos[number] for number in numbers])
            self._prepare_search(joined)
            parts = likely_parts(self._search(query, joined, progress), joined)
            found |= {numbers[part]: score for part, score in parts.items()}
        return found

    def recall(self, query: Query, encoded: EncodedVideo, *, most: int = 5) -> list[Glimpse]:
        """The moments that look most like the query, from what is remembered alone: neither features nor the
        video are needed. Nothing is verified: `ask` answers, this is for a video that is gone."""
        similarity = self._search(query, encoded, no_progress).remembered_similarity()
        known = np.flatnonzero(~np.isnan(similarity))
        best = known[np.argsort(-similarity[known], kind="stable")[:most]]
        last = len(encoded) - 1
        return [
            Glimpse(
                float(encoded.time_s[place * STRETCH]),
                float(encoded.time_s[min((place + 1) * STRETCH - 1, last)]),
                float(similarity[place]),
            )
            for place in best
        ]

    def _prepared(self, query: Query) -> PreparedQuery:
        """Made once for a query that is asked of many videos."""
        last = self._last  # another thread may ask meanwhile
        if last is None or last[0] is not query:
            self._last = last = query, self.predictor.prepare(query)
        return last[1]

    def _search(self, query: Query, encoded: EncodedVideo, progress: Progress) -> QuerySearch:
        return QuerySearch(
            query=self._prepared(query),
            video=encoded,
            predictor=self.predictor,
            config=self.config.search,
            temporal=self.config.temporal,
            progress=progress,
        )

    def _versions(self, look: str) -> dict[str, str]:
        provider = self.predictor.provider
        named = {} if provider is None else {"segmenter": getattr(provider, "name", type(provider).__name__)}
        return {"weights": self.weights.fingerprint, "look": look} | named | versions()

    def locate(
        self,
        query: Query | str | Path,
        video: Video | str | Path,
        *,
        until_s: float | None = None,
        in_3d: bool = False,
        space: SpaceSources | None = None,
        progress: Progress = no_progress,
    ) -> Result:
        """Find the last appearance of the query before `until_s`, the query time (default: the end).

        query: a path stands for an image of the object alone; `Query.from_image` also takes its box.
        in_3d: also where it is, seen from the camera at the query time. Camera poses come from the video
        itself, unless `space` brings them.
        """
        video = _opened(video)
        result = self._seen_last(_asked(query), video, until_s, progress)
        return self._placed(result, lambda: video, space, progress) if in_3d else result

    def _seen_last(self, query: Query, video: Video, until_s: float | None, progress: Progress) -> Result:
        """`locate` without the place in space."""
        clock = _Clock()
        encoded = self._known(video, None, until_s)
        self._prepare_encoding(encoded)  # wanted first
        self._prepare_search(encoded)
        encoded.remember(progress=progress)
        clock.lap("read the video")
        result = self.ask(query, encoded, progress=progress)
        clock.lap("search for the object")
        return replace(result, timings_s=clock.laps)

    def locate_many(
        self,
        queries: Iterable[Query | str | Path],
        videos: Iterable[Video | str | Path],
        *,
        until_s: float | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[Result]:
        """An answer for each video and query, video by video: each is encoded once, and answers come as they
        are found."""
        asked = [_asked(query) for query in queries]
        for video in videos:
            encoded = self.encode(_opened(video), until_s=until_s, progress=progress)
            for query in asked:
                yield self.ask(query, encoded, progress=progress)

    def place(
        self, result: Result, space: SpaceSources | None = None, *, progress: Progress = no_progress
    ) -> Result:
        """The same answer with the object's place in space, seen from the camera at the query time.

        A result read from disk has masks without the confidence of each pixel: its views weigh slightly
        differently than those of the result that was saved.
        """
        return self._placed(result, cache(lambda: Video.reopen(result.video.source)), space, progress)

    def _placed(
        self, result: Result, open_video: Callable[[], Video], space: SpaceSources | None, progress: Progress
    ) -> Result:
        """The video is opened only where no poses are given."""
        space, clock = space or SpaceSources(), _Clock(result.timings_s)
        given, samples = space.cameras, result.video.frame_index
        if given is None and space.reference is None:
            given = recorded_cameras(open_video())
        cameras: Reconstruction | NotLocalized
        if given is not None:
            cameras = given.at_frames(samples)
        else:
            anchors = space.reference.anchors if isinstance(space.reference, PosedImages) else ()
            video = open_video()
            whole = whole_video_samples(video, result.video)
            sfm = self.config.sfm
            cameras = camera_poses(video, whole, self.cache, sfm, anchors=anchors, progress=progress)
        clock.lap("camera poses")
        if isinstance(cameras, NotLocalized):
            return replace(result, place=cameras, timings_s=clock.laps)
        if space.reference is not None:
            cameras = to_metres(cameras, space.reference)
        if result.video.until_s is not None:
            cameras = cameras.until(result.query_time_s)
        track = result.track
        predictions = last_appearance(track.predictions) if isinstance(track, ResponseTrack) else ()
        cameras = with_visible_points(cameras, [p.frame_index for p in predictions])
        maps: Mapping[int, DepthMap] = {}
        if space.depth is not None and predictions:
            maps = space.depth([p.frame_index for p in predictions])
            cameras, maps = in_one_unit(cameras, maps, self.config.place.depth)
        config = self.config.place
        found = place(predictions, cameras, query_time_s=result.query_time_s, depth=maps, config=config)
        others = tuple(
            place(other.predictions, cameras, query_time_s=result.query_time_s, config=config)
            for other in result.alternatives
        )
        clock.lap("place in space")
        placed = replace(result, place=found, alternative_places=others)
        return replace(placed, cameras=cameras, timings_s=clock.laps)

    def track(
        self, video: Video | str | Path, box: Box, *, at_s: float, backward: bool = False
    ) -> Iterator[FramePrediction]:
        """Follow what a box shows at a time through the rest of the video, an answer for every sample."""
        video = _opened(video)
        start = video.frame_at(at_s)
        indices = video.sample_indices(self.config.search.fps)
        walk = indices[indices < start.index][::-1] if backward else indices[indices > start.index]
        samples = tracker.encoded_samples(self.predictor, video, walk)
        return tracker.follow(self.predictor, start, box, samples, self.config.tracker)

    def live(self, *, fps: float | None = None) -> LiveSession:
        """A session into which frames are pushed; those that come faster than `fps` are passed over."""
        return LiveSession(self, fps=fps)


def _opened(video: Video | str | Path) -> Video:
    return video if isinstance(video, Video) else Video.open(video)


def _asked(query: Query | str | Path) -> Query:
    return query if isinstance(query, Query) else Query.from_image(query)


class _Clock:
    """How long each step took; the logger `egohieraloc.localize` tells it at the level INFO."""

    def __init__(self, laps: tuple[tuple[str, float], ...] = ()) -> None:
        self.laps = laps
        self._last_s = time.perf_counter()

    def lap(self, name: str) -> None:
        now_s = time.perf_counter()
        self.laps += ((name, now_s - self._last_s),)
        logger.info("%s: %.1f s", name, now_s - self._last_s)
        self._last_s = now_s


class LiveSession:
    """`add` frames as they come, `ask` at any moment. Answers are to be saved before the session is closed:
    it forgets the frames."""

    def __init__(self, localizer: Localizer, *, fps: float | None = None) -> None:
        self._localizer = localizer
        self._video = LiveVideo(localizer.predictor, fps=fps, back=localizer._looks_back)

    def __enter__(self) -> LiveSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, frame: Rgb, time_s: float) -> bool:
        """Push the next frame; whether it was kept, or passed over because it came too soon."""
        return self._video.add(frame, time_s)

    def ask(self, query: Query | str | Path, *, progress: Progress = no_progress) -> Result:
        """Where was this last seen, among the frames so far?"""
        return self._localizer.ask(query, self._video.encoded(), progress=progress)

    def close(self) -> None:
        """Forget everything."""
        self._video.close()
