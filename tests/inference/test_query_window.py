"""The window round a query: every pixel lands where the geometry says."""

from __future__ import annotations

import numpy as np
import pytest

from egohieraloc.images import mask_on_image
from egohieraloc.inference.query_window import QueryWindow, cut_window
from egohieraloc.query import Query
from egohieraloc.types import Box


def ramps(height: int, width: int) -> np.ndarray:
    """Red grows by 2 a column, green by 2 a row, blue is 200."""
    image = np.full((height, width, 3), 200, np.uint8)
    image[..., 0] = 2 * np.arange(width)
    image[..., 1] = 2 * np.arange(height)[:, None]
    return image


def window(image: np.ndarray, box: Box, *, share: float = 1.6, size: int = 64) -> QueryWindow:
    return cut_window(Query(image, box), share=share, size=size)


def test_side_centre_and_box() -> None:
    found = window(ramps(100, 120), Box(40, 30, 60, 70))
    assert found.region.xyxy == (50 - 32, 50 - 32, 50 + 32, 50 + 32)
    np.testing.assert_allclose(found.box, [22 / 64, 12 / 64, 42 / 64, 52 / 64])
    assert found.rgb.shape == (64, 64, 3)
    assert found.mask is None


@pytest.mark.parametrize("size", [64, 128, 32, 24, 40])
def test_a_known_pixel_lands_where_it_should(size: int) -> None:
    """Larger, equal and smaller than the image: the ramps say where each window pixel comes from."""
    found = window(ramps(100, 120), Box(40.5, 30, 59.5, 70), size=size)
    scale = 64 / size
    for row, column in ((size // 2, size // 3), (size // 4, size // 2), (size - 3, 2)):
        x = found.region.x1 + (column + 0.5) * scale
        y = found.region.y1 + (row + 0.5) * scale
        red, green, blue = found.rgb[row, column]
        assert red == pytest.approx(2 * (x - 0.5), abs=1.6)
        assert green == pytest.approx(2 * (y - 0.5), abs=1.6)
        assert blue == 200
        assert found.visible[row, column]


def test_black_and_invisible_outside_the_image() -> None:
    found = window(ramps(40, 40), Box(0, 0, 20, 20), size=32)  # covers -6 to 26
    assert found.region.xyxy == (-6, -6, 26, 26)
    assert not found.visible[:6].any()
    assert not found.visible[:, :6].any()
    assert found.visible[6:, 6:].all()
    assert (found.rgb[:5] == 0).all()
    assert (found.rgb[7:, 7:, 2] == 200).all()


def test_a_crop_is_surrounded_by_black() -> None:
    crop = np.full((30, 20, 3), 255, np.uint8)
    found = cut_window(Query.from_image(crop), share=1.6, size=48)
    share = found.visible.mean()
    assert share == pytest.approx((30 / 48) * (20 / 48), abs=0.03)
    np.testing.assert_allclose(found.box, [14 / 48, 9 / 48, 34 / 48, 39 / 48])
    assert found.visible[9:39, 14:34].all()


@pytest.mark.parametrize("size", [64, 32, 16])
def test_mask_is_aligned_with_the_image(size: int) -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    mask = np.zeros((100, 100), bool)
    image[38:54, 34:50] = 255
    mask[38:54, 34:50] = True
    found = cut_window(Query(image, Box(30, 30, 70, 70), mask), share=1.6, size=size)
    assert found.mask is not None
    bright = found.rgb[..., 0] > 127
    assert (bright == found.mask).mean() > 0.99
    assert found.mask.mean() == pytest.approx(16 * 16 / 64**2, rel=0.1)


@pytest.mark.parametrize("box", [Box(10, 10, 12, 12), Box(0, 0, 2, 38), Box(0.2, 0.7, 39.9, 3.1)])
def test_tiny_and_thin_boxes(box: Box) -> None:
    found = window(ramps(40, 40), box)
    side = 1.6 * max(box.width, box.height)
    assert found.region.width == pytest.approx(side)
    assert found.visible.any()
    np.testing.assert_allclose((found.box[2:] - found.box[:2]) * side, [box.width, box.height], atol=1e-9)


def test_a_huge_box_is_averaged_not_picked() -> None:
    """A fine checkerboard becomes grey; taking single pixels would leave it black and white."""
    board = np.indices((2000, 3000)).sum(0) % 2 * 255
    image = np.repeat(board[..., None], 3, 2).astype(np.uint8)
    found = cut_window(Query.from_image(image), share=1.6, size=64)
    middle = found.rgb[28:36, 20:44].astype(int)
    assert np.abs(middle - 127).max() < 20
    assert found.visible.mean() == pytest.approx((1 / 1.6) * (2 / 3 / 1.6), abs=0.03)


@pytest.mark.parametrize("cells", [64, 16])
def test_a_mask_of_the_window_goes_back_to_the_image(cells: int) -> None:
    mask = np.zeros((100, 120), bool)
    mask[38:54, 34:50] = True
    found = cut_window(
        Query(np.zeros((100, 120, 3), np.uint8), Box(30, 30, 70, 70), mask), share=1.6, size=64
    )
    assert found.mask is not None
    step = 64 // cells
    back = mask_on_image(found.mask[::step, ::step], found.region, 120, 100)
    assert back.shape == mask.shape
    assert (back != mask).sum() <= (0 if step == 1 else 80)
    assert back.nonzero()[0].mean() == pytest.approx(mask.nonzero()[0].mean(), abs=0.5)
    assert back.nonzero()[1].mean() == pytest.approx(mask.nonzero()[1].mean(), abs=0.5)
