"""Points followed from one image into another (pyramidal Lucas-Kanade).

Some milliseconds a frame, where finding and matching features costs two hundred.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.types import Floats

Gray = NDArray[np.uint8]

_MAX_RETURN_PX = 1.0  # a point followed there and back ends this near, or was lost
_WINDOW = (15, 15)
_LEVELS = 4  # each halves the image: points may move by some ten times 2^4 pixels
_STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 15, 0.02)
_CENTER = 0.5  # pixel centres are at halves here, at integers in OpenCV


def follow(before: Gray, after: Gray, pixels: Floats, guess: Floats | None = None) -> Floats:
    """Where the points at `pixels` (n, 2) of one image are in another one, NaN for those that are lost: they
    leave the image, or do not come back to where they were.

    guess: where they may be, (n, 2).
    """
    if not len(pixels):
        return np.empty((0, 2))
    start = pixels - _CENTER
    there, found = _flow(before, after, start, start if guess is None else guess - _CENTER)
    back, returned = _flow(after, before, there, start)
    inside = np.all((there >= 0) & (there <= np.array(after.shape[::-1]) - 1), axis=1)
    kept = found & returned & inside & (np.linalg.norm(back - start, axis=1) <= _MAX_RETURN_PX)
    return np.where(kept[:, None], there + _CENTER, np.nan)


def _flow(before: Gray, after: Gray, start: Floats, guess: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Lucas and Kanade's answer (n, 2) in OpenCV's pixels, and whether there is one (n,)."""
    found, kept, _ = cv2.calcOpticalFlowPyrLK(
        before,
        after,
        np.asarray(start, np.float32).reshape(-1, 1, 2),
        np.array(guess, np.float32).reshape(-1, 1, 2),
        winSize=_WINDOW,
        maxLevel=_LEVELS,
        criteria=_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    return np.asarray(found[:, 0], np.float64), kept[:, 0] > 0
