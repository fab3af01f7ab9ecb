"""Which frames the map is built from, and which pairs of frames are matched.

Matching every pair of N frames costs N^2; with neighbours in time alone a walk drifts and falls apart. So
frames are matched with neighbours at growing steps, and with a few frames that look alike (loops).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from egohieraloc.types import Floats, Rgb

Pair = tuple[int, int]  # positions in the list of frames, first < second

_WORDS = 64
_MAX_TRAINING_DESCRIPTORS = 20_000


def laplacian_variance(rgb: Rgb) -> float:
    """How sharp a frame is among frames of one size. `video.sharpness` compares images of any size."""
    return float(cv2.Laplacian(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.CV_64F).var())


def sharpest_per_window(values: Sequence[float], count: int) -> list[int]:
    """Positions of at most `count` frames: the sharpest of each of `count` equal windows in time."""
    if len(values) <= count:
        return list(range(len(values)))
    windows = np.array_split(np.arange(len(values)), count)
    return [int(window[np.argmax(np.asarray(values)[window])]) for window in windows]


def sharpest_run(values: Sequence[float], length: int) -> list[int]:
    """Positions of the `length` consecutive frames that are sharpest at their lower quartile."""
    length = min(length, len(values))
    starts = range(len(values) - length + 1)
    best = max(starts, key=lambda start: float(np.percentile(values[start : start + length], 25)))
    return list(range(best, best + length))


def sequential_pairs(count: int, overlap: int) -> set[Pair]:
    """Neighbours at steps that grow by about 1.4 up to `overlap`: 1 2 3 4 6 8 11 15."""
    steps, step = [], 1
    while step <= overlap:
        steps.append(step)
        step = max(step + 1, round(step * 1.4))
    return {(i, i + step) for step in steps for i in range(count - step)}


def similar_pairs(
    descriptors: Floats, queries: Sequence[int], among: Sequence[int], *, neighbours: int, min_gap: int = 0
) -> set[Pair]:
    """Each query row of (N, D) descriptors with the `neighbours` most similar rows (cosine) among others.

    min_gap: only rows further away than this; nearer ones are matched as neighbours in time anyway.
    """
    unit = _unit_rows(descriptors)
    candidates = np.asarray(among)
    pairs: set[Pair] = set()
    for i in queries:
        far = candidates[np.abs(candidates - i) > min_gap]
        for j in far[np.argsort(-(unit[far] @ unit[i]), kind="stable")[:neighbours]]:
            pairs.add((min(i, int(j)), max(i, int(j))))
    return pairs


def attaching_pairs(mapped: Sequence[int], others: Sequence[int], *, neighbours: int) -> set[Pair]:
    """Each frame outside the map with the next such frame, and with `neighbours` map frames on each side."""
    order = np.sort(np.asarray(mapped))
    pairs: set[Pair] = set(pairwise(sorted(others)))
    for i in others:
        place = int(np.searchsorted(order, i))
        for j in order[max(0, place - neighbours) : place + neighbours]:
            pairs.add((min(i, int(j)), max(i, int(j))))
    return pairs


def vlad(local_descriptors: Sequence[NDArray[np.uint8]], seed: int = 0) -> Floats:
    """One descriptor (N, 64*D) for each frame from its local ones (n_i, D): residuals to a few visual words.

    It replaces a vocabulary tree: the words come from the video itself, in seconds.
    """
    unit = [_unit_rows(np.asarray(rows, np.float32)) for rows in local_descriptors]
    together = np.concatenate(unit)
    generator = np.random.default_rng(seed)
    size = min(len(together), _MAX_TRAINING_DESCRIPTORS)
    sample = together[generator.choice(len(together), size, replace=False)]
    words, _ = kmeans2(sample, min(_WORDS, size), iter=10, minit="points", seed=generator)
    described = np.zeros((len(unit), *words.shape))
    for i, rows in enumerate(unit):
        nearest = (rows @ words.T - (words**2).sum(1) / 2).argmax(1)
        belongs = (nearest[:, None] == np.arange(len(words))).astype(np.float32)
        described[i] = _unit_rows(belongs.T @ rows - belongs.sum(0)[:, None] * words)
    return _unit_rows(described.reshape(len(unit), -1))


def _unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows (N, D) of unit length; rows of zeros stay."""
    unit: NDArray[Any] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
