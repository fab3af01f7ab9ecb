"""Queries with known answers in composed videos."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from egohieraloc.config import preset
from egohieraloc.inference.predict import Predictor
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, Weights
from egohieraloc.training.composer.composed_videos import compose_queries, halved
from tiny_packs import calm_config, tiny_packs

CLIPS = calm_config(frame_px=224, query_px=128, clip_frames=3, pan=(0.001, 0.002), edge_share=0.0)


@pytest.fixture(scope="module")
def tiny_weights() -> Weights:
    torch.manual_seed(0)
    return Weights(EgoHieraLocNet(preset("tiny")).eval(), Calibration(), "tiny")


def test_halves_share_no_object_and_no_photo_and_keep_near_duplicates_together() -> None:
    packs = tiny_packs(photos=5, sprite_id=(0, 1, 0, 3))
    packs = replace(packs, photos=packs.photos + torch.arange(5, dtype=torch.uint8)[:, None, None, None])
    first, second = halved(packs)
    assert first.sprite_id.tolist() == [0, 0, 3]
    assert second.sprite_id.tolist() == [1]
    assert torch.equal(second.sprites, packs.sprites[[1]])
    assert (len(first.photos), len(second.photos)) == (3, 2)
    for half, start in ((first, 0), (second, 1)):
        owners = packs.photos[start::2][half.mask_photo]
        assert torch.equal(owners, half.photos[half.mask_photo])
        assert len(half.mask_box) == len(half.mask_crops) == 2 * len(half.photos)


def test_the_true_track_of_a_query_is_in_its_own_clip(tmp_path: Path, tiny_weights: Weights) -> None:
    predictor = Predictor(tiny_weights, device="cpu")
    queries = list(compose_queries(tiny_packs(), predictor, tmp_path, clips=6, config=CLIPS, seed=1))
    assert len(queries) == 6
    for query in queries:
        assert len(query.video.time_s) == (3 + 1) * 3
        assert query.truth.frames[0] % 3 == 0
        assert np.diff(query.truth.frames).tolist() == [1, 1]
        assert query.masks.shape == (3, 56, 56)
        for mask, box in zip(query.masks, query.truth.boxes_xyxy, strict=True):
            y, x = np.nonzero(mask)
            assert [4 * x.min(), 4 * y.min(), 4 * x.max() + 4, 4 * y.max() + 4] == pytest.approx(box, abs=6)
    assert len({int(q.truth.frames[0]) for q in queries}) > 1
    there = queries[0].truth.frames.tolist()
    assert sorted(queries[0].video.frames(there)) == there  # and can be looked at again


def test_absent_objects_have_an_empty_track(tmp_path: Path, tiny_weights: Weights) -> None:
    config = replace(CLIPS, absent_share=1.0)
    predictor = Predictor(tiny_weights, device="cpu")
    queries = compose_queries(tiny_packs(), predictor, tmp_path, clips=2, config=config)
    assert [len(q.truth) for q in queries] == [0, 0]
