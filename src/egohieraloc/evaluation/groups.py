"""Groups of queries for tables: by object size, time out of view, blur of the crop.

Each function takes one value per query (Q,), nan where it is not known, and gives a mask of the queries (Q,)
for each group. A query without a value is in no group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from egohieraloc.types import Floats

Groups = dict[str, NDArray[np.bool_]]
MEDIUM_PX, LARGE_PX = (
    32.0**2,
    96.0**2,
)  # of the largest ground-truth box: smaller objects are small
SHORT_S, LONG_S = 10.0, 60.0


def by_size(area_px: Floats) -> Groups:
    """The benchmark's own limits for medium and large."""
    return {
        f"small (< {MEDIUM_PX**0.5:.0f}² px)": area_px < MEDIUM_PX,
        "medium size": (area_px >= MEDIUM_PX) & (area_px < LARGE_PX),
        f"large (≥ {LARGE_PX**0.5:.0f}² px)": area_px >= LARGE_PX,
    }


def by_time(seconds: Floats, title: str) -> Groups:
    """`title` is a format for the time, as in "seen {} ago"."""
    return {
        title.format(f"< {SHORT_S:.0f} s"): seconds < SHORT_S,
        title.format(f"{SHORT_S:.0f} to {LONG_S:.0f} s"): (seconds >= SHORT_S) & (seconds < LONG_S),
        title.format(f"≥ {LONG_S:.0f} s"): seconds >= LONG_S,
    }


def by_blur(sharpness: Floats) -> Groups:
    """Thirds of the queries whose sharpness is known; no groups when there are fewer than three."""
    known = sharpness[np.isfinite(sharpness)]
    if known.size < 3:
        return {}
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    return {
        "most blurred third": sharpness < low,
        "middle third by blur": (sharpness >= low) & (sharpness < high),
        "sharpest third": sharpness >= high,
    }


def numbers(values: list[float | None]) -> Floats:
    """(Q,) with nan for None."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
