"""How sharp an image is, whatever its size. Frames of one size are compared in `geometry/selection.py`."""

from __future__ import annotations

import cv2
import numpy as np

from egohieraloc.types import Rgb

LONG_SIDE_PX = 480  # images are compared at one size: a Laplacian depends on it


def sharpness(rgb: Rgb) -> float:
    """Variance of the Laplacian of the grey image, its longer side brought to 480 pixels."""
    scale = LONG_SIDE_PX / max(rgb.shape[:2])
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    size = tuple(max(1, round(side * scale)) for side in grey.shape[::-1])
    grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    return float(cv2.Laplacian(grey, cv2.CV_32F).var())
