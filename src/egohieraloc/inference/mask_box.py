"""From a mask of probabilities to a box and a confidence (the paper's "Training stage" and GSJC).

The mask is cut at 0.5 and its component with the most probability in it is kept: area alone would prefer a
large faint smear to a smaller sure object. An ellipse with the component's moments gives a first box; the box
that best agrees with the mask in the paper's measure, counted in pixels, is then searched from there.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.types import Box, Mask


def box_from_mask(
    probability: NDArray[np.floating], *, threshold: float = 0.5, background_weight: float = 0.25
) -> Box | None:
    """Box in cells of the grid (h, w), half-open; None when no cell is above the threshold.

    The box maximises N_in+ / (alpha N_in- + N_in+ + N_out+), alpha being `background_weight`, one axis after
    the other until nothing changes.
    """
    component = heaviest_component(probability, threshold)
    if component is None:
        return None
    mask, (left, top) = component
    rows, columns = _ellipse_span(mask)
    reached, agreement = -1.0, 0.0
    while agreement > reached:
        reached = agreement
        columns, _ = _best_span(mask[slice(*rows)], mask.sum(), background_weight)
        rows, agreement = _best_span(mask[:, slice(*columns)].T, mask.sum(), background_weight)
    return Box(left + columns[0], top + rows[0], left + columns[1], top + rows[1])


def heaviest_component(
    probability: NDArray[np.floating], threshold: float
) -> tuple[Mask, tuple[int, int]] | None:
    """The 8-connected component with the highest sum, cut to its tight box, and the box's corner (x, y)."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats((probability > threshold).astype(np.uint8))
    if count < 2:
        return None
    mass = np.bincount(labels.ravel(), weights=probability.ravel())
    best = 1 + int(np.argmax(mass[1:]))
    x, y, width, height = stats[best, :4].tolist()
    return labels[y : y + height, x : x + width] == best, (x, y)


def _ellipse_span(mask: Mask) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of the ellipse with the moments of the mask, which reaches 2 sigma along each axis."""
    spans = []
    for axis in (1, 0):
        weight = mask.sum(axis)
        centres = np.arange(weight.size) + 0.5
        mean = np.average(centres, weights=weight)
        reach = 2 * np.sqrt(
            np.average((centres - mean) ** 2, weights=weight) + 1 / 12
        )  # a cell has its own width
        start = min(max(round(mean - reach), 0), weight.size - 1)
        spans.append((start, max(min(round(mean + reach), weight.size), start + 1)))
    return spans[0], spans[1]


def _best_span(band: Mask, total: int, background_weight: float) -> tuple[tuple[int, int], float]:
    """Of all spans of columns, the one in which a band of rows agrees best with a mask of `total` cells, and
    how well."""
    hits = np.r_[0, band.sum(0).cumsum()]
    starts, ends = np.triu_indices(hits.size, 1)
    inside = hits[ends] - hits[starts]
    outside = band.shape[0] * (ends - starts) - inside
    agreement = inside / (background_weight * outside + total)
    best = int(agreement.argmax())
    return (int(starts[best]), int(ends[best])), float(agreement[best])
