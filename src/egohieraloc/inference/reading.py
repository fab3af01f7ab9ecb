"""From frames of a video to chunks of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from egohieraloc.errors import VideoError
from egohieraloc.inference.chunks import CHUNK, PHASES, STRETCH, samples_of
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.types import Frame, Rgb, SampledVideo
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video


@dataclass(frozen=True, eq=False)
class Reading:
    """Makes any chunk of a video, at any time; the video is opened when the first one is wanted."""

    sampled: SampledVideo  # all samples, also those after the query time
    letterbox: Letterbox
    predictor: Predictor
    opened: Video | None = None

    @cached_property
    def video(self) -> Video:
        if self.opened is not None:
            return self.opened
        video = Video.reopen(self.sampled.source)
        index = self.sampled.frame_index
        same = video.info == self.sampled.info
        if not (same and np.array_equal(video.times_s[index], self.sampled.time_s)):
            raise VideoError(
                f"{video.path} is another video than the one that was read before. "
                "Put the old one back, or read the new one."
            )
        return video

    def chunks(self, numbers: Sequence[int]) -> Iterator[tuple[int, PackedFeatures]]:
        """Chunks by increasing number, encoded some at a time while the video is read once."""
        count, some = len(self.sampled), max(1, self.predictor.encode_batch // CHUNK)
        samples = sorted(sample for number in numbers for sample in samples_of(number, count))
        canvases: dict[int, Rgb] = {}
        with closing(self.video.canvases(self.sampled.frame_index[samples], self.letterbox)) as frames:
            ahead = next(frames, None)
            for batch in (numbers[start : start + some] for start in range(0, len(numbers), some)):
                stretch = batch[-1] // PHASES
                canvases = {index: rgb for index, rgb in canvases.items() if index >= self._begin(batch[0])}
                end = self.sampled.frame_index[min((stretch + 1) * STRETCH, count) - 1]
                while ahead is not None and ahead.index <= end:
                    canvases[ahead.index] = ahead.rgb
                    ahead = next(frames, None)
                yield from self._encoded(batch, canvases)

    def _begin(self, number: int) -> int:
        """The first frame of the stretch that a chunk belongs to."""
        return int(self.sampled.frame_index[number // PHASES * STRETCH])

    def _encoded(
        self, numbers: Sequence[int], canvases: Mapping[int, Rgb]
    ) -> Iterator[tuple[int, PackedFeatures]]:
        chunks = [self._of_chunk(number, canvases) for number in numbers]
        packed = self.predictor.encode([canvas for chunk in chunks for canvas in chunk])
        starts = accumulate(map(len, chunks), initial=0)
        for number, (start, end) in zip(numbers, pairwise(starts), strict=True):
            yield number, packed[start:end]

    def _of_chunk(self, number: int, canvases: Mapping[int, Rgb]) -> list[Rgb]:
        """A canvas for every sample of a chunk; one of the same chunk stands in for a damaged one, so that it
        does not matter what else was read."""
        wanted = self._frame_numbers(number)
        good = [index for index in wanted if index in canvases]
        if not good:
            return [self._nearest(number)] * len(wanted)
        return [canvases[next((g for g in good if g >= index), good[-1])] for index in wanted]

    def _nearest(self, number: int) -> Rgb:
        """The first canvas after a chunk of which nothing can be decoded, or else the last before it."""
        frame = next(self._around(number), None)
        if frame is None:
            index = self._frame_numbers(number)[0]
            raise VideoError(f"{self.video.path}: no frame could be decoded near number {index}.")
        return self.letterbox.apply(frame.rgb)

    def _around(self, number: int) -> Iterator[Frame]:
        samples, every = samples_of(number, len(self.sampled)), self.sampled.frame_index
        yield from self.video.frames(every[samples[-1] + 1 :])
        for end in range(samples[0], 0, -STRETCH):
            yield from reversed(list(self.video.frames(every[max(end - STRETCH, 0) : end])))

    def _frame_numbers(self, number: int) -> list[int]:
        samples = samples_of(number, len(self.sampled))
        return [int(index) for index in self.sampled.frame_index[samples.start : samples.stop : samples.step]]
