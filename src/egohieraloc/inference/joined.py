"""Videos in a row, searched as one: which of them hold what looks most like the query?

A library of hours in many files costs as much as one video of that length: one shortlist over what is
remembered of all, one look at it, few samples decoded, a look back at the best. The videos that seem to show
the object are then asked by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.inference.answer import judge
from egohieraloc.inference.chunks import CHUNK, PHASES, STRETCH, samples_of
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.probing import HOPE
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.second_look import best_samples
from egohieraloc.progress import Progress, no_progress
from egohieraloc.threads import usable_cores
from egohieraloc.types import Frame
from egohieraloc.video.letterbox import Letterbox

LATEST = 3  # of the appearances that are half as sure as the surest are looked back at in any case


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedVideo(EncodedVideo):
    """Videos of equal canvases, in order of time. Each begins a stretch: the last sample of the one before it
    is repeated up to there."""

    parts: Sequence[EncodedVideo]
    starts: Sequence[int]  # the stretch that each part begins

    @classmethod
    def of(cls, parts: Sequence[EncodedVideo]) -> JoinedVideo:
        lengths = [-(-len(part) // STRETCH) for part in parts]
        *starts, total = accumulate(lengths, initial=0)
        index, first = np.arange(total * STRETCH), parts[0]
        video = replace(first.video, frame_index=index, time_s=index / first.video.sample_fps, until_s=None)
        return cls(video, first.letterbox, first.store, parts=parts, starts=starts)

    def part_at(self, sample: int) -> int:
        """The number of the part that a sample belongs to."""
        return int(np.searchsorted(self.starts, sample // STRETCH, side="right")) - 1

    def similarity(self, prototypes: NDArray[np.float32]) -> NDArray[np.float32]:
        with ThreadPoolExecutor(usable_cores()) as pool:
            return np.concatenate(list(pool.map(lambda part: part.similarity(prototypes), self.parts)))

    def fill(self, numbers: Iterable[int], *, progress: Progress = no_progress) -> None:
        wanted: dict[int, list[int]] = {}
        for number in numbers:
            part, local, _ = self._place(number)
            wanted.setdefault(part, []).append(local)
        for part, locals_ in wanted.items():
            self.parts[part].fill(set(locals_), progress=progress)

    def chunk(self, number: int) -> PackedFeatures:
        part, local, rows = self._place(number)
        return self.parts[part].chunk(local)[rows]

    def letterbox_at(self, sample: int) -> Letterbox:
        return self.parts[self.part_at(sample)].letterbox

    def frames(self, samples: Iterable[int]) -> dict[int, Frame]:
        """As of one video; those of a part that cannot be read are left out."""
        wanted: dict[int, dict[int, int]] = {}
        for sample in samples:
            part = self.part_at(sample)
            local = min(sample - self.starts[part] * STRETCH, len(self.parts[part]) - 1)
            wanted.setdefault(part, {})[local] = sample
        frames: dict[int, Frame] = {}
        for part, of_local in wanted.items():
            with suppress(VideoError, OSError):
                read = self.parts[part].frames(of_local)
                frames |= {of_local[local]: frame for local, frame in read.items()}
        return frames

    def _descriptors(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        part, local, rows = self._place(number)
        match, scale = self.parts[part]._descriptors(local)
        return match[rows], scale[rows]

    def _place(self, number: int) -> tuple[int, int, NDArray[np.int64]]:
        """The part of a chunk, the chunk's number there, and which of its samples stand for CHUNK of them."""
        part = self.part_at(number // PHASES * STRETCH)
        local = number - PHASES * self.starts[part]
        count = len(samples_of(local, len(self.parts[part])))
        if not count:  # a stretch that begins with its only sample has no odd ones
            local, count = local - 1, 1
        return part, local, np.minimum(np.arange(CHUNK), count - 1)


def likely_parts(search: QuerySearch, joined: JoinedVideo) -> dict[int, float]:
    """The parts that show the object by what a look at all of them at once says, each with its confidence;
    where none does, the one that comes closest."""
    coarse = search.coarse_scores()
    decoded = search.decode(coarse, outlined=False)
    choice = search.choice(decoded)
    if choice.chosen is None:
        return {joined.part_at(int(coarse.argmax())): 0.0}
    found = [choice.chosen, *choice.alternatives]
    peaks = {(a, b): float(choice.curve.smooth[a : b + 1].max()) for a, b in choice.curve.intervals}
    late = [i for i, peak in peaks.items() if peak >= HOPE * max(peaks.values())][-LATEST:]
    found += [interval for interval in late if interval not in found]
    boxed = search.outlined(decoded, [s for i in found for s in best_samples(decoded, i, 1)])
    seen = judge(search, boxed, replace(choice, alternatives=tuple(found[1:]))).candidates
    sure = [c for c in seen if c.score >= c.threshold] or [max(seen, key=lambda c: c.score)]
    return {joined.part_at(c.interval[1]): c.score for c in sorted(sure, key=lambda c: c.score)}
