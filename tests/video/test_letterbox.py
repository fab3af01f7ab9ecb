from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egohieraloc.types import Box
from egohieraloc.video.canvas import STEP
from egohieraloc.video.letterbox import Letterbox

sides = st.integers(1, 4000)
sizes = st.integers(1, 32).map(lambda steps: STEP * steps)
letterboxes = st.builds(Letterbox, sides, sides, sizes, st.booleans())
coordinates = st.floats(-5000, 5000)


@given(letterboxes, coordinates, coordinates, st.floats(0, 5000), st.floats(0, 5000))
def test_box_there_and_back(letterbox: Letterbox, x: float, y: float, width: float, height: float) -> None:
    box = Box.from_xywh(x, y, width, height)
    scale = max(letterbox.width, letterbox.height) / max(letterbox.content_size)
    there = letterbox.box_from_canvas(letterbox.box_to_canvas(box))
    back = letterbox.box_to_canvas(letterbox.box_from_canvas(box))
    assert there.xyxy == pytest.approx(box.xyxy, abs=1e-6 * max(1, scale))
    assert back.xyxy == pytest.approx(box.xyxy, abs=1e-6)


@given(letterboxes)
def test_the_image_fits_centred(letterbox: Letterbox) -> None:
    inside = letterbox.content
    assert letterbox.box_to_canvas(Box(0, 0, letterbox.width, letterbox.height)) == inside
    width, height = letterbox.canvas_size
    right, bottom = width - inside.x2, height - inside.y2
    assert right - inside.x1 in (0, 1)
    assert bottom - inside.y1 in (0, 1)
    assert min(inside.width, inside.height) >= 1


@given(sides, sides, sizes)
def test_a_square_canvas_is_filled_one_way(width: int, height: int, size: int) -> None:
    letterbox = Letterbox(width, height, size, square=True)
    assert letterbox.canvas_size == (size, size)
    assert max(letterbox.content_size) == size


@given(letterboxes, st.integers(1, 120), st.integers(1, 120))
def test_a_cropped_mask_covers_the_image_and_less_than_a_cell_more(
    letterbox: Letterbox, rows: int, columns: int
) -> None:
    grid = np.arange(rows * columns).reshape(rows, columns)
    mask, covered = letterbox.mask_to_frame(grid)
    assert mask.size > 0
    cell_x, cell_y = covered.width / mask.shape[1], covered.height / mask.shape[0]
    slack = 1e-6 * max(letterbox.width, letterbox.height)
    assert -cell_x < covered.x1 <= slack
    assert -cell_y < covered.y1 <= slack
    assert letterbox.width - slack <= covered.x2 < letterbox.width + cell_x
    assert letterbox.height - slack <= covered.y2 < letterbox.height + cell_y


def test_full_hd_by_hand() -> None:
    letterbox = Letterbox(1920, 1080)
    assert letterbox.canvas_size == letterbox.content_size == (512, 288)
    assert letterbox.box_to_canvas(Box(960, 540, 1920, 1080)).xyxy == pytest.approx((256, 144, 512, 288))
    assert letterbox.points_from_canvas(np.array([256.0, 144.0])).tolist() == [960, 540]
    mask, covered = letterbox.mask_to_frame(np.arange(72 * 128).reshape(72, 128))
    assert mask.shape == (72, 128)
    assert covered == Box(0, 0, 1920, 1080)


def test_vga_by_hand() -> None:
    """8 rows above and below the image are black; cells of 16 pixels end in the middle of them."""
    letterbox = Letterbox(640, 480)
    assert letterbox.canvas_size == (448, 352)
    assert letterbox.content == Box(0, 8, 448, 344)
    assert letterbox.points_to_canvas(np.array([[0.0, 0.0], [640, 480]])).tolist() == [[0, 8], [448, 344]]
    mask, covered = letterbox.mask_to_frame(np.arange(22 * 28).reshape(22, 28))
    assert mask.shape == (22, 28)
    assert covered.xyxy == pytest.approx((0, -8 / 0.7, 640, 480 + 8 / 0.7))


def test_on_a_square_by_hand() -> None:
    letterbox = Letterbox(1920, 1080, square=True)
    assert letterbox.content == Box(0, 98, 448, 350)
    mask, covered = letterbox.mask_to_frame(np.arange(112 * 112).reshape(112, 112))
    assert mask.shape == (64, 112)  # canvas rows 96 to 352: 98 and 350 lie inside a cell
    assert mask[0, 0] == 24 * 112
    assert covered.xyxy == pytest.approx((0, -2 / 252 * 1080, 1920, 1080 + 2 / 252 * 1080))


def test_a_square_image_of_the_right_size_is_unchanged() -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    assert np.array_equal(Letterbox(64, 64, 64).apply(rgb), rgb)


@pytest.mark.parametrize(("width", "height"), [(640, 360), (360, 640), (30, 20)])
def test_a_point_in_the_image_is_where_the_box_says(width: int, height: int) -> None:
    letterbox = Letterbox(width, height, 224)
    rgb = np.full((height, width, 3), 40, np.uint8)
    box = Box(width // 2, height // 4, width // 2 + width // 4, height // 4 + height // 4)
    x1, y1, x2, y2 = (int(v) for v in box.xyxy)
    rgb[y1:y2, x1:x2] = 240
    canvas = letterbox.apply(rgb)
    assert canvas.shape[1::-1] == letterbox.canvas_size
    rows, columns = np.nonzero(canvas[..., 0] >= 140)
    found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert found == pytest.approx(letterbox.box_to_canvas(box).xyxy, abs=0.51)
    inside = letterbox.content
    outside = np.ones(canvas.shape[:2], bool)
    outside[int(inside.y1) : int(inside.y2), int(inside.x1) : int(inside.x2)] = False
    assert not canvas[outside].any()
    assert (canvas[~outside] >= 35).all()


def test_shrinking_averages() -> None:
    rgb = np.zeros((128, 128, 3), np.uint8)
    rgb[::4] = 200
    assert (Letterbox(128, 128, 32).apply(rgb) == 50).all()


def test_growing_interpolates() -> None:
    rgb = np.zeros((16, 16, 3), np.uint8)
    rgb[:, 8:] = 200
    assert Letterbox(16, 16, 32).apply(rgb)[0, 14:18, 0].tolist() == [0, 50, 150, 200]


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="at least 1 pixel, got 0x10, 448"):
        Letterbox(0, 10)
    with pytest.raises(ValueError, match="for 20x10, got 10x20"):
        Letterbox(20, 10).apply(np.zeros((20, 10, 3), np.uint8))
