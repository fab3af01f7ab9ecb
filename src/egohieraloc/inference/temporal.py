"""When the object was last seen: from one score per sample to an interval (the paper's "Inference stage").

Both rules are one threshold with two levels. An interval is a stretch of the smoothed curve above the lower
level, with small gaps bridged; it counts as an appearance when it also reaches the higher level; the answer
is the last one that does. `paper` uses 0.8 of the maximum for both. `extend` (our default) asks for a peak
near the maximum and then follows the curve far down, as far as the shot goes: 0.8 cuts an appearance to its
best part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import TemporalConfig
from egohieraloc.types import Floats, ScoreCurve

Interval = tuple[int, int]  # first and last sample, inclusive
TIE = 1 - 1e-9  # a score that equals a level up to rounding reaches it


@dataclass(frozen=True, eq=False)
class TemporalChoice:
    """The last appearance, None when no score is above 0, and other intervals by falling peak."""

    curve: ScoreCurve
    chosen: Interval | None
    alternatives: tuple[Interval, ...] = ()


def choose_interval(
    scores: Floats, time_s: Floats, config: TemporalConfig, *, cuts: Iterable[int] = ()
) -> TemporalChoice:
    """Find the last appearance in scores (N,) of samples at time_s (N,). A cut ends an appearance."""
    scores, time_s = np.asarray(scores, np.float64), np.asarray(time_s, np.float64)
    if scores.ndim != 1 or scores.shape != time_s.shape:
        raise ValueError(f"Wanted one score and one time per sample, got {scores.shape} and {time_s.shape}")
    if not np.isfinite(scores).all():
        raise ValueError(f"Scores must be finite, got {scores[~np.isfinite(scores)][0]}")
    smooth = median_filtered(scores, config.median)
    highest = float(smooth.max(initial=0.0))
    if highest <= 0:
        return TemporalChoice(ScoreCurve(time_s, scores, smooth, 0.0), None)
    low, high = config.extend_share, config.peak_share
    if config.literal:
        low, high, cuts = config.paper_share, config.paper_share, ()
    intervals = _intervals(smooth >= low * highest * TIE, config.bridge, cuts)
    peaks = {interval: float(smooth[interval[0] : interval[1] + 1].max()) for interval in intervals}
    chosen = [interval for interval in intervals if peaks[interval] >= high * highest * TIE][-1]
    others = sorted((i for i in intervals if i != chosen), key=lambda i: (peaks[i], i), reverse=True)
    curve = ScoreCurve(time_s, scores, smooth, low * highest, tuple(intervals))
    return TemporalChoice(curve, chosen, tuple(others[: config.max_alternatives]))


def score_curve(scores: Mapping[int, float], count: int, stride: int) -> Floats:
    """Scores (N,) of all samples: known ones, straight lines across skipped ones, the last one held, 0
    elsewhere."""
    raw = np.zeros(count)
    known = sorted(scores)
    for sample in known:
        raw[sample : sample + stride] = scores[sample]
    for left, right in pairwise(known):
        if right - left <= stride:
            raw[left:right] = np.linspace(raw[left], raw[right], right - left, endpoint=False)
    return raw


def median_filtered(scores: Floats, window: int) -> Floats:
    """Running median. The curve is mirrored at its ends: two high samples at the end stay, one does not."""
    smooth, half = np.zeros(scores.shape), window // 2
    # Most samples of a long video were not decoded: among zeros alone there is nothing to sort.
    near = np.unique(np.flatnonzero(scores)[:, None] + np.arange(-half, half + 1))
    near = near[(near >= 0) & (near < len(scores))]
    padded = np.pad(scores, half, mode="reflect") if len(scores) else scores
    smooth[near] = np.median(padded[near[:, None] + np.arange(window)], axis=-1)
    return smooth


def _intervals(above: NDArray[np.bool_], bridge: int, cuts: Iterable[int]) -> list[Interval]:
    """Stretches of true samples, joined over gaps of up to `bridge` but not over cuts."""
    samples = np.flatnonzero(above)
    shots = np.searchsorted(sorted(cuts), samples, side="right")
    breaks = np.flatnonzero((np.diff(samples) > bridge + 1) | (np.diff(shots) > 0))
    starts, ends = samples[np.r_[0, breaks + 1]], samples[np.r_[breaks, -1]]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
