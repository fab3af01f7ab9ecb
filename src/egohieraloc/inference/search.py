"""A query against a whole video: encode what is not known yet, look coarsely, decode where it may matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from egohieraloc.config import SearchConfig
from egohieraloc.errors import VideoError
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Decoded, Predictor, PreparedQuery
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.types import Floats
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

Progress = Callable[[str, int, int], None]  # stage, done, total
ENCODE_BATCH = 8


def no_progress(stage: str, done: int, total: int) -> None:
    """Says nothing."""


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """A video whose features are in a store, up to `num_samples`."""

    store: FeatureStore
    frame_index: NDArray[np.int64]  # (N,) in the file
    time_s: Floats  # (N,)

    @property
    def num_chunks(self) -> int:
        return -(-len(self.frame_index) // CHUNK)

    def first(self, count: int) -> EncodedVideo:
        """Its first samples alone."""
        return EncodedVideo(self.store, self.frame_index[:count], self.time_s[:count])

    def chunk(self, number: int) -> PackedFeatures:
        packed = self.store.read(number)
        if packed is None:
            raise VideoError(f"Stored features in {self.store.folder} were damaged meanwhile. Ask again.")
        return packed

    def pick(self, samples: Sequence[int]) -> PackedFeatures:
        """Some samples in any order."""
        chunks = {number: self.chunk(number) for number in {sample // CHUNK for sample in samples}}
        places = [(chunks[sample // CHUNK], sample % CHUNK) for sample in samples]
        return PackedFeatures.cat([chunk[place : place + 1] for chunk, place in places])

    def take(self, first: int, last: int) -> Iterator[PackedFeatures]:
        """Samples first to last, inclusive, chunk by chunk."""
        for number in range(first // CHUNK, last // CHUNK + 1):
            start = number * CHUNK
            yield self.chunk(number)[max(first - start, 0) : last + 1 - start]


def encode_video(
    video: Video,
    predictor: Predictor,
    store: FeatureStore,
    everything: NDArray[np.int64],
    *,
    until_s: float | None = None,
    progress: Progress = no_progress,
) -> EncodedVideo:
    """Bring the store up to date with a video; only what is missing is decoded and encoded.

    `everything` are the numbers of all frames the store is for, increasing; those from `until_s` on can wait.
    """
    until_s = np.inf if until_s is None else until_s
    if not until_s >= 0:
        raise VideoError(f"The query time must be a number of seconds, 0 or more, got {until_s}.")
    wanted = int(np.count_nonzero(video.times_s[everything] < until_s))
    chunks = [everything[start : start + CHUNK] for start in range(0, wanted, CHUNK)]
    total = sum(map(len, chunks))
    missing = [number for number in range(len(chunks)) if not store.has(number)]
    done = total - sum(len(chunks[number]) for number in missing)
    for run in _runs(missing):
        frames = video.frames(np.concatenate([chunks[number] for number in run]))
        letterbox = Letterbox(video.info.width, video.info.height, predictor.config.input_size)
        last = None  # a damaged frame is stood for by a neighbour
        for number in run:
            parts: list[PackedFeatures] = []
            canvases, indices = [], chunks[number]
            for index in indices:
                if last is None or last.index < index:
                    last = next(frames, last)
                if last is None:
                    raise VideoError(f"{video.path}: no frame could be decoded near number {index}.")
                canvases.append(letterbox.apply(last.rgb))
                if len(canvases) == ENCODE_BATCH or index == indices[-1]:
                    first = sum(len(p) for p in parts)
                    these = indices[first : first + len(canvases)]
                    parts.append(predictor.encode(canvases, these, video.times_s[these]))
                    canvases = []
                    progress("encode", done + first + len(these), total)
            store.write(number, PackedFeatures.cat(parts))
            done += len(indices)
    return EncodedVideo(store, everything[:wanted], video.times_s[everything[:wanted]])


def store_features(packed: PackedFeatures, folder: Path, *, fps: float) -> EncodedVideo:
    """Features that are there already as a video of their own, `fps` samples a second."""
    store, count = FeatureStore(folder), len(packed)
    for number in range(-(-count // CHUNK)):
        store.write(number, packed[number * CHUNK : (number + 1) * CHUNK])
    return EncodedVideo(store, np.arange(count), np.arange(count) / fps)


def coarse_scores(
    predictor: Predictor, query: PreparedQuery, encoded: EncodedVideo, progress: Progress = no_progress
) -> Floats:
    """A first opinion (N,) on every sample, in logits, from the stored descriptors alone."""
    scores = []
    for number in range(encoded.num_chunks):
        found = encoded.store.read_match(number)
        if found is None:
            raise VideoError(f"Stored features in {encoded.store.folder} were damaged meanwhile. Ask again.")
        scores.append(predictor.coarse(query, *found))
        progress("look", number + 1, encoded.num_chunks)
    joined = np.concatenate(scores) if scores else np.zeros(0)
    return joined[: len(encoded.frame_index)].astype(np.float64)


def decode_where_it_matters(
    predictor: Predictor,
    query: PreparedQuery,
    encoded: EncodedVideo,
    coarse: Floats,
    config: SearchConfig,
    progress: Progress = no_progress,
) -> dict[int, Decoded]:
    """Decode the samples that may matter, by sample number; the state runs through each stretch of them."""
    chosen = promising(coarse, config)
    decoded: dict[int, Decoded] = {}
    done = 0
    for stretch in _runs([int(s) for s in np.flatnonzero(chosen)]):
        state = predictor.start(query)
        first = stretch[0]
        for packed in encoded.take(stretch[0], stretch[-1]):
            kept = [sample for sample in stretch[:: config.stride] if first <= sample < first + len(packed)]
            if kept:
                answers, state = predictor.decode(query, packed[np.array(kept) - first], state)
                decoded |= zip(kept, answers, strict=True)
            first += len(packed)
            done += len(packed)
            progress("decode", done, int(chosen.sum()))
    return decoded


def promising(coarse: Floats, config: SearchConfig) -> NDArray[np.bool_]:
    """Which samples to decode (N,): those within `coarse_margin` of the best and their neighbours.

    Of more than `max_decoded`, half are the most alike and half the latest: the best sets the bar that the
    last appearance must reach.
    """
    if coarse.size == 0:
        return np.zeros(0, bool)
    good = coarse >= coarse.max() - config.coarse_margin
    if config.max_decoded and good.sum() > config.max_decoded:
        half = -(-config.max_decoded // 2)
        kept = np.zeros_like(good)
        kept[np.argsort(coarse, kind="stable")[-half:]] = True
        kept[np.flatnonzero(good)[-half:]] = True
        good = kept
    return maximum_filter1d(good, 2 * config.coarse_neighbours + 1, mode="constant")


def _runs(numbers: list[int]) -> list[list[int]]:
    """Split increasing numbers into stretches without gaps."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
