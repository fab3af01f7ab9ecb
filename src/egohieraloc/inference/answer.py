"""From decoded samples to the answer: the last appearance, other candidates, a calibrated confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from egohieraloc.clock import clock
from egohieraloc.inference.look_back import look_back
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import Look, QuerySearch, scores_of
from egohieraloc.inference.second_look import logit, look_again
from egohieraloc.inference.temporal import TIE, Interval, TemporalChoice, score_curve
from egohieraloc.models.weights import BothLooks, Calibration
from egohieraloc.types import (
    Box,
    Bytes,
    FrameMaps,
    FramePrediction,
    NotFound,
    ResponseTrack,
    ScoreCurve,
)
from egohieraloc.video.letterbox import Letterbox

EXPLAINED = 8  # samples of the track whose maps are kept, at most


@dataclass(frozen=True, eq=False)
class Answer:
    """When and where in the image the object was last seen, and the decoded samples that say so."""

    track: ResponseTrack | NotFound
    curve: ScoreCurve
    alternatives: tuple[ResponseTrack, ...]
    decoded: Mapping[int, Decoded]
    look: Look = "first"  # the last that the confidence of the chosen candidate comes from


def answer(search: QuerySearch, decoded: Mapping[int, Decoded]) -> Answer:
    """Apply the temporal rule to the decoded samples."""
    choice = search.choice(decoded)
    if choice.chosen is None:
        reason = "The video has no sample before the query time."
        if len(search.video):
            reason = "Nothing in the video looks like the query."
        return Answer(NotFound(reason), choice.curve, (), decoded)
    judged = judge(search, decoded, choice)
    decoded = judged.decoded
    tracks = [ResponseTrack(predictions_of(search, decoded, c.interval), c.score) for c in judged.candidates]
    literal = search.temporal.literal
    needed = [c.threshold for c in judged.candidates]
    confident = [t for t, least in zip(tracks, needed, strict=True) if literal or t.score >= least]
    most = search.temporal.max_alternatives
    if confident:
        # The rule's choice, or where that is below the threshold the last one above it.
        answered = confident[0] if confident[0] is tracks[0] else max(confident, key=lambda t: t.end)
        others = tuple(t for t in tracks if t is not answered)[:most]
        return Answer(answered, choice.curve, others, decoded, judged.look)
    best, least = max(zip(tracks, needed, strict=True), key=lambda pair: pair[0].score)
    reason = (
        f"Nothing looks enough like it: the best guess, at {clock(best.end_s)}, has confidence "
        f"{best.score:.2f}, an answer needs {least:.2f}."
    )
    candidates = tuple(sorted(tracks, key=lambda t: t is not best)[:most])
    return Answer(NotFound(reason, best.score), choice.curve, candidates, decoded, judged.look)


@dataclass(frozen=True)
class Candidate:
    """An appearance, what each look says of it in logits, and the confidence that follows."""

    interval: Interval
    first: float
    second: float | None  # of a look from close by, or back at the query's image; None without
    score: float
    threshold: float  # of the score: below it there is no answer


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates, the rule's choice first and the others by falling confidence."""

    candidates: Sequence[Candidate]
    decoded: Mapping[int, Decoded]  # with what a second look saw
    look: Look = "first"


def judge(search: QuerySearch, decoded: Mapping[int, Decoded], choice: TemporalChoice) -> Judged:
    """The confidence of each candidate from the first look and, where there is one, a further one."""
    assert choice.chosen is not None
    intervals = (choice.chosen, *choice.alternatives)
    calibration, look = search.predictor.calibration, search.look
    line = calibration.looks if look == "second" else calibration.back
    first = [logit(float(choice.curve.raw[a : b + 1].max())) for a, b in intervals]
    looks = look_again(search, decoded, intervals) if look == "second" else None
    further: Sequence[float | None] | None = None if looks is None else [each.logit for each in looks]
    if look == "back":
        further = look_back(search, decoded, intervals)
    if further is None:
        alone = [_judged(i, a, None, calibration, line) for i, a in zip(intervals, first, strict=True)]
        return Judged(alone, decoded)
    both = [
        _judged(interval, a, b, calibration, line)
        for interval, a, b in zip(intervals, first, further, strict=True)
    ]
    bar = search.temporal.weighed_share * max(c.score for c in both) * TIE
    chosen = max((c for c in both if c.score >= bar), key=lambda c: c.interval)
    both.sort(key=lambda c: (c is not chosen, -c.score))
    closer = {sample: seen for each in looks or () for sample, seen in each.decoded.items()}
    return Judged(both, {**decoded, **closer}, "first" if chosen.second is None else look)


def _judged(
    interval: Interval, first: float, second: float | None, calibration: Calibration, line: BothLooks
) -> Candidate:
    """`line` weighs both looks, where there is a second."""
    if second is None:
        return Candidate(interval, first, None, calibration.confidence(first), calibration.threshold)
    return Candidate(interval, first, second, line.confidence(first, second), line.threshold)


def predictions_of(
    search: QuerySearch, decoded: Mapping[int, Decoded], interval: Interval
) -> tuple[FramePrediction, ...]:
    """One prediction per sample of an interval; boxes of samples that were not decoded are interpolated."""
    (first, last), video = interval, search.video
    raw = score_curve(scores_of(decoded), len(video), search.config.stride)
    known = [s for s in range(first, last + 1) if s in decoded] or [
        min(decoded, key=lambda s: abs(s - first))
    ]
    corners = np.array([decoded[s].box.xyxy for s in known])
    predictions = []
    for sample in range(first, last + 1):
        on_canvas = Box(*(float(np.interp(sample, known, side)) for side in corners.T))
        mask = mask_box = probability = None
        if sample in decoded:
            cells, mask_box = video.letterbox.mask_to_frame(decoded[sample].mask)
            mask, probability = cells >= 128, (cells / np.float32(255)).astype(np.float32)
        predictions.append(
            FramePrediction(
                int(video.frame_index[sample]),
                sample,
                float(video.time_s[sample]),
                float(raw[sample]),
                video.letterbox.box_from_canvas(on_canvas).clipped(*video.letterbox.frame_size),
                mask,
                mask_box,
                probability,
            )
        )
    return tuple(predictions)


def maps_of(found: Answer, letterbox: Letterbox) -> tuple[FrameMaps, ...]:
    """The maps that decided, for samples spread evenly over the track; none where nothing was found."""
    if isinstance(found.track, NotFound):
        return ()
    known = [p.sample for p in found.track.predictions if p.sample in found.decoded]
    chosen = np.unique(np.linspace(0, len(known) - 1, min(EXPLAINED, len(known))).round().astype(int))
    return tuple(_frame_maps(known[k], found.decoded[known[k]], letterbox) for k in chosen)


def _frame_maps(sample: int, decoded: Decoded, letterbox: Letterbox) -> FrameMaps:
    def over_frame(values: NDArray[np.float32]) -> Bytes:
        cells, _ = letterbox.mask_to_frame(values)
        return np.round(np.clip(cells, 0, 1) * 255).astype(np.uint8)

    maps = decoded.maps
    x, y = letterbox.points_from_canvas(maps.position).tolist()
    a, b = (maps.semi_axes / letterbox.scale).tolist()
    dx, dy = (maps.drift / letterbox.scale).tolist()
    return FrameMaps(
        sample,
        over_frame(maps.foreground),
        over_frame(maps.likelihood),
        over_frame(maps.response),
        over_frame(maps.location),
        letterbox.mask_to_frame(decoded.mask)[0],
        (x, y, a, b),
        (dx, dy),
    )
