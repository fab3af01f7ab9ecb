"""Every level of the fallback, and what it makes of a query's tokens."""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from egohieraloc.config import QueryMaskConfig, preset
from egohieraloc.models.network import EgoHieraLocNet, QueryFeatures, box_cells, box_coverage
from egohieraloc.models.query_mask import fallback_level, steadiness, token_sets

# Four tokens: on the object, half on it, in the box but off the object, outside the box.
COVERAGE = torch.tensor([[1.0, 0.5, 0.2, 0.0]])
INSIDE = torch.tensor([[True, True, True, False]])


def sets(level: int, coverage: Tensor = COVERAGE, quality: float = 0.45) -> tuple[list[float], list[float]]:
    foreground, background = token_sets(coverage, INSIDE, torch.tensor([quality]), torch.tensor([level]))
    return foreground[0].tolist(), background[0].tolist()


@pytest.mark.parametrize(
    ("quality", "level"), [(1.0, 0), (0.6, 0), (0.599, 1), (0.4, 1), (0.399, 2), (0.0, 2)]
)
def test_levels_begin_at_the_papers_qualities(quality: float, level: int) -> None:
    assert fallback_level(quality, QueryMaskConfig()) == level


@pytest.mark.parametrize(
    ("fallback", "levels"), [("none", (0, 0, 0)), ("level1", (0, 1, 1)), ("level2", (0, 2, 2))]
)
def test_ablations_know_fewer_levels(fallback: str, levels: tuple[int, ...]) -> None:
    config = QueryMaskConfig(fallback=fallback)  # type: ignore[arg-type]
    assert tuple(fallback_level(quality, config) for quality in (0.7, 0.5, 0.1)) == levels


def test_level_0_trusts_the_mask() -> None:
    assert sets(0) == ([1, 1, 0, 0], [0, 0, 1, 1])


def test_level_1_adds_the_rest_of_the_box_softly() -> None:
    """s S + (1 - s): 1 on the mask, 1 - s beside it; the background stays as it was."""
    foreground, background = sets(1, quality=0.45)
    assert foreground == pytest.approx([1, 1, 0.55, 0])
    assert background == [0, 0, 1, 1]


def test_level_2_takes_the_whole_box_and_no_background() -> None:
    assert sets(2) == ([1, 1, 1, 0], [0, 0, 0, 0])


def test_an_empty_mask_falls_back_to_the_box() -> None:
    assert sets(0, torch.zeros(1, 4)) == ([1, 1, 1, 0], [0, 0, 0, 1])


def test_a_small_object_keeps_its_best_covered_cell() -> None:
    assert sets(0, torch.tensor([[0.1, 0.3, 0.2, 0.0]])) == ([0, 1, 0, 0], [1, 0, 1, 1])


def test_queries_of_a_batch_have_their_own_levels() -> None:
    foreground, background = token_sets(
        COVERAGE.expand(3, -1), INSIDE.expand(3, -1), torch.full((3,), 0.45), torch.tensor([0, 1, 2])
    )
    for level in range(3):
        expected = sets(level)
        assert foreground[level].tolist() == pytest.approx(expected[0])
        assert background[level].tolist() == expected[1]


def test_coverage_of_a_box_by_hand() -> None:
    """A box from (1/8, 0) to (1/2, 3/8) on a grid of four by four cells."""
    share = box_coverage(torch.tensor([[1 / 8, 0.0, 1 / 2, 3 / 8]]), 4, 4)[0]
    rows, columns = torch.tensor([1.0, 0.5, 0, 0]), torch.tensor([0.5, 1, 0, 0])
    torch.testing.assert_close(share, rows[:, None] * columns)
    assert box_cells(torch.tensor([[1 / 8, 0.0, 1 / 2, 3 / 8]]), 4, 4)[0].sum() == 3


def test_a_thin_box_still_has_cells_and_only_its_own() -> None:
    """A pen: a twentieth of the window high, so that no cell is half covered."""
    cells = box_cells(torch.tensor([[0.2, 0.4, 0.8, 0.45]]), 4, 4)[0]
    assert cells.nonzero().tolist() == [[1, 1], [1, 2]]


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(preset("tiny")).eval()


