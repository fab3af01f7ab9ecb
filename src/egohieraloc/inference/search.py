"""One query against one encoded video: a coarse look at every sample, then decoding where it may matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.chunks import chunks_with, samples_of, sparse_chunks
from egohieraloc.inference.encoded import EncodedVideo, runs
from egohieraloc.inference.predict import Decoded, Predictor, PreparedQuery
from egohieraloc.inference.regions import prototypes
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats

LOOK_CHUNKS = 4  # looked at in one go


@dataclass(frozen=True, eq=False, kw_only=True)
class QuerySearch:
    """What a search needs to know."""

    query: PreparedQuery
    video: EncodedVideo
    predictor: Predictor
    config: SearchConfig
    temporal: TemporalConfig
    progress: Progress = no_progress

    def shortlist(self) -> Sequence[int]:
        """The sparse chunks to look at, in order: all of a short video, else those that the memory finds most
        similar, and those that it does not know."""
        numbers = sparse_chunks(len(self.video))
        if not 0 < self.config.shortlist < len(numbers):
            return numbers
        similarity = self.remembered_similarity()
        unknown = np.isnan(similarity)
        margin = self.config.coarse_margin / self.predictor.coarse_gain
        chosen = best_and_latest(np.where(unknown, -np.inf, similarity), margin, self.config.shortlist)
        return [numbers[place] for place in np.flatnonzero(chosen | unknown)]

    def remembered_similarity(self) -> NDArray[np.float32]:
        """How similar each stretch is to the query, from memory alone; not a number where there is none."""
        numbers, memory = sparse_chunks(len(self.video)), self.video.memory
        if memory is None:
            return np.full(len(numbers), np.nan, np.float32)
        return memory.similarity(prototypes(self.predictor.tokens(self.query)), numbers)

    def coarse_scores(self) -> Floats:
        """Coarse scores (N,) of all samples, in logits, from descriptors alone.

        Of the stretches on the shortlist every second sample is looked at; one between them gets the higher
        score of its neighbours. The others' scores are minus infinity.
        """
        count, scores = len(self.video), np.full(len(self.video), -np.inf)
        numbers = self.shortlist()
        self.video.fill(numbers, progress=self.progress)
        for start in range(0, len(numbers), LOOK_CHUNKS):
            some = numbers[start : start + LOOK_CHUNKS]
            samples = [sample for number in some for sample in samples_of(number, count)]
            scores[samples] = self.predictor.coarse(self.query, *self.video.descriptors(some))
            self.progress("look", start + len(some), len(numbers))
        return between(scores)

    def decode(self, coarse: Floats) -> dict[int, Decoded]:
        """Decode the samples that may matter, by sample number; the state runs through each stretch."""
        chosen = promising(coarse, self.config)
        self.video.fill(chunks_with(np.flatnonzero(chosen).tolist()), progress=self.progress)
        decoded: dict[int, Decoded] = {}
        done = 0
        for stretch in runs(np.flatnonzero(chosen).tolist()):
            state = self.predictor.start(self.query)
            first = stretch[0]
            for packed in self.video.take(stretch[0], stretch[-1]):
                last = first + len(packed)
                kept = [sample for sample in stretch[:: self.config.stride] if first <= sample < last]
                if kept:
                    answers, state = self.predictor.decode(self.query, packed[np.array(kept) - first], state)
                    decoded |= zip(kept, answers, strict=True)
                first = last
                done += len(packed)
                self.progress("decode", done, int(chosen.sum()))
        return decoded


def between(scores: Floats) -> Floats:
    """Scores (N,) where those of odd samples are the higher one of their neighbours'."""
    filled = scores.copy()
    after = np.append(scores[2::2], -np.inf)[: len(scores) // 2]
    filled[1::2] = np.maximum(scores[:-1:2], after)
    return filled


def best_and_latest(scores: Floats, margin: float, most: int) -> NDArray[np.bool_]:
    """Which of scores (N,) to keep, `most` of them or fewer: half are the best, and half the latest within
    `margin` of the best, which sets the bar that the last appearance must reach."""
    half = -(-most // 2)
    kept = np.zeros(scores.shape, bool)
    kept[np.argsort(scores, kind="stable")[-half:]] = True
    kept[np.flatnonzero(scores >= scores.max() - margin)[-half:]] = True
    return kept


def promising(coarse: Floats, config: SearchConfig) -> NDArray[np.bool_]:
    """Which samples to decode (N,): those within `coarse_margin` of the best and their neighbours.

    Of more than `max_decoded`, half are the most similar and half the latest.
    """
    if coarse.size == 0:
        return np.zeros(0, bool)
    good = coarse >= coarse.max() - config.coarse_margin
    if config.max_decoded and good.sum() > config.max_decoded:
        good = best_and_latest(coarse, config.coarse_margin, config.max_decoded)
    return np.asarray(maximum_filter1d(good, 2 * config.coarse_neighbours + 1, mode="constant"), bool)
