"""Boxes stay with one of two objects that look alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from stored import MAPS

from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.steady import steady
from egohieraloc.types import Box

CELL = 4
LEFT, RIGHT = (2, 4), (19, 21)  # columns of two objects on a grid of 16 x 24 cells, a canvas of 96 x 64


def sample(
    score: float, *, on: tuple[int, int], shown: tuple[tuple[int, int], ...] = (LEFT, RIGHT)
) -> Decoded:
    mask = np.zeros((16, 24), np.uint8)
    for first, last in shown:
        mask[6:9, first:last] = 200
    box = Box(on[0] * CELL, 6 * CELL, on[1] * CELL, 9 * CELL)
    return Decoded(score, box, mask, MAPS)


def test_a_box_that_jumps_to_the_other_object_is_brought_back() -> None:
    decoded = {
        3: sample(0.5, on=RIGHT),
        4: sample(0.9, on=LEFT),
        5: sample(0.8, on=RIGHT),
        7: sample(0.8, on=LEFT),
    }
    corrected = steady(decoded, (0, 9))
    assert sorted(corrected) == [3, 5]
    for number in (3, 5):
        assert corrected[number].box == decoded[4].box
        assert corrected[number].mask[:, : LEFT[1]].any()
        assert not corrected[number].mask[:, RIGHT[0] :].any()
        assert corrected[number].score == decoded[number].score


def test_an_object_that_moved_is_followed() -> None:
    """Where nothing is left at the old place the new one is right, and the walk goes on from there."""
    decoded = {
        0: sample(0.9, on=LEFT, shown=(LEFT,)),
        1: sample(0.8, on=RIGHT, shown=(RIGHT,)),
        2: sample(0.8, on=LEFT),
    }
    corrected = steady(decoded, (0, 2))
    assert sorted(corrected) == [2]
    assert corrected[2].box == decoded[1].box


def test_a_speck_at_the_old_place_is_no_object() -> None:
    left, right = (1, 6), (19, 21)
    large = sample(0.9, on=left, shown=(left,))
    mask = sample(0.8, on=right, shown=(right,)).mask
    mask[7, 3] = 200
    decoded = {0: large, 1: replace(large, score=0.8, box=sample(0.8, on=right).box, mask=mask)}
    assert steady(decoded, (0, 1)) == {}


def test_only_the_interval_counts() -> None:
    decoded = {0: sample(0.99, on=RIGHT), 4: sample(0.9, on=LEFT), 5: sample(0.8, on=LEFT)}
    assert steady(decoded, (4, 5)) == {}
    assert steady(decoded, (1, 3)) == {}
