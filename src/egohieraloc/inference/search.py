"""One query against one encoded video: a coarse look at every sample, then decoding where it may matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.chunks import STRETCH, chunks_with, samples_of, sparse_chunks
from egohieraloc.inference.cuts import NEIGHBOURS_S, is_cut
from egohieraloc.inference.encoded import EncodedVideo, runs
from egohieraloc.inference.predict import Decoded, Predictor, PreparedQuery
from egohieraloc.inference.probing import Piece, Probed, joined_pieces, pieces_of
from egohieraloc.inference.propagation import propagated
from egohieraloc.inference.regions import prototypes
from egohieraloc.inference.temporal import TemporalChoice, choose_interval, score_curve
from egohieraloc.models.qam import QamState
from egohieraloc.models.weights import Calibration
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats

Look = Literal["first", "back", "second"]
LOOK_CHUNKS = 4  # looked at in one go
SAMPLES_PER_READ = 8  # samples of a stretch read from the store in one go, at least
MAX_LENGTH_RATIO = 1.25  # of stretches decoded side by side


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
        return self.video.similarity(prototypes(self.predictor.tokens(self.query)))

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

    def decode(self, coarse: Floats, *, outlined: bool = True) -> dict[int, Decoded]:
        """Decode the samples that may matter, by sample number: see probing.py. `outlined`: those that an
        appearance holds have masks; others may have none in any case."""
        chosen = np.flatnonzero(promising(coarse, self.config)).tolist()
        stretches = [stretch[:: self.config.stride] for stretch in runs(chosen)]
        if self.config.propagate_above is not None:
            return self._propagate(stretches)
        if not (self.config.probe and self.config.max_decoded and self.predictor.can_follow):
            return self._decode(stretches)
        pieces = pieces_of(stretches, coarse, self.config.probe)
        probed = Probed(pieces, self._probes(pieces), np.zeros(len(pieces), bool), self.config.stride)
        decoded: dict[int, Decoded] = {}
        while wanted := probed.next(self.choice(decoded), self.rule, whole=self.look == "second"):
            joined = joined_pieces([pieces[number] for number in wanted])
            before = {samples[0]: before_in_stretch(samples[0], stretches[run]) for run, samples in joined}
            joined_samples = [samples for _, samples in joined]
            decoded |= self._decode(joined_samples, before=before, outlined=False, known=len(decoded))
            probed.done[wanted] = True
        if not outlined:
            return decoded
        choice = self.choice(decoded)
        found = (choice.chosen, *choice.alternatives) if choice.chosen else ()
        return self.outlined(decoded, [s for start, end in found for s in range(start, end + 1)])

    def outlined(self, decoded: Mapping[int, Decoded], samples: Iterable[int]) -> dict[int, Decoded]:
        """What was decoded, with masks at least for some samples."""
        waiting = [s for s in samples if s in decoded and decoded[s].cells is not None]
        drawn: dict[int, Decoded] = {}
        for start in range(0, len(waiting), self.predictor.largest_batch):
            some = waiting[start : start + self.predictor.largest_batch]
            seen = self.predictor.outlined(self.video.pick(some), [decoded[sample] for sample in some])
            drawn |= zip(some, seen, strict=True)
        return {**decoded, **drawn}

    def _probes(self, pieces: Sequence[Piece]) -> Floats:
        samples = [piece.probed for piece in pieces if piece.probed is not None]
        self.video.fill(chunks_with(samples), progress=self.progress)
        scores: dict[int, float] = {}
        for start in range(0, len(samples), self.predictor.largest_batch):
            some = samples[start : start + self.predictor.largest_batch]
            scores |= zip(
                some, self.predictor.scores(self.query, self.video.pick(some)).tolist(), strict=True
            )
        return np.array([0.0 if piece.probed is None else scores[piece.probed] for piece in pieces])

    def choice(self, decoded: Mapping[int, Decoded]) -> TemporalChoice:
        """The temporal rule applied to decoded samples; those that were not decoded score 0."""
        stride = self.config.stride
        raw = score_curve(scores_of(decoded), len(self.video), stride)
        cuts: list[int] = []
        if self.sees_cuts:
            pairs = ((sample, decoded.get(sample - stride), decoded[sample]) for sample in decoded)
            cuts = [sample for sample, before, here in pairs if before and is_cut(before.scene, here.scene)]
        return choose_interval(raw, self.video.time_s, self.rule, cuts=cuts)

    @property
    def sees_cuts(self) -> bool:
        """Whether neighbouring samples are so near in time that they differ much only across a cut."""
        apart_s = np.diff(self.video.time_s[:: self.config.stride])
        return len(apart_s) > 0 and float(np.median(apart_s)) <= NEIGHBOURS_S

    @property
    def look(self) -> Look:
        return last_look(self.config, self.temporal, self.predictor.calibration)

    @property
    def rule(self) -> TemporalConfig:
        """The temporal rule, with as many candidates as are weighed. `complete` finds the rest of one that
        was decoded in part and turns out to be the answer."""
        wanted = max(self.temporal.max_alternatives, self.config.look_appearances - 1)
        return self.temporal if self.look == "first" else replace(self.temporal, max_alternatives=wanted)

    def _decode(
        self,
        stretches: list[list[int]],
        *,
        before: Mapping[int, Sequence[int]] | None = None,
        outlined: bool = True,
        known: int = 0,
    ) -> dict[int, Decoded]:
        """Decode stretches of samples. The state runs through each; those of similar length go side by side.

        before: by first sample of a stretch, samples through which the state runs before it; outlined: with
        masks, which can wait; known: so many samples were decoded before, for the progress.
        """
        ahead = before or {}
        self.video.fill(
            chunks_with(sample for some in (*stretches, *ahead.values()) for sample in some),
            progress=self.progress,
        )
        decoded: dict[int, Decoded] = {}
        total = known + sum(map(len, stretches))
        for group in groups_of_similar_length(stretches, self.predictor.largest_batch):
            states = [self._state_after(ahead.get(stretch[0], ())) for stretch in group]
            state = states[0].joined(states)
            size = max(SAMPLES_PER_READ, self.predictor.largest_batch // len(group))
            for block in blocks_side_by_side(group, size):
                features = self.video.pick(block)
                answers, state = self.predictor.decode(self.query, features, state, outlined=outlined)
                for sample, said in zip(block, answers, strict=True):
                    decoded.setdefault(sample, said)
                self.progress("decode", known + len(decoded), total)
        return decoded

    def _state_after(self, samples: Sequence[int]) -> QamState:
        start = self.predictor.start(self.query)
        if not samples:
            return start
        return self.predictor.follow(self.query, *self.video.pick_descriptors(samples), start)

    def _propagate(self, stretches: Sequence[Sequence[int]]) -> dict[int, Decoded]:
        """Decode sample by sample: each mask is passed on to the next of its stretch."""
        self.video.fill(chunks_with(s for stretch in stretches for s in stretch), progress=self.progress)
        decoded: dict[int, Decoded] = {}
        total = sum(map(len, stretches))
        for stretch in stretches:
            packed = (self.video.pick([sample]) for sample in stretch)
            answers = propagated(self.predictor, self.query, packed, self.config.propagate_above)
            for sample, said in zip(stretch, answers, strict=True):
                decoded[sample] = said
                self.progress("decode", len(decoded), total)
        return decoded


def last_look(config: SearchConfig, temporal: TemporalConfig, calibration: Calibration) -> Look:
    """What decides between candidates: a second look from close by, a look back at the query's image, or, in
    the paper and with weights that were calibrated for neither, the first look."""
    if temporal.literal:
        return "first"
    if config.second_look and calibration.looks.second:
        return "second"
    return "back" if config.look_back and calibration.back.second else "first"


def scores_of(decoded: Mapping[int, Decoded]) -> dict[int, float]:
    return {sample: said.score for sample, said in decoded.items()}


def before_in_stretch(sample: int, run: Sequence[int]) -> list[int]:
    """The samples of a run before one of them, in the same stretch: its chunks are read in any case."""
    return [other for other in run if other < sample and other // STRETCH == sample // STRETCH]


def groups_of_similar_length(stretches: list[list[int]], largest: int) -> list[list[list[int]]]:
    """Stretches in groups of a power of two, at most `largest`, the shortest first. The end of a shorter one
    is decoded again until the longest of its group ends, so a much longer one begins another group."""
    ordered, groups = sorted(stretches, key=len), []
    while ordered:
        alike = sum(len(stretch) <= MAX_LENGTH_RATIO * len(ordered[0]) for stretch in ordered)
        count = min(largest, 1 << alike.bit_length() - 1)
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
