"""From decoded samples to the answer: the last appearance, other candidates, a calibrated confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.temporal import Interval, choose_interval
from egohieraloc.models.weights import Calibration
from egohieraloc.types import (
    Box,
    Bytes,
    Floats,
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


def answer(search: QuerySearch, decoded: Mapping[int, Decoded]) -> Answer:
    """Apply the temporal rule to the decoded samples; samples that were not decoded score 0."""
    raw = _score_curve(decoded, len(search.video), search.config.stride)
    choice = choose_interval(raw, search.video.time_s, search.temporal)
    if choice.chosen is None:
        reason = "The video has no sample before the query time."
        if len(raw):
            reason = "Nothing in the video looks like the query."
        return Answer(NotFound(reason), choice.curve, (), decoded)
    calibration = search.predictor.calibration

    def track(interval: Interval) -> ResponseTrack:
        score = calibrated(choice.curve, interval, calibration)
        return ResponseTrack(predictions_of(search, decoded, interval), score)

    candidates = [track(interval) for interval in (choice.chosen, *choice.alternatives)]
    literal = search.temporal.rule == "paper"  # the paper has no threshold of confidence: its rule decides
    confident = [t for t in candidates if literal or t.score >= calibration.threshold]
    if confident:
        # The rule's choice, or where that is below the threshold the last one above it.
        answered = confident[0] if confident[0] is candidates[0] else max(confident, key=lambda t: t.end)
        others = tuple(t for t in candidates if t is not answered)
        return Answer(answered, choice.curve, others, decoded)
    best = max(candidates, key=lambda t: t.score)
    reason = (
        f"The best candidate, at {best.start_s:.1f} s, has confidence {best.score:.2f}; "
        f"answers need {calibration.threshold:.2f}."
    )
    candidates = sorted(candidates, key=lambda t: t is not best)[: search.temporal.max_alternatives]
    return Answer(NotFound(reason, best.score), choice.curve, tuple(candidates), decoded)


def calibrated(curve: ScoreCurve, interval: Interval, calibration: Calibration) -> float:
    """Probability that an interval shows the object, from its highest score."""
    peak = float(np.clip(curve.raw[interval[0] : interval[1] + 1].max(), 1e-6, 1 - 1e-6))
    logit = math.log(peak / (1 - peak))
    return 1 / (1 + math.exp(-(calibration.slope * logit + calibration.offset)))


def _score_curve(decoded: Mapping[int, Decoded], count: int, stride: int) -> Floats:
    """Scores (N,): decoded ones, straight lines across skipped ones, the last one held, 0 elsewhere."""
    raw = np.zeros(count)
    known = sorted(decoded)
    for sample in known:
        raw[sample : sample + stride] = decoded[sample].score
    for left, right in pairwise(known):
        if right - left <= stride:
            raw[left:right] = np.linspace(raw[left], raw[right], right - left, endpoint=False)
    return raw


def predictions_of(
    search: QuerySearch, decoded: Mapping[int, Decoded], interval: Interval
) -> tuple[FramePrediction, ...]:
    """One prediction per sample of an interval; boxes of samples that were not decoded are interpolated."""
    (first, last), video = interval, search.video
    raw = _score_curve(decoded, len(video), search.config.stride)
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
