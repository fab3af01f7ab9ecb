"""Hard cuts: where a video goes on in another place from one sample to the next.

Two samples a fifth of a second apart show mostly the same, however the camera moves, but not across a cut.
The mean descriptor of a sample tells: in composed clips its cosine with that of the one before lay above 0.75
within a shot, blurred and fast ones included, and mostly below 0.6 across a cut. The threshold is low, so a
cut may go unnoticed but a shot is not torn apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAME_SHOT = 0.6  # cosine of two samples' mean descriptors


def mean_descriptors(match: NDArray[np.int8]) -> NDArray[np.float32]:
    """Unit vectors (N, D) from packed descriptors (N, D, h, w)."""
    cells = match.astype(np.float32)
    cells /= np.linalg.norm(cells, axis=1, keepdims=True).clip(1e-6)
    mean = cells.mean((2, 3))
    return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True).clip(1e-6), np.float32)


def first_cut(means: NDArray[np.float32]) -> int | None:
    """The first of neighbouring samples (N, D) that belongs to another shot than the one before it."""
    cuts = np.flatnonzero((means[1:] * means[:-1]).sum(1) < SAME_SHOT)
    return int(cuts[0]) + 1 if len(cuts) else None
