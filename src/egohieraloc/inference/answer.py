"""From decoded samples to the answer: the last appearance, other candidates, a calibrated score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from egohieraloc.config import TemporalConfig
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import EncodedVideo
from egohieraloc.inference.temporal import Interval, choose_interval
from egohieraloc.models.weights import Calibration
from egohieraloc.types import Box, Floats, FramePrediction, NotFound, ResponseTrack, ScoreCurve
from egohieraloc.video.letterbox import Letterbox


@dataclass(frozen=True, eq=False)
class Answer2D:
    """When and where in the image the object was last seen."""

    track: ResponseTrack | NotFound
    curve: ScoreCurve
    alternatives: tuple[ResponseTrack, ...]


def answer(
    decoded: Mapping[int, Decoded],
    encoded: EncodedVideo,
    letterbox: Letterbox,
    calibration: Calibration,
    config: TemporalConfig,
    *,
    stride: int = 1,
) -> Answer2D:
    """Apply the temporal rule to the decoded samples; samples that were not decoded score 0."""
    raw = _score_curve(decoded, len(encoded.time_s), stride)
    choice = choose_interval(raw, encoded.time_s, config)
    if choice.chosen is None:
        reason = "The video has no sample before the query time."
        if len(raw):
            reason = "Nothing in the video looks like the query."
        return Answer2D(NotFound(reason), choice.curve, ())

    def track(interval: Interval) -> ResponseTrack:
        score = calibrated(choice.curve, interval, calibration)
        predictions = predictions_of(decoded, encoded, interval, letterbox, stride=stride)
        return ResponseTrack(predictions, score)

    alternatives = tuple(track(interval) for interval in choice.alternatives)
    best = track(choice.chosen)
    if best.score >= calibration.threshold:
        return Answer2D(best, choice.curve, alternatives)
    reason = (
        f"The best candidate, at {best.predictions[0].time_s:.1f} s, scores {best.score:.2f}; "
        f"answers need {calibration.threshold:.2f}."
    )
    return Answer2D(
        NotFound(reason, best.score), choice.curve, (best, *alternatives)[: config.max_alternatives]
    )


def calibrated(curve: ScoreCurve, interval: Interval, calibration: Calibration) -> float:
    """Probability that an interval shows the object, from the score of its surest sample."""
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
    decoded: Mapping[int, Decoded],
    encoded: EncodedVideo,
    interval: Interval,
    letterbox: Letterbox,
    *,
    stride: int = 1,
) -> tuple[FramePrediction, ...]:
    """One prediction per sample of an interval; boxes of samples that were not decoded are interpolated."""
    first, last = interval
    raw = _score_curve(decoded, len(encoded.time_s), stride)
    known = [s for s in range(first, last + 1) if s in decoded] or [
        min(decoded, key=lambda s: abs(s - first))
    ]
    corners = np.array([decoded[s].box.xyxy for s in known])
    predictions = []
    for sample in range(first, last + 1):
        on_canvas = Box(*(float(np.interp(sample, known, side)) for side in corners.T))
        box = letterbox.box_from_canvas(on_canvas).clipped(letterbox.width, letterbox.height)
        mask = mask_box = probability = None
        if sample in decoded:
            cells, mask_box = letterbox.mask_to_frame(decoded[sample].mask)
            mask, probability = cells >= 128, (cells / np.float32(255)).astype(np.float32)
        predictions.append(
            FramePrediction(
                int(encoded.frame_index[sample]),
                sample,
                float(encoded.time_s[sample]),
                float(raw[sample]),
                box,
                mask,
                mask_box,
                probability,
            )
        )
    return tuple(predictions)
