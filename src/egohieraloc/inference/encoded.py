"""A video as the network knows it: its source, size and samples, and the stored features of each sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats, Frame, Ints, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

ENCODE_BATCH = 8
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """N samples of a video whose features are in a store."""

    video: SampledVideo
    letterbox: Letterbox  # from frames to the network's canvas
    store: FeatureStore

    def __len__(self) -> int:
        return len(self.video)

    @property
    def frame_index(self) -> Ints:
        """(N,) numbers of the samples' frames in the file."""
        return self.video.frame_index

    @property
    def time_s(self) -> Floats:
        """(N,)"""
        return self.video.time_s

    @property
    def num_chunks(self) -> int:
        return -(-len(self) // CHUNK)

    def first(self, count: int) -> EncodedVideo:
        """Its first samples alone."""
        return replace(self, video=self.video.first(count))

    def chunk(self, number: int) -> PackedFeatures:
        return self._there(self.store.read(number))

    def descriptors(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """The descriptors of a chunk alone, and their scale: all that a coarse look needs."""
        return self._there(self.store.read_match(number))

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

    def _there(self, found: T | None) -> T:
        if found is None:
            raise VideoError(f"Stored features in {self.store.folder} were damaged meanwhile. Ask again.")
        return found


def encode_video(
    video: Video,
    sampled: SampledVideo,
    predictor: Predictor,
    store: FeatureStore,
    *,
    until_s: float | None = None,
    progress: Progress = no_progress,
) -> EncodedVideo:
    """Bring the store up to date with a video; only what is missing is decoded and encoded.

    `sampled` are all samples the store is for; those from `until_s` on can wait.
    """
    end_s = np.inf if until_s is None else until_s
    if not end_s >= 0:
        raise VideoError(f"The query time must be a number of seconds, 0 or more, got {until_s}.")
    letterbox = Letterbox(video.info.width, video.info.height, predictor.config.input_size)
    searched = sampled.first(int(np.count_nonzero(sampled.time_s < end_s)))
    encoded = EncodedVideo(replace(searched, until_s=until_s), letterbox, store)
    # The last chunk is encoded whole, also beyond `until_s`: a chunk is there or not.
    chunks = [sampled.frame_index[start : start + CHUNK] for start in range(0, len(encoded), CHUNK)]
    missing = [number for number in range(len(chunks)) if not store.has(number)]
    total = sum(map(len, chunks))
    done = total - sum(len(chunks[number]) for number in missing)
    for run in runs(missing):
        wanted = np.concatenate([chunks[number] for number in run])
        frames = _with_stand_ins(video.path, video.canvases(wanted, letterbox), wanted)
        for number in run:
            parts: list[PackedFeatures] = []
            for start in range(0, len(chunks[number]), ENCODE_BATCH):
                indices = chunks[number][start : start + ENCODE_BATCH]
                canvases = [next(frames).rgb for _ in indices]
                parts.append(predictor.encode(canvases, indices, video.times_s[indices]))
                done += len(indices)
                progress("encode", done, total)
            store.write(number, PackedFeatures.cat(parts))
    return encoded


def _with_stand_ins(path: Path, frames: Iterator[Frame], indices: Ints) -> Iterator[Frame]:
    """A frame for every number; a neighbour stands in for a damaged one."""
    last = None
    for index in indices:
        if last is None or last.index < index:
            last = next(frames, last)
        if last is None:
            raise VideoError(f"{path}: no frame could be decoded near number {index}.")
        yield last


def store_features(packed: PackedFeatures, folder: Path, *, canvas: int, fps: float) -> EncodedVideo:
    """Features that are there already as a video of their own, of `fps` square frames a second.

    Its frames are the network's canvas, `canvas` pixels wide and high.
    """
    store, count = FeatureStore(folder), len(packed)
    for number in range(-(-count // CHUNK)):
        store.write(number, packed[number * CHUNK : (number + 1) * CHUNK])
    info = VideoInfo(canvas, canvas, Fraction(fps).limit_denominator(1000), count)
    sampled = SampledVideo(VideoSource(str(folder)), info, fps, np.arange(count), np.arange(count) / fps)
    return EncodedVideo(sampled, Letterbox(canvas, canvas, canvas), store)


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Split increasing numbers into stretches without gaps."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