@pytest.fixture(scope="module")
def seen(network: EgoHieraLocNet) -> QueryFeatures:
    visible = torch.ones(1, 1, 128, 128)
    visible[..., 112:] = 0  # the image ends here
    with torch.no_grad():
        return network.encode_query(
            torch.rand(1, 3, 128, 128), torch.tensor([[0.25, 0.25, 0.75, 0.75]]), visible
        )


@pytest.mark.parametrize("level", [0, 1, 2])
def test_templates_of_every_level(network: EgoHieraLocNet, seen: QueryFeatures, level: int) -> None:
    mask = torch.zeros(1, 1, 128, 128)
    mask[..., 32:96, 32:64] = 1
    template = network.template(seen, mask, torch.tensor([0.5]), torch.tensor([level]))
    large, small = template.foreground[0, :64].view(8, 8), template.foreground[0, 64:].view(4, 4)
    for grid in (large, small):
        side = len(grid)
        left = grid[side // 4 : 3 * side // 4, side // 4 : side // 2]
        right = grid[side // 4 : 3 * side // 4, side // 2 : 3 * side // 4]
        assert (left == 1).all()
        assert (right == (0.0, 0.5, 1.0)[level]).all()
        assert grid.sum() == left.sum() + right.sum()
    background = template.background[0, :64].view(8, 8)
    assert (background[:, -1] == 0).all()  # padding is no background
    assert background[:, 0].sum() == (0 if level == 2 else 8)
    assert template.gain.tolist() == [1.5 if level == 2 else 1.0]
    torch.testing.assert_close(template.semi_axes[0], torch.tensor([[2.0, 2.0], [1.0, 1.0]]))


def test_gain_lifts_the_location_map_only_at_level_2(network: EgoHieraLocNet, seen: QueryFeatures) -> None:
    """The same template with another gain changes what the decoder sees, by the location map alone."""
    template = network.template(seen, torch.ones(1, 1, 8, 8), torch.tensor([0.2]), torch.tensor([2]))
    plain = dataclasses.replace(template, gain=torch.ones(1))
    seen_maps = []
    handle = network.ram.register_forward_pre_hook(lambda _, inputs: seen_maps.append(inputs[1]))
    with torch.no_grad():
        features = network.encode_frames(torch.rand(1, 3, 224, 224))
        for each in (template, plain):
            network.match(each, features, network.initial_state(each))
    handle.remove()
    lifted, usual = seen_maps
    torch.testing.assert_close(lifted[:, :3], usual[:, :3])
    torch.testing.assert_close(lifted[:, 3], 1.5 * usual[:, 3])
    assert usual[:, 3].max() > 0


def test_the_head_looks_at_the_box_and_is_differentiable(network: EgoHieraLocNet) -> None:
    window = torch.rand(1, 3, 128, 128, requires_grad=True)
    visible = torch.ones(1, 1, 128, 128)
    one = network.encode_query(window, torch.tensor([[0.25, 0.25, 0.75, 0.75]]), visible)
    other = network.encode_query(window, torch.tensor([[0.0, 0.0, 0.3, 0.3]]), visible)
    assert one.mask_logits.shape == (1, 32, 32)
    assert one.quality_logit.shape == (1,)
    assert not torch.equal(one.mask_logits, other.mask_logits)
    assert not torch.equal(one.quality_logit, other.quality_logit)
    (one.mask_logits.sum() + one.quality_logit.sum()).backward()
    assert window.grad is not None
    assert window.grad.abs().sum() > 0


def test_steadiness_is_the_share_of_a_mask_that_no_cut_changes() -> None:
    mask = np.zeros((10, 10), np.float32)
    mask[:4] = 0.95  # 40 cells are sure, 20 may be
    mask[4:6] = 0.5
    assert steadiness(mask) == pytest.approx(np.log(40 / 20))
    none, whole = (np.full((10, 10), value, np.float32) for value in (0, 1))
    assert steadiness(none) == pytest.approx(-steadiness(whole))
    sure = (mask > 0.9).astype(np.float32)
    soft = [steadiness(cv2.GaussianBlur(sure, (0, 0), blur)) for blur in (0.5, 1, 2)]
    assert soft == sorted(soft, reverse=True)
