"""How large an image is for the network: few pixels, and hardly any that show nothing."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

STEP = 32  # the network's largest stride: sides of a canvas are multiples of it
WIDE = Fraction(4, 3)  # images wider than this have nearly as many pixels as one of this shape
WIDEST = Fraction(4)  # beyond this shape the longer side grows no more

Size = tuple[int, int]  # width and height


def canvas_for(width: int, height: int, size: int) -> tuple[Size, Size]:
    """The canvas for an image of width x height, and the image's own size on it.

    The longer side is `size`, or more where the image is so wide that it would have fewer pixels than one of
    4:3: enough for as many, rounded down to a multiple of `STEP`. So 3:2 at 448 keeps that side, and has a
    ninth fewer. Beyond `WIDEST` the side grows no further, and there are fewer pixels. The canvas ends less
    than `STEP` pixels beyond the image.
    """
    longer, shorter = max(width, height), min(width, height)
    aspect = min(Fraction(longer, shorter), WIDEST)
    side = size
    if aspect > WIDE:
        side = max(STEP, isqrt(int(size**2 * aspect / WIDE)) // STEP * STEP)
    content = max(1, round(width * side / longer)), max(1, round(height * side / longer))
    return (_stepped(content[0]), _stepped(content[1])), content


def _stepped(side: int) -> int:
    return -(-side // STEP) * STEP
