"""The whole appearance: from the part that looks like the query to all that looks like either.

An object turns and is cut off while it is in view. Its best sample shows it in the same light and from nearly
the same side as its neighbours, so with the query it finds them where the query alone does not. A walk from
the best sample, both ways and from stored features alone, ends where the object is no longer recognised. As
far as the query itself is sure nothing is decoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import TemporalConfig
from egohieraloc.inference.answer import Answer, predictions_of
from egohieraloc.inference.cuts import is_cut
from egohieraloc.inference.predict import Decoded, SearchTemplate
from egohieraloc.inference.search import QuerySearch, blocks_side_by_side
from egohieraloc.inference.steady import steady
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import NotFound

WALK_SAMPLES = 4  # samples of a walk decoded at a time


def completed(search: QuerySearch, found: Answer) -> Answer:
    """The answer with its whole appearance; candidates that turn out to be part of it are left out."""
    config = search.temporal
    if isinstance(found.track, NotFound) or config.literal or config.complete > 1:
        return found
    (first, last), joined = complete(search, found.decoded, (found.track.start, found.track.end))
    longer = max(search.video.letterbox.content_size)
    corrected = steady(joined, (first, last))
    steadied = {**joined, **corrected}
    if first < found.track.start:
        first = _before_a_leap(steadied, range(found.track.start, first - 1, -1), longer)
    if found.track.end < last:
        last = _before_a_leap(steadied, range(found.track.end, last + 1), longer)
    track = replace(found.track, predictions=predictions_of(search, steadied, (first, last)))
    others = tuple(t for t in found.alternatives if t.end < first or last < t.start)
    if corrected:  # the other object that looks like it
        beside = {sample: joined[sample] for sample in corrected}
        where = min(beside), max(beside)
        others = (replace(found.track, predictions=predictions_of(search, beside, where)), *others)
    return replace(found, track=track, alternatives=others[: config.max_alternatives], decoded=steadied)


def _before_a_leap(decoded: Mapping[int, Decoded], walk: Sequence[int], longer: int) -> int:
    """The last sample of a walk that can still show the object: half the image's longer side away it is
    another one."""
    known = [sample for sample in walk if sample in decoded]
    for here, there in pairwise(known):
        way = np.subtract(decoded[there].box.center, decoded[here].box.center)
        if np.hypot(*way) > longer / 2:
            return here
    return walk[-1]


def complete(
    search: QuerySearch, decoded: Mapping[int, Decoded], found: Interval
) -> tuple[Interval, dict[int, Decoded]]:
    """The interval with its neighbours, and what is known of its samples.

    Where the query scores high its own score counts; elsewhere the higher of both.
    """
    known = [sample for sample in range(found[0], found[1] + 1) if sample in decoded]
    if not known:
        return found, dict(decoded)
    config, stride = search.temporal, search.config.stride
    best = max(known, key=lambda sample: decoded[sample].score)
    shown = search.predictor.template_from_sample(search.video.pick([best]), decoded[best])
    template = shown.beside(search.query)
    start = max(0, found[0] - config.complete_reach)
    end = min(len(search.video) - 1, found[1] + config.complete_reach)
    back = _Walk(range(best, start - 1, -stride), found[0], config, sees_cuts=search.sees_cuts)
    forth = _Walk(range(best, end + 1, stride), found[1], config, sees_cuts=search.sees_cuts)
    for walk in (back, forth):  # what the query itself is sure of need not be decoded again
        sure = list(takewhile(lambda s: s in decoded and decoded[s].score >= config.complete, walk.samples))
        walk.see(sure, [decoded[sample] for sample in sure])
    _walk_side_by_side(search, template, [back, forth])
    joined = dict(decoded)
    for sample, other in (back.seen | forth.seen).items():
        own = joined.get(sample)
        if own is None or own.score < min(other.score, config.complete):
            joined[sample] = other
    whole = back.farthest, forth.farthest
    return whole, search.outlined(joined, range(whole[0], whole[1] + 1))


class _Walk:
    """Samples from the best one outwards, and what has been seen; up to `edge` none is a miss, but a cut ends
    the appearance in any case."""

    def __init__(self, samples: Sequence[int], edge: int, config: TemporalConfig, *, sees_cuts: bool) -> None:
        self.samples, self._edge, self._config, self._sees_cuts = samples, edge, config, sees_cuts
        self.seen: dict[int, Decoded] = {}
        self.farthest = edge  # that shows the object
        self._missed, self._cut = 0, False
        self._scene: NDArray[np.float32] | None = None  # of the sample seen last

    @property
    def ended(self) -> bool:
        """At the last sample or a cut, or where the object is no longer recognised."""
        return self._cut or self._missed > self._config.bridge or len(self.seen) == len(self.samples)

    def see(self, block: Sequence[int], answers: Sequence[Decoded]) -> None:
        """The next samples, and what is said of them."""
        for sample, answer in zip(block, answers, strict=True):
            if self._sees_cuts and is_cut(self._scene, answer.scene):
                self._cut = True
                self.farthest = min(self.samples[len(self.seen) - 1], self.farthest, key=self._away)
            if self.ended:
                return
            self._see(sample, answer)

    def _see(self, sample: int, answer: Decoded) -> None:
        self.seen[sample], self._scene = answer, answer.scene
        if answer.score >= self._config.complete:
            self.farthest, self._missed = max(sample, self.farthest, key=self._away), 0
        elif self._away(sample) > self._away(self._edge):
            self._missed += 1

    def _away(self, sample: int) -> int:
        return abs(sample - self.samples[0])


def _walk_side_by_side(search: QuerySearch, template: SearchTemplate, walks: Sequence[_Walk]) -> None:
    """Decode block by block along each walk until all have ended."""
    predictor = search.predictor
    total = sum(len(walk.samples) for walk in walks)
    on_foot, state = list(walks), predictor.start(template, runs=len(walks))
    while going := [row for row, walk in enumerate(on_foot) if not walk.ended]:
        on_foot, state = [on_foot[row] for row in going], state.rows(going)
        ahead = [walk.samples[len(walk.seen) :] for walk in on_foot]
        size = min(WALK_SAMPLES, max(map(len, ahead)))
        block = next(blocks_side_by_side(ahead, size))
        answers, state = predictor.decode(template, search.video.pick(block), state, outlined=False)
        for number, walk in enumerate(on_foot):
            rows = slice(number * size, (number + 1) * size)
            walk.see(block[rows], answers[rows])
        search.progress("follow", sum(len(walk.seen) for walk in walks), total)
