"""The look back learns from what the network finds, and nothing else of the network changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clips import clip_batch
from egohieraloc.boxes import iou_xyxy
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError
from egohieraloc.inference.query_window import cut_window
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import copy_weights, load_weights, save_weights
from egohieraloc.query import Query
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.look_back import (
    CANDIDATES,
    CHANCES,
    JITTER,
    Candidates,
    candidates,
    cut_windows,
    iou,
    jittered,
    look_back_terms,
)
from egohieraloc.training.optim import OptimConfig, freeze_parameters
from egohieraloc.training.recipe import Recipe, build_network
from egohieraloc.types import Box

TINY = replace(preset("tiny"), look_back=True)


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(TINY).eval()


@pytest.fixture(scope="module")
def batch() -> ClipBatch:
    return clip_batch(TINY, clips=8, times=2)


@pytest.fixture(scope="module")
def found(network: EgoHieraLocNet, batch: ClipBatch) -> Candidates:
    with torch.no_grad():
        return candidates(network, batch, torch.full((len(batch), CHANCES), 0.5))


def test_windows_are_those_of_a_query() -> None:
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((1, 3, 9, 9), np.float32))
    frame = torch.nn.functional.interpolate(coarse, size=(224, 224), mode="bilinear")
    box = Box(20.0, 30.0, 60.0, 110.0)
    rgb = (frame[0].permute(1, 2, 0) * 255).round().byte().numpy()
    wanted = cut_window(Query(rgb, box), share=TINY.query_window, size=TINY.query_sizes[0])
    none = torch.zeros(1, 1, dtype=torch.long)
    boxes = torch.tensor([[box.xyxy]]) / 224
    window, inside, visible = cut_windows(frame[None], none, none, boxes, TINY)
    np.testing.assert_allclose(inside[0].numpy(), wanted.box, atol=1e-5)
    assert np.mean((visible[0, 0].numpy() > 0.5) == wanted.visible) > 0.98
    away_from_edge = wanted.visible & (visible[0, 0].numpy() > 0.5)
    error = np.abs(window[0].permute(1, 2, 0).numpy() * 255 - wanted.rgb)[away_from_edge]
    assert np.quantile(error, 0.98) < 4


def test_boxes_move_a_little_and_about_their_place() -> None:
    boxes = torch.tensor([[[0.2, 0.2, 0.4, 0.6]]])
    assert torch.equal(jittered(boxes, torch.full((1, 4), 0.5)), boxes)
    moved = jittered(boxes, torch.ones(1, 4)) - boxes
    torch.testing.assert_close(moved[0, 0], JITTER * torch.tensor([0.2, 0.4, 0.2, 0.4]))


def test_overlap_is_that_of_boxes() -> None:
    rng = np.random.default_rng(0)
    a, b = (np.sort(rng.random((20, 2, 2)), 1).reshape(20, 4) for _ in range(2))
    np.testing.assert_allclose(iou(torch.from_numpy(a), torch.from_numpy(b)).numpy(), iou_xyxy(a, b))


def test_the_object_itself_is_right_and_what_other_clips_show_is_wrong(
    batch: ClipBatch, found: Candidates
) -> None:
    assert found.correct.shape == (len(batch), CANDIDATES)
    assert found.correct[:, 1].all()
    assert torch.equal(found.weight[:, 1], batch.presence[:, 1])
    assert not found.correct[:, 2:].any()
    assert found.weight[:, 2:].sum() > 0
    absent = batch.presence[:, 0] < 0.5
    assert absent.any()
    assert not found.correct[absent, 0].any()
    assert found.weight[absent, 0].all()


def test_where_no_other_clip_is_known_to_lack_the_object_nothing_is_wrong(
    network: EgoHieraLocNet, batch: ClipBatch
) -> None:
    same = replace(batch, source=torch.zeros_like(batch.source), shown=torch.zeros_like(batch.shown))
    with torch.no_grad():
        weight = candidates(network, same, torch.full((len(batch), CHANCES), 0.5)).weight
    assert not weight[:, 2:].any()


def test_a_candidate_is_compared_with_its_own_query(network: EgoHieraLocNet, found: Candidates) -> None:
    """Rows of one query have one window, those of another have another."""
    rows = found.windows.match.unflatten(0, (-1, CANDIDATES))
    assert torch.equal(rows[:, 0], rows[:, -1])
    assert not torch.equal(rows[0, 0], rows[1, 0])


def test_only_the_look_back_learns(batch: ClipBatch) -> None:
    torch.manual_seed(0)
    network = EgoHieraLocNet(TINY).eval()
    freeze_parameters(network, OptimConfig(part="look_back"))
    terms, figures = look_back_terms(network, batch, torch.rand(len(batch), CHANCES))
    sum(terms.values()).backward()
    learns = {name.split(".")[0] for name, p in network.named_parameters() if p.grad is not None}
    assert learns == {"back"}
    assert network.back.cell.weight.grad.abs().sum() > 0
    assert all(0 <= float(value) <= 1 for value in figures.values())


def test_a_network_without_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"Set network\.look_back=true"):
        freeze_parameters(EgoHieraLocNet(preset("tiny")), OptimConfig(part="look_back"))


def test_it_begins_as_the_decoder_of_the_first_look_and_is_added_to_a_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain, extended = tmp_path / "plain.safetensors", tmp_path / "extended.safetensors"
    save_weights(plain, EgoHieraLocNet(preset("tiny")), bits=8)
    network = build_network(Recipe(weights=str(plain), network=TINY))
    for name, value in network.ram.state_dict().items():
        assert torch.equal(network.back.state_dict()[name], value), name
    with torch.no_grad():
        network.back.cell.weight += 1
    copy_weights(plain, extended, back=network.back)
    before, after = load_weights(plain), load_weights(extended)
    assert after.network.config == TINY
    assert after.features_fingerprint == before.features_fingerprint
    for name, value in before.network.state_dict().items():
        assert torch.equal(after.network.state_dict()[name], value), name
    torch.testing.assert_close(after.network.back.cell.weight, network.back.cell.weight, atol=0.02, rtol=0)
