"""Close-ups show what a second look would see, and their labels lie where it is."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.close_ups import CHANCES, magnified, take_close_ups
from egohieraloc.training.objective import CHANCES_A_CLIP, clip_terms

TINY = preset("tiny")


@pytest.fixture(scope="module")
def batch() -> ClipBatch:
    return clip_batch(TINY, clips=4, times=1)


def close_ups_of(batch: ClipBatch, clip: Tensor, *, chance: float = 0.5):
    peak = torch.tensor([[0.5, 0.5]]).expand(len(batch), 2)
    return take_close_ups(batch, clip, peak, torch.full((len(batch), CHANCES), chance))


def test_a_square_is_magnified_and_nothing_moves() -> None:
    ramp = torch.arange(8.0).expand(1, 1, 8, 8)
    whole = magnified(ramp, torch.zeros(1, 2), torch.ones(1))
    assert torch.allclose(whole, ramp, atol=1e-6)
    right = magnified(ramp, torch.tensor([[0.5, 0.5]]), torch.tensor([0.5]))
    # Eight pixels over the columns 4 to 7: the first lies a quarter of a pixel left of column 4's centre.
    assert right[0, 0, 0].tolist() == pytest.approx([3.75, 4.25, 4.75, 5.25, 5.75, 6.25, 6.75, 7.0], abs=1e-5)


def test_a_close_up_of_the_object_shows_it_larger_and_where_its_box_says(batch: ClipBatch) -> None:
    closer = close_ups_of(batch, torch.arange(4), chance=0.2)
    assert closer.presence.tolist() == [1, 1, 1, 0]  # every fourth clip does not show its object
    for clip in range(3):
        x1, y1, x2, y2 = (closer.boxes[clip] / 4).round().long().tolist()
        inside = closer.masks[clip, y1:y2, x1:x2]
        assert inside.mean() > 0.85
        assert closer.masks[clip].sum() - inside.sum() < 0.15 * inside.sum()
        before = batch.boxes[clip, 0]
        assert (closer.boxes[clip, 2] - closer.boxes[clip, 0]) > (before[2] - before[0])
    shown = closer.images[0, :, *(closer.boxes[0].view(2, 2).mean(0).flip(0).long())]
    middle = batch.frames[0, 0, :, *(batch.boxes[0, 0].view(2, 2).mean(0).flip(0).long())]
    assert torch.allclose(shown, middle, atol=0.25)


def test_a_close_up_of_another_clip_shows_neither_object_nor_look_alike(batch: ClipBatch) -> None:
    alike = dataclasses.replace(batch, distractor_masks=torch.ones_like(batch.masks))
    closer = close_ups_of(alike, torch.tensor([1, 2, 3, 0]))
    assert not closer.presence.any()
    for labels in (closer.masks, closer.boxes, closer.distractor_masks):
        assert not labels.any()
    assert closer.is_own.tolist() == [False] * 4


@pytest.mark.parametrize("propagation", [False, True])
def test_close_ups_reach_the_losses(batch: ClipBatch, propagation: bool) -> None:
    """They change every term of frames and masks, and the network learns from them."""
    torch.manual_seed(0)
    config = dataclasses.replace(TINY, ram=dataclasses.replace(TINY.ram, propagation=propagation))
    network = EgoHieraLocNet(config).eval()
    chance = torch.rand(4, CHANCES_A_CLIP)
    without, _ = clip_terms(network, batch, chance, negatives=1)
    with_them, _ = clip_terms(network, batch, chance, negatives=1, close_ups=True)
    for name in ("presence", "score", "box", "filter", "cells", "similarity", "mask", "dice"):
        assert float(without[name].detach()) != pytest.approx(float(with_them[name].detach()), abs=1e-6), name
    sum(with_them.values()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
