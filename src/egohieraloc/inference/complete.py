"""The whole appearance: from the part that looks like the query to all that looks like that part.

An object turns and is cut off while it is in view. Its best sample shows it in the same light and from nearly
the same side as its neighbours, so it finds them where the query does not. A walk from the best sample, both
ways and from stored features alone, ends where the object is no longer recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from egohieraloc.inference.answer import Answer, predictions_of
from egohieraloc.inference.cuts import first_cut, mean_descriptors
from egohieraloc.inference.predict import Decoded, SearchTemplate
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.steady import steady
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import NotFound

BLOCK = 8  # samples decoded at a time


def completed(search: QuerySearch, found: Answer) -> Answer:
    """The answer with its whole appearance; candidates that turn out to be part of it are left out."""
    config = search.temporal
    if isinstance(found.track, NotFound) or config.rule == "paper" or config.complete > 1:
        return found
    (first, last), joined = complete(search, found.decoded, (found.track.start, found.track.end))
    corrected = steady(joined, (first, last), search.predictor.config.input_size)
    steadied = {**joined, **corrected}
    track = replace(found.track, predictions=predictions_of(search, steadied, (first, last)))
    others = tuple(t for t in found.alternatives if t.end < first or last < t.start)
    if corrected:  # the other object that looks like it
        beside = {sample: joined[sample] for sample in corrected}
        where = min(beside), max(beside)
        others = (replace(found.track, predictions=predictions_of(search, beside, where)), *others)
    return replace(found, track=track, alternatives=others, decoded=steadied)


def complete(
    search: QuerySearch, decoded: Mapping[int, Decoded], found: Interval
) -> tuple[Interval, dict[int, Decoded]]:
    """The interval with its neighbours, and what is known of its samples.

    Where the query scores high its own score counts; elsewhere the higher of both.
    """
    known = [sample for sample in range(found[0], found[1] + 1) if sample in decoded]
    if not known:
        return found, dict(decoded)
    config, stride, report = search.temporal, search.config.stride, search.progress
    best = max(known, key=lambda sample: decoded[sample].score)
    template = search.predictor.template_from_sample(search.video.pick([best]), decoded[best])
    start = max(0, found[0] - config.complete_reach)
    end = min(len(search.video) - 1, found[1] + config.complete_reach)
    back, forth = range(best, start - 1, -stride), range(best, end + 1, stride)
    total = len(back) + len(forth)
    first, before = _walk(search, template, back, found[0], lambda done: report("follow", done, total))
    last, after = _walk(
        search, template, forth, found[1], lambda done: report("follow", len(back) + done, total)
    )
    joined = dict(decoded)
    for sample, other in (before | after).items():
        own = joined.get(sample)
        if own is None or own.score < min(other.score, config.complete):
            joined[sample] = other
    return (first, last), joined


def _walk(
    search: QuerySearch,
    template: SearchTemplate,
    samples: Sequence[int],
    edge: int,
    report: Callable[[int], None],
) -> tuple[int, dict[int, Decoded]]:
    """Where the appearance ends on one side, and all samples that were decoded.

    That is the farthest sample that shows the object, at least `edge`, up to which none is a miss; but a cut
    ends it in any case.
    """
    predictor, config = search.predictor, search.temporal
    state, seen, farthest, missed = predictor.start(template), {}, edge, 0
    shot: list[NDArray[np.float32]] = []
    for start in range(0, len(samples), BLOCK):
        block = samples[start : start + BLOCK]
        packed = search.video.pick(block)
        shot = [*shot[-1:], *mean_descriptors(packed.match)]
        cut = first_cut(np.stack(shot))
        if cut is not None:
            whole = cut - (len(shot) - len(block))  # samples of the block before the cut
            last = samples[start + whole - 1]
            block, packed = block[:whole], packed[:whole]
            farthest = last if abs(last - samples[0]) < abs(farthest - samples[0]) else farthest
        answers, state = predictor.decode(template, packed, state) if len(block) else ([], state)
        report(start + len(block))
        for sample, answer in zip(block, answers, strict=True):
            seen[sample] = answer
            if answer.score >= config.complete:
                farthest, missed = max(sample, farthest, key=lambda s: abs(s - samples[0])), 0
            elif abs(sample - samples[0]) > abs(edge - samples[0]):
                missed += 1
                if missed > config.bridge:
                    return farthest, seen
        if cut is not None:
            break
    return farthest, seen
