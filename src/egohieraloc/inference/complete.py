"""The whole appearance: from the part that looks like the query to all that looks like that part.

An object turns and is cut off while it is in view. Its best sample shows it in the same light and from nearly
the same side as its neighbours, so it finds them where the query does not. A walk from the best sample, both
ways and from stored features alone, ends where the object is not recognised any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from egohieraloc.config import TemporalConfig
from egohieraloc.inference.answer import Answer2D, predictions_of
from egohieraloc.inference.predict import Decoded, Predictor, Sought
from egohieraloc.inference.search import EncodedVideo, Progress, no_progress
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import NotFound, ResponseTrack
from egohieraloc.video.letterbox import Letterbox

BLOCK = 8  # samples decoded at a time


def completed(
    found: Answer2D,
    predictor: Predictor,
    encoded: EncodedVideo,
    decoded: Mapping[int, Decoded],
    letterbox: Letterbox,
    config: TemporalConfig,
    *,
    stride: int = 1,
    progress: Progress = no_progress,
) -> Answer2D:
    """The answer with its whole appearance; other candidates that turn out to be part of it are left out."""
    if isinstance(found.track, NotFound) or config.rule == "paper" or config.complete > 1:
        return found
    span = _span(found.track)
    (first, last), joined = complete(
        predictor, encoded, decoded, span, config, stride=stride, progress=progress
    )
    predictions = predictions_of(joined, encoded, (first, last), letterbox, stride=stride)
    others = tuple(t for t in found.alternatives if _span(t)[1] < first or last < _span(t)[0])
    return replace(found, track=replace(found.track, predictions=predictions), alternatives=others)


def _span(track: ResponseTrack) -> Interval:
    return track.predictions[0].sample, track.predictions[-1].sample


def complete(
    predictor: Predictor,
    encoded: EncodedVideo,
    decoded: Mapping[int, Decoded],
    found: Interval,
    config: TemporalConfig,
    *,
    stride: int = 1,
    progress: Progress = no_progress,
) -> tuple[Interval, dict[int, Decoded]]:
    """The interval with its neighbours, and what is known of its samples.

    Where the query is sure it has the word; elsewhere the surer of both opinions counts.
    """
    known = [sample for sample in range(found[0], found[1] + 1) if sample in decoded]
    if not known:
        return found, dict(decoded)
    best = max(known, key=lambda sample: decoded[sample].score)
    sought = predictor.again(encoded.pick([best]), decoded[best])
    start = max(0, found[0] - config.complete_reach)
    end = min(len(encoded.time_s) - 1, found[1] + config.complete_reach)
    back, forth = range(best, start - 1, -stride), range(best, end + 1, stride)
    total = len(back) + len(forth)
    walk = partial(_walk, predictor, encoded, sought, config)
    first, before = walk(back, found[0], lambda done: progress("follow", done, total))
    last, after = walk(forth, found[1], lambda done: progress("follow", len(back) + done, total))
    joined = dict(decoded)
    for sample, opinion in (before | after).items():
        own = joined.get(sample)
        if own is None or own.score < min(opinion.score, config.complete):
            joined[sample] = opinion
    return (min(first, found[0]), max(last, found[1])), joined


def _walk(
    predictor: Predictor,
    encoded: EncodedVideo,
    sought: Sought,
    config: TemporalConfig,
    samples: Sequence[int],
    edge: int,
    report: Callable[[int], None],
) -> tuple[int, dict[int, Decoded]]:
    """The farthest sample that shows the object, and all that were looked at; up to `edge` none is a miss."""
    state, seen, farthest, missed = predictor.start(sought), {}, samples[0], 0
    for start in range(0, len(samples), BLOCK):
        block = samples[start : start + BLOCK]
        answers, state = predictor.decode(sought, encoded.pick(block), state)
        report(start + len(block))
        for sample, answer in zip(block, answers, strict=True):
            seen[sample] = answer
            if answer.score >= config.complete:
                farthest, missed = sample, 0
            elif abs(sample - samples[0]) > abs(edge - samples[0]):
                missed += 1
                if missed > config.bridge:
                    return farthest, seen
    return farthest, seen
