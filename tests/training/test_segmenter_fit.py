"""The segmenter's quality: degraded queries, the fit to the true IoU, and weights that carry it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit

from egohieraloc import demo
from egohieraloc.config import QueryMaskConfig, preset
from egohieraloc.inference.predict import Predictor
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.query_mask import fallback_level, segmenter_quality
from egohieraloc.models.weights import (
    Calibration,
    Weights,
    copy_weights,
    find_weights,
    load_weights,
    save_weights,
)
from egohieraloc.query import Query
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.degraded_queries import DEGRADED, behind_hand, hand_over
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.training.segmenter_fit import (
    Segmented,
    calibrate_segmenter,
    fit_segmenter,
    quality_error,
    segmented,
    segmented_queries,
)
from egohieraloc.types import Box
from tiny_packs import calm_config, tiny_packs

DATA = Path(os.environ.get("EGOHIERALOC_DATA", "absent")) / "data"
PLAIN = QueryMaskConfig()
CLIPS = calm_config(frame_px=128, query_px=128)
RNG = np.random.default_rng(0)
QUERY = Query(RNG.integers(0, 255, (120, 160, 3), np.uint8), Box(30, 20, 110, 100))


def test_the_fit_finds_the_line_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    raw, steady = rng.normal(2, 1, 4000), rng.normal(1, 1, 4000)
    iou = expit(0.4 * raw + 0.9 * steady - 1.2)
    found = [Segmented("", *row, 0) for row in zip(iou, expit(raw), steady, strict=True)]
    fitted = fit_segmenter(found, replace(PLAIN, trusted=0.7))
    line = fitted.slope, fitted.steadiness, fitted.offset
    assert line == pytest.approx((0.4, 0.9, -1.2), abs=1e-3)
    assert fitted.trusted == 0.7
    assert quality_error(found, fitted) < 1e-3 < quality_error(found, PLAIN)


def test_degraded_queries_show_less() -> None:
    sharp = {
        name: np.abs(np.diff(degrade(QUERY).image.astype(int), axis=1)).mean()
        for name, degrade in DEGRADED.items()
    }
    assert sharp["blurred"] < 0.1 * sharp["as it is"]
    for name, side_px in (("20 pixels", 20), ("all three", 20), ("worse", 10)):
        box = DEGRADED[name](QUERY).box
        assert max(box.width, box.height) == pytest.approx(side_px, abs=0.5)
    hidden = hand_over(QUERY)
    assert 0.1 < hidden[20:100, 30:110].mean() < 0.4
    changed = (behind_hand(QUERY).image != QUERY.image).any(-1)
    assert not (changed & ~hidden).any()


def test_the_iou_is_measured_in_the_pixels_of_the_sound_query() -> None:
    """A provider that paints the box: under every degradation its mask is the box."""

    def box_interior(query: Query) -> tuple[np.ndarray, float]:
        mask = np.zeros(query.image.shape[:2], bool)
        x1, y1, x2, y2 = (round(v) for v in query.box.xyxy)
        mask[y1:y2, x1:x2] = True
        return mask, 0.5

    predictor = Predictor(load(), device="cpu", provider=box_interior)
    truth = np.zeros((120, 160), bool)
    truth[20:100, 30:110] = True
    for name in ("as it is", "20 pixels"):
        found = segmented(predictor, name, DEGRADED[name](QUERY), truth)
        assert found.iou > 0.85
        assert (found.quality, found.level) == (0.5, 1)


def load() -> Weights:
    torch.manual_seed(0)
    return Weights(EgoHieraLocNet(preset("tiny")).eval(), Calibration(), "tiny")


def test_weights_carry_the_fit(tmp_path: Path) -> None:
    weights, calibration = load(), Calibration(slope=2.0, threshold=0.3)
    save_weights(tmp_path / "a.safetensors", weights.network, calibration)
    fitted, found = calibrate_segmenter(tmp_path / "a.safetensors", tiny_packs(), queries=1, config=CLIPS)
    assert len(found) == len(DEGRADED)
    copy_weights(tmp_path / "a.safetensors", tmp_path / "b.safetensors", calibration, query_mask=fitted)
    copied = load_weights(tmp_path / "b.safetensors")
    assert copied.network.config == replace(preset("tiny"), query_mask=fitted)
    assert copied.calibration == calibration
    again, _ = calibrate_segmenter(tmp_path / "b.safetensors", tiny_packs(), queries=1, config=CLIPS)
    assert again == fitted  # a fit does not see the one before


def test_the_shipped_weights_doubt_what_is_degraded() -> None:
    """Masks as composed held-out queries have: sound, behind a hand and blurred, and lost."""
    weights = load_weights(find_weights("mini"))
    config = weights.network.config.query_mask
    reached = [
        fallback_level(segmenter_quality(2.0, mask, config), config)
        for mask in (unsure(0.1), unsure(0.6), unsure(0.85))
    ]
    assert reached == [0, 1, 2]
    predictor = Predictor(weights, device="cpu", engine="torch")
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    found = [
        predictor.prepare(DEGRADED[name](query)).mask
        for name in ("as it is", "blurred", "all three", "worse")
    ]
    assert found[0].level == 0
    qualities = [mask.quality for mask in found]
    assert qualities == sorted(qualities, reverse=True)
    assert qualities[0] - qualities[-1] > 0.1


def unsure(share: float) -> NDArray[np.float32]:
    """A mask, this share of which is neither surely inside nor outside."""
    mask = np.zeros((40, 50), np.float32)
    mask[:20] = 0.95
    mask[: round(20 * share)] = 0.5
    return mask


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="needs EGOHIERALOC_DATA")
def test_degraded_queries_of_unseen_objects_reach_every_level() -> None:
    packs = read_packs(DATA, split="heldout", limit=PACK_LIMIT)
    predictor = Predictor(load_weights(find_weights("mini")), device="cpu")
    found = list(segmented_queries(predictor, packs, 60))
    assert {one.level for one in found if one.degradation == "as it is"} == {0}
    assert {one.level for one in found} == {0, 1, 2}
