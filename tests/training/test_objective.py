"""Negatives from other clips, and which terms they contribute to."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.objective import _frame_terms, _mask_terms, _with_negatives, clip_terms

SIMILARITY = torch.tensor(
    [[0.9, 0.2, 0.5, 0.4], [0.3, 0.9, 0.1, 0.2], [0.6, 0.1, 0.9, 0.7], [0.1, 0.8, 0.2, 0.9]]
)
MAY_SHOW_OBJECT = -torch.inf  # so the clip has no negatives


def test_negatives_are_the_most_similar_frames_of_other_clips() -> None:
    matched = _with_negatives(SIMILARITY, times=3, count=2)
    assert matched.frame.tolist() == [[0, 1, 2, 6, 9], [3, 4, 5, 0, 9], [6, 7, 8, 9, 0], [9, 10, 11, 3, 6]]
    everywhere = SimpleNamespace(presence=torch.ones(4, 3), masks=torch.ones(4, 3, 2, 2))
    assert matched.labels(everywhere, "presence").reshape(4, 5).tolist() == [[1, 1, 1, 0, 0]] * 4
    assert matched.labels(everywhere, "masks").shape == (20, 2, 2)


def test_a_frame_that_may_show_the_object_is_not_a_negative() -> None:
    similarity = SIMILARITY.clone()
    similarity[0, 2] = similarity[0, 3] = MAY_SHOW_OBJECT
    matched = _with_negatives(similarity, times=1, count=2)
    assert matched.frame[0].tolist() == [0, 1, 0]  # too few others: its own frame again, with its labels
    boxes = SimpleNamespace(boxes=torch.arange(16.0).reshape(4, 1, 4))
    assert matched.labels(boxes, "boxes").reshape(4, 3, 4)[0].tolist() == [
        [0, 1, 2, 3],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
    ]


def test_no_negatives_in_a_batch_of_one() -> None:
    matched = _with_negatives(torch.zeros(1, 1), times=2, count=2)
    assert matched.frame.tolist() == [[0, 1, 0]]
    seen = SimpleNamespace(presence=torch.tensor([[0.0, 1.0]]))
    assert matched.labels(seen, "presence").tolist() == [0, 1, 0]


def test_clips_that_show_the_object_give_no_negatives() -> None:
    """If all clips show the object, its own frames are used again and the contrast loss is zero."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=3, times=1), torch.full((3, 2), 0.6)
    everywhere = dataclasses.replace(batch, shown=torch.arange(3).expand(3, 3))
    with torch.no_grad():
        alone, _ = clip_terms(network, everywhere, chance)
        again, _ = clip_terms(network, everywhere, chance, negatives=1)
        apart, _ = clip_terms(network, batch, chance, negatives=1)
    assert float(alone["contrast"]) == 0
    assert float(apart["contrast"]) > 0
    # The same frame matched twice: only the QAM's state after the first time makes a difference.
    assert abs(float(again["presence"] - alone["presence"])) < 1e-3
    assert abs(float(apart["presence"] - alone["presence"])) > 1e-2


def test_masks_are_learnt_from_the_own_clip_alone() -> None:
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=4, times=2), torch.full((4, 2), 0.6)
    with torch.no_grad():
        alone, seen_alone = clip_terms(network, batch, chance)
        among, seen_among = clip_terms(network, batch, chance, negatives=2)
    for name in ("mask", "dice", "mask_in_box", "query_mask"):
        torch.testing.assert_close(among[name], alone[name])
    torch.testing.assert_close(seen_among["mask_iou"], seen_alone["mask_iou"])
    assert not torch.equal(among["presence"], alone["presence"])


