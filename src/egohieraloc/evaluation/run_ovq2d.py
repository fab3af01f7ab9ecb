"""VQ2D online (ESOM, arXiv 2411.16934): the query comes when the frames have passed.

Samples come in one by one. Their features are remembered until the budget is spent; then one sample is
forgotten for each that comes, by a rule that knows neither the query nor what comes later. Frames themselves
are not remembered, so there is no second look. Without a budget this is VQ2D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.base import ClipQueries, Ints
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.errors import ConfigError
from egohieraloc.evaluation.run_vq2d import ClipSearch, Vq2dAnswers
from egohieraloc.inference.chunks import STRETCH, all_chunks, samples_of
from egohieraloc.inference.cuts import mean_descriptors
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.store import FeatureStore
from egohieraloc.localize import Localizer
from egohieraloc.video.reader import Video

# Passed frames cannot be read again, and the few samples that are kept are all looked at.
FEATURES_ALONE = ("search.second_look=false", "search.look_back=false", "search.shortlist=0")


class Forget(StrEnum):
    """Which sample goes when there is one too many."""

    oldest = "oldest"
    least_novel = "least-novel"  # the one most similar to the one kept after it


@dataclass(frozen=True)
class Budget:
    """How much of what has passed is remembered."""

    size_bytes: float
    forget: Forget = Forget.least_novel


@dataclass(frozen=True, eq=False, kw_only=True)
class Ovq2dAnswers(Vq2dAnswers):
    """VQ2D with a budget; None: without one."""

    budget: Budget | None

    def search(self, clip: ClipQueries[VisualQuery]) -> ClipSearch:
        given = self.system.localizer, self.video(clip), clip.queries, clip.fps
        return ClipSearch(*given) if self.budget is None else OnlineSearch(*given, self.budget)


class OnlineSearch(ClipSearch):
    """A clip of which a query finds only what is still remembered at its time."""

    def __init__(
        self,
        localizer: Localizer,
        video: Video,
        queries: tuple[VisualQuery, ...],
        fps: float,
        budget: Budget,
    ) -> None:
        super().__init__(localizer, video, queries, fps)
        self._budget = budget
        self.encoded.fill(all_chunks(len(self.encoded)))

    def remembered(self, count: int) -> tuple[Ints, EncodedVideo]:
        kept = np.flatnonzero(self._forgotten_at[:count] > count)
        return kept, keeping(self.encoded, kept)

    @cached_property
    def _forgotten_at(self) -> Ints:
        return forgotten_at(self.encoded, self._budget)


def forgotten_at(encoded: EncodedVideo, budget: Budget) -> Ints:
    """(N,) how many samples have come when each is forgotten; more than N where it never is."""
    count = len(encoded)
    if count == 0:
        return np.zeros(0, np.int64)
    needed = encoded.chunk(0).bytes_per_sample
    most = int(budget.size_bytes // needed)
    if most < 1:
        raise ConfigError(
            f"A sample takes {needed / 1e6:.3f} MB, more than the budget: give a larger --budget-mb."
        )
    if budget.forget is Forget.oldest:
        return np.arange(count) + most + 1
    parts = [encoded.pick(range(s, min(s + STRETCH, count))) for s in range(0, count, STRETCH)]
    return least_novel_forgotten_at(np.concatenate([mean_descriptors(p.match) for p in parts]), most)


def keeping(encoded: EncodedVideo, kept: Ints) -> EncodedVideo:
    """A video of which only some samples are still known."""
    video = encoded.video
    samples = replace(video, frame_index=video.frame_index[kept], time_s=video.time_s[kept])
    return replace(encoded, video=samples, store=KeptFeatures(encoded, kept), reading=None, memory=None)


def least_novel_forgotten_at(looks: NDArray[np.float32], most: int) -> Ints:
    """For samples that look like unit vectors (N, D), of which `most` are remembered: how many have come when
    each is forgotten; more than N where it never is.

    The one that goes is the most similar to the one kept after it, the oldest of equals. The newest stays.
    """
    count = len(looks)
    forgotten_at: Ints = np.full(count, count + 1, np.int64)
    kept: list[int] = []
    similarity: list[float] = []  # of each but the newest to the one kept after it
    for sample in range(count):
        similarity += [float(looks[last] @ looks[sample]) for last in kept[-1:]]
        kept.append(sample)
        if len(kept) > most:
            gone = int(np.argmax(similarity))
            forgotten_at[kept.pop(gone)] = sample + 1
            similarity.pop(gone)
            if gone > 0:  # the one before it has another after it now
                similarity[gone - 1] = float(looks[kept[gone - 1]] @ looks[kept[gone]])
    return forgotten_at


class KeptFeatures(FeatureStore):
    """Some samples of a video as if there were no others."""

    def __init__(self, whole: EncodedVideo, kept: Ints) -> None:
        super().__init__(whole.store.folder)
        self._whole, self._kept = whole, kept.tolist()

    def has(self, number: int) -> bool:
        return True

    def read(self, number: int) -> PackedFeatures:
        return self._whole.pick([self._kept[place] for place in samples_of(number, len(self._kept))])

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        packed = self.read(number)
        return packed.match, packed.match_scale
