"""The canvas of an image: multiples of the network's stride, about as many pixels for every shape."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from egohieraloc.video.canvas import STEP, canvas_for

SIDES = st.integers(1, 5000)
SIZES = st.sampled_from([32, 128, 224, 448, 672, 896])


@pytest.mark.parametrize(
    ("image", "canvas", "content"),
    [
        ((1000, 1000), (448, 448), (448, 448)),
        ((640, 480), (448, 352), (448, 336)),
        ((480, 640), (352, 448), (336, 448)),
        ((1920, 1080), (512, 288), (512, 288)),
        ((1080, 1920), (288, 512), (288, 512)),
        ((1408, 1407), (448, 448), (448, 448)),
        ((3000, 1000), (672, 224), (672, 224)),
        ((4000, 1000), (768, 192), (768, 192)),
        ((8000, 1000), (768, 96), (768, 96)),
        ((5000, 1), (768, 32), (768, 1)),
    ],
)
def test_known_answers(image: tuple[int, int], canvas: tuple[int, int], content: tuple[int, int]) -> None:
    assert canvas_for(*image, 448) == (canvas, content)


@given(width=SIDES, height=SIDES, size=SIZES)
def test_the_canvas_ends_just_beyond_the_image(width: int, height: int, size: int) -> None:
    canvas, content = canvas_for(width, height, size)
    for outer, inner in zip(canvas, content, strict=True):
        assert outer % STEP == 0
        assert 1 <= inner <= outer < inner + STEP


@given(width=SIDES, height=SIDES, size=SIZES)
def test_a_turned_image_has_the_turned_canvas(width: int, height: int, size: int) -> None:
    canvas, content = canvas_for(width, height, size)
    assert canvas_for(height, width, size) == (canvas[::-1], content[::-1])


@given(width=SIDES, height=SIDES, size=SIZES)
@example(width=108, height=49, size=672)  # exactly 864
def test_the_longer_side_is_as_the_rule_says(width: int, height: int, size: int) -> None:
    """In whole numbers: `size` up to 4:3, then size * sqrt(0.75 a) down to a multiple of the stride."""
    longer, shorter = max(width, height), min(width, height)
    expected = size
    if 3 * longer > 4 * shorter:
        capped = min(longer, 4 * shorter)
        expected = max(STEP, math.isqrt(3 * capped * size**2 // (4 * shorter)) // STEP * STEP)
    assert max(canvas_for(width, height, size)[1]) == expected


@given(width=SIDES, height=SIDES)
def test_wide_images_have_no_more_pixels_than_4_to_3(width: int, height: int) -> None:
    content = canvas_for(width, height, 448)[1]
    if max(width, height) > 4 / 3 * min(width, height):
        assert math.prod(content) <= 0.75 * 448**2 + max(content)  # the shorter side is rounded