def test_the_score_loss_follows_the_cell_logits() -> None:
    """Higher logits lower the score loss where the object is present and raise it where it is absent."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval()
    batch, chance = clip_batch(preset("tiny"), clips=2, times=1), torch.full((2, 2), 0.6)
    shown = [dataclasses.replace(batch, presence=torch.full((2, 1), value)) for value in (1.0, 0.0)]

    def losses() -> list[float]:
        with torch.no_grad():
            return [float(clip_terms(network, clips, chance)[0]["score"]) for clips in shown]

    before = losses()
    with torch.no_grad():
        network.ram.cell.bias += 1
    after = losses()
    # As log(1 + exp(-x)) - log(1 + exp(x)) = -x, adding 1 to the logits changes the difference by 2 over 2
    # clips.
    assert after[0] < before[0]
    assert after[1] > before[1]
    assert (before[0] - before[1]) - (after[0] - after[1]) == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("canvas", [(224, 224), (256, 160), (192, 224)])
def test_the_right_answer_costs_nothing_on_frames_of_any_shape(canvas: tuple[int, int]) -> None:
    """True boxes, true cells and a response that peaks at the true centre: no axis is taken for another."""
    network, (width, height) = EgoHieraLocNet(preset("tiny")), canvas
    batch = clip_batch(preset("tiny"), clips=3, times=2, canvas=canvas)
    grid = (height // 16, width // 16)
    pixels, covered = batch.boxes.flatten(0, 1), batch.masks.flatten(0, 1)
    x, y = torch.arange(grid[1]) + 0.5, torch.arange(grid[0]) + 0.5
    middle, sides = (pixels[:, :2] + pixels[:, 2:]) / 32, (pixels[:, 2:] - pixels[:, :2]) / 16
    spread = (network.config.dcf.sigma * sides.prod(-1).sqrt()).clamp(min=0.7)[:, None, None]
    distance = (y[:, None] - middle[:, 1, None, None]) ** 2 + (x - middle[:, 0, None, None]) ** 2
    cells = torch.nn.functional.avg_pool2d(covered[:, None], 4)[:, 0]
    share = pixels / torch.tensor([width, height, width, height])
    ram = SimpleNamespace(
        boxes=share[..., None, None].expand(-1, -1, *grid),
        presence_logit=torch.full((6,), 20.0),
        cell_logits=torch.where(cells >= 0.5, 20.0, -20.0),
    )
    response = torch.exp(-distance / (2 * spread**2))
    seen = SimpleNamespace(ram=ram, response=response, foreground=torch.zeros_like(response))
    matched = _with_negatives(torch.zeros(3, 3), times=2, count=0)
    terms, figures = _frame_terms(network, seen, batch, matched)
    assert float(terms["box"]) == pytest.approx(0, abs=1e-6)
    assert float(terms["box_xywh"]) == pytest.approx(0, abs=1e-6)
    assert float(terms["filter"]) == pytest.approx(0, abs=1e-6)
    assert float(terms["score"]) < 1e-3
    assert float(figures["score_accuracy"]) == 1
    swapped = torch.where(cells.flip(0) >= 0.5, 20.0, -20.0)
    ram.cell_logits = swapped
    assert float(_frame_terms(network, seen, batch, matched)[0]["cells"]) > 3 * float(terms["cells"])


@pytest.mark.parametrize("canvas", [(224, 224), (256, 160), (160, 256)])
def test_a_mask_that_fills_its_box_costs_nothing_on_frames_of_any_shape(canvas: tuple[int, int]) -> None:
    width, height = canvas
    batch = clip_batch(preset("tiny"), clips=3, times=2, canvas=canvas)
    corners = (batch.boxes / 4).flatten(0, 1).round().int().tolist()
    masks = torch.zeros(6, height // 4, width // 4)
    for mask, (x1, y1, x2, y2) in zip(masks, corners, strict=True):
        mask[y1:y2, x1:x2] = 1
    boxes = 4.0 * torch.tensor(corners).view(3, 2, 4)
    batch = dataclasses.replace(batch, boxes=boxes, masks=masks.view(3, 2, height // 4, width // 4))
    matched = _with_negatives(torch.zeros(3, 3), times=2, count=0)
    terms, figures = _mask_terms(40 * masks - 20, batch, matched)
    for name in ("mask_in_box", "mask", "dice"):
        assert float(terms[name]) == pytest.approx(0, abs=1e-3), name
    assert float(figures["mask_iou"]) == pytest.approx(1)
