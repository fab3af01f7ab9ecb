"""Videos in a row, searched as one: which of them hold what looks most like the query?

A library of hours in many files costs as much as one video of that length: one shortlist over what is
remembered of all, one look at it, few samples decoded. Nothing is answered here; a video that is likely to
show the object is then asked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from egohieraloc.inference.chunks import CHUNK, PHASES, STRETCH, samples_of
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.probing import HOPE
from egohieraloc.inference.search import QuerySearch
from egohieraloc.progress import Progress, no_progress
from egohieraloc.threads import usable_cores

LATEST = 3  # videos that are likely because they are the last ones that may show it


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


def likely_parts(search: QuerySearch, joined: JoinedVideo, most: int) -> dict[int, float]:
    """The parts that may show the object, each with how sure a first look is of it: `most` of the surest
    appearances, and the latest ones that are half as sure."""
    coarse = search.coarse_scores()
    curve = search.choice(search.decode(coarse, outlined=False)).curve
    peaks = [(end, float(curve.smooth[start : end + 1].max())) for start, end in curve.intervals]
    highest = max((peak for _, peak in peaks), default=0.0)
    best = sorted(peaks, key=lambda seen: seen[1])[-most:]
    latest = [seen for seen in peaks if seen[1] >= HOPE * highest][-LATEST:]
    likely = {} if peaks else {joined.part_at(int(coarse.argmax())): 0.0}
    for end, peak in (*best, *latest):
        part = joined.part_at(end)
        likely[part] = max(peak, likely.get(part, 0.0))
    return likely
