"""What ships answers as it is known to: the shipped weights on the bundled clip, in 2D and in 3D.

The values are those of `egohieraloc demo` on a CPU. Tolerances allow for other processors and libraries,
whose rounding may move an end by a sample and a box by a cell of its mask. The place is compared with the
truth: a map of the walk has a scale and an orientation of its own each time it is built.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from egohieraloc import Localizer, Query, Video, demo
from egohieraloc.cli.demo import DEMO_SETTINGS, compare_place
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.result import Result
from egohieraloc.types import Localization3D, ResponseTrack

FIRST_SAMPLE, LAST_SAMPLE = 129, 157  # five a second: from 25.8 s to 31.4 s
SCORE = 0.921
BOXES = {  # by sample, in pixels of the clip
    130: (548.6, 188.6, 617.1, 257.1),
    136: (365.7, 200.0, 422.9, 262.9),
    143: (314.3, 194.3, 377.1, 262.9),
    150: (320.0, 182.9, 394.3, 257.1),
    156: (537.1, 257.1, 628.6, 348.6),
}
CELL_PX = 640 / 448 * 4  # a cell of the mask, in pixels of the clip
DISTANCE_M = 2.674  # of the object from the camera at the end of the clip


@pytest.fixture(scope="module")
def result(demo_cache: Path) -> Result:
    """The demo's answer; the camera poses are found from the clip itself."""
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    localizer = Localizer.from_pretrained(device="cpu", settings=DEMO_SETTINGS, cache=demo_cache)
    return localizer.locate(query, Video.open(demo.CLIP), in_3d=True)


@pytest.fixture(scope="module")
def track(result: Result) -> ResponseTrack:
    assert isinstance(result.track, ResponseTrack), result.track
    return result.track


def test_what_was_remembered_with_these_weights_is_found_again() -> None:
    """A memory is kept for ever: its readings are found by this name as long as the weights are the same."""
    assert load_weights(find_weights("mini")).features_fingerprint == "2de23a8c952219f2"


def test_the_last_appearance_is_the_known_one(track: ResponseTrack) -> None:
    assert track.predictions[0].sample == pytest.approx(FIRST_SAMPLE, abs=1)
    assert track.predictions[-1].sample == pytest.approx(LAST_SAMPLE, abs=1)
    assert track.score == pytest.approx(SCORE, abs=0.02)
    truth = demo.load_truth().appearances[-1]
    assert truth == (FIRST_SAMPLE, LAST_SAMPLE)


def test_its_boxes_are_the_known_ones(track: ResponseTrack) -> None:
    found = {p.sample: p.box.xyxy for p in track.predictions}
    for sample, box in BOXES.items():
        np.testing.assert_allclose(found[sample], box, atol=1.5 * CELL_PX, err_msg=f"sample {sample}")


def test_its_place_is_the_known_one(result: Result) -> None:
    """2 cm and 0.2 degrees off; at most 3 % of the distance and 1 degree, with 95 % of the samples posed."""
    place = result.place
    assert isinstance(place, Localization3D), place
    assert result.cameras is not None
    assert place.posed_frames >= 0.95 * place.num_frames
    off = compare_place(place, result.cameras, demo.load_truth())
    assert off.distance_m == pytest.approx(DISTANCE_M, abs=1e-3)
    assert off.error_m < 0.03 * DISTANCE_M
    assert off.angle_deg < 1
