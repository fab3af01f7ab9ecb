"""One query against one encoded video: a coarse look at every sample, then decoding where it may matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.encoded import EncodedVideo, runs
from egohieraloc.inference.predict import Decoded, Predictor, PreparedQuery
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerySearch:
    """What a search needs to know."""

    query: PreparedQuery
    video: EncodedVideo
    predictor: Predictor
    config: SearchConfig
    temporal: TemporalConfig
    progress: Progress = no_progress

    def coarse_scores(self) -> Floats:
        """Coarse scores (N,) of all samples, in logits, from the stored descriptors alone."""
        scores = [np.zeros(0, np.float32)]
        for number in range(self.video.num_chunks):
            scores.append(self.predictor.coarse(self.query, *self.video.descriptors(number)))
            self.progress("look", number + 1, self.video.num_chunks)
        return np.concatenate(scores)[: len(self.video)].astype(np.float64)

    def decode(self, coarse: Floats) -> dict[int, Decoded]:
        """Decode the samples that may matter, by sample number.

        The state runs through each stretch; stretches of similar length go side by side.
        """
        stretches = [
            stretch[:: self.config.stride]
            for stretch in runs(np.flatnonzero(promising(coarse, self.config)).tolist())
        ]
        decoded: dict[int, Decoded] = {}
        total = sum(map(len, stretches))
        for group in groups_of_similar_length(stretches, self.predictor.largest_batch):
            state = self.predictor.start(self.query, runs=len(group))
            for block in blocks_side_by_side(group, self.predictor.largest_batch // len(group)):
                answers, state = self.predictor.decode(self.query, self.video.pick(block), state)
                for sample, said in zip(block, answers, strict=True):
                    decoded.setdefault(sample, said)
                self.progress("decode", len(decoded), total)
        return decoded


def groups_of_similar_length(stretches: list[list[int]], largest: int) -> list[list[list[int]]]:
    """Stretches in groups of a power of two, at most `largest`, the shortest first."""
    ordered, groups = sorted(stretches, key=len), []
    while ordered:
        count = min(largest, 1 << len(ordered).bit_length() - 1)
        groups.append(ordered[:count])
        ordered = ordered[count:]
    return groups


def blocks_side_by_side(stretches: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Up to `size` samples of each stretch at a time, stretch by stretch; one that has ended repeats its last
    sample, whose first answer counts."""
    longest = max(map(len, stretches))
    for start in range(0, longest, size):
        times = range(start, min(start + size, longest))
        yield [stretch[min(time, len(stretch) - 1)] for stretch in stretches for time in times]


def promising(coarse: Floats, config: SearchConfig) -> NDArray[np.bool_]:
    """Which samples to decode (N,): those within `coarse_margin` of the best and their neighbours.

    Of more than `max_decoded`, half are the most similar and half the latest: the best sets the bar that the
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
    return np.asarray(maximum_filter1d(good, 2 * config.coarse_neighbours + 1, mode="constant"), bool)
