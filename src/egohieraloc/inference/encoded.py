"""A video as the network knows it: its source, size and samples, and the features of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.inference.chunks import (
    PHASES,
    all_chunks,
    chunk_of,
    chunks_with,
    place_of,
    samples_of,
    sparse_chunks,
)
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.reading import Reading
from egohieraloc.inference.regions import RegionMemory, codebook
from egohieraloc.inference.store import FeatureStore
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats, Frame, Ints, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

ReadFrames = Callable[[Sequence[int]], Iterable[Frame]]


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """N samples of a video. Their features are in a store; what is not there, or damaged, is made again."""

    video: SampledVideo
    letterbox: Letterbox  # from frames to the network's canvas
    store: FeatureStore
    reading: Reading | None = None  # makes features; None: what is not in the store is lost
    memory: RegionMemory | None = None  # where to look; None: everywhere
    pixels: ReadFrames | None = None  # frames by rising number, where `reading` has none

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

    def first(self, count: int) -> EncodedVideo:
        """Its first samples alone."""
        return replace(self, video=self.video.first(count))

    def until(self, time_s: float | None) -> EncodedVideo:
        """Only what was seen before the query time; None: all."""
        if time_s is not None and not time_s >= 0:
            raise VideoError(f"The query time must be a number of seconds, 0 or more, got {time_s}.")
        end_s = np.inf if time_s is None else time_s
        video = self.video.first(int(np.count_nonzero(self.time_s < end_s)))
        return replace(self, video=replace(video, until_s=time_s))

    @property
    def is_stored(self) -> bool:
        """Whether all that a first reading makes is there; nothing is read."""
        return all(map(self.store.has, sparse_chunks(len(self))))

    def similarity(self, prototypes: NDArray[np.float32]) -> NDArray[np.float32]:
        """How similar each stretch is to a query's prototypes, from memory alone; not a number where there is
        none."""
        numbers = sparse_chunks(len(self))
        if self.memory is None:
            return np.full(len(numbers), np.nan, np.float32)
        return self.memory.similarity(prototypes, numbers)

    def remember(self, *, progress: Progress = no_progress) -> None:
        """Make those sparse chunks that are not in the memory; their features may have been thrown out."""
        numbers, has = sparse_chunks(len(self)), self.store.has
        if self.memory is not None:
            has = self.memory.has
            for number in numbers:  # kept, but a run was stopped before it was remembered
                known = None if has(number) else self.store.read_match(number)
                if known is not None and len(known[0]) == self._size(number):
                    self.memory.add(number, codebook(known[0]))
        self._fill(numbers, has, progress)

    def fill(self, numbers: Iterable[int], *, progress: Progress = no_progress) -> None:
        """Make those chunks that are not in the store, reading the video once."""
        self._fill(sorted(numbers), self.store.has, progress)

    def _fill(self, numbers: Sequence[int], has: Callable[[int], bool], progress: Progress) -> None:
        missing = [number for number in numbers if not has(number)]
        total = sum(map(self._size, numbers))
        done = total - sum(map(self._size, missing))
        for _, packed in self._made(missing):
            done += len(packed)
            progress("encode", done, total)
        if missing and self.memory is not None:
            self.memory.flush()

    def chunk(self, number: int) -> PackedFeatures:
        """The features of a chunk's samples: see chunks.py."""
        found = self.store.read(number)
        if found is None or len(found) < self._size(number):
            ((_, found),) = self._made([number])
        return found

    def descriptors(self, numbers: Iterable[int]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """The descriptors of the samples of some chunks, and their scale: all that a coarse look needs."""
        parts = [(self._descriptors(number), len(samples_of(number, len(self)))) for number in numbers]
        match, scale = (np.concatenate([part[k][:size] for part, size in parts]) for k in (0, 1))
        return match, scale

    def _descriptors(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        found = self.store.read_match(number)
        if found is None or len(found[0]) < self._size(number):
            packed = self.chunk(number)
            return packed.match, packed.match_scale
        return found

    def pick(self, samples: Sequence[int]) -> PackedFeatures:
        """Some samples in any order."""
        chunks = {number: self.chunk(number) for number in chunks_with(samples)}
        rows = ((chunks[chunk_of(sample)], place_of(sample)) for sample in samples)
        return PackedFeatures.cat([chunk[place : place + 1] for chunk, place in rows])

    def pick_descriptors(self, samples: Sequence[int]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Of some samples in any order, descriptors and their scale."""
        chunks = {number: self._descriptors(number) for number in chunks_with(samples)}
        match, scale = (
            np.stack([chunks[chunk_of(sample)][k][place_of(sample)] for sample in samples]) for k in (0, 1)
        )
        return match, scale

    def letterbox_at(self, sample: int) -> Letterbox:
        """From the frame of a sample to the canvas."""
        return self.letterbox

    def frames(self, samples: Iterable[int]) -> dict[int, Frame]:
        """The frames of some samples as the video has them; damaged ones are left out."""
        read = self.pixels or (self.reading.video if self.reading else Video.reopen(self.video.source)).frames
        numbers = {int(self.frame_index[sample]): sample for sample in samples}
        return {numbers[frame.index]: frame for frame in read(sorted(numbers))}

    def _made(self, numbers: Sequence[int]) -> Iterator[tuple[int, PackedFeatures]]:
        if not numbers:
            return
        if self.reading is None:
            raise VideoError(f"Features in {self.store.folder} are damaged or gone. Read the video again.")
        # Kept while the next one is encoded; an interruption waits for it.
        with ThreadPoolExecutor(1) as keeper:
            keeping = keeper.submit(lambda: None)
            for number, packed in self.reading.chunks(numbers):
                keeping.result()
                keeping = keeper.submit(self._keep, number, packed)
                yield number, packed
            keeping.result()

    def _keep(self, number: int, packed: PackedFeatures) -> None:
        self.store.write(number, packed)
        if self.memory is not None and number % PHASES == 0 and not self.memory.has(number):
            self.memory.add(number, codebook(packed.match))

    def _size(self, number: int) -> int:
        """Samples in a chunk. A chunk is whole, also where the query time lies within it."""
        return len(samples_of(number, len(self.reading.sampled if self.reading else self.video)))


def store_features(packed: PackedFeatures, folder: Path, letterbox: Letterbox, *, fps: float) -> EncodedVideo:
    """Features that are there already as a video of their own, of `fps` frames a second."""
    store, memory, count = FeatureStore(folder), RegionMemory(folder / "memory"), len(packed)
    write_features(packed, store, memory)
    info = VideoInfo(*letterbox.frame_size, Fraction(fps).limit_denominator(1000), count)
    sampled = SampledVideo(VideoSource(str(folder)), info, fps, np.arange(count), np.arange(count) / fps)
    return EncodedVideo(sampled, letterbox, store, memory=memory)


def write_features(
    packed: PackedFeatures, store: FeatureStore, memory: RegionMemory | None = None, *, start: int = 0
) -> None:
    """Put consecutive samples into a store, and a memory where given; the first one, sample `start`, begins a
    stretch."""
    for number in all_chunks(len(packed)):
        chosen = samples_of(number, len(packed))
        chunk = packed[chosen.start : chosen.stop : chosen.step]
        store.write(chunk_of(start) + number, chunk)
        if memory is not None and number % PHASES == 0:
            memory.add(chunk_of(start) + number, codebook(chunk.match))


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Split increasing numbers into stretches without gaps."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
