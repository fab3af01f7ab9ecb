"""Laws of the Discriminative Parsing Module, with cosines known by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import DpmConfig
from egohieraloc.models.dpm import similarity_maps, top_k_mean

ONES = torch.ones(1, 4)
SIMILARITY = torch.tensor([[[0.9, 0.1, 0.5, 0.7], [-0.2, -0.4, 0.0, -0.6]]])  # one query, two cells, 4 tokens


def unit(*angles_deg: float) -> Tensor:
    """Unit vectors (N, 2) at these angles: their cosines are those of the differences."""
    angles = torch.deg2rad(torch.tensor(angles_deg))
    return torch.stack([angles.cos(), angles.sin()], -1)


def test_mean_of_the_three_best() -> None:
    torch.testing.assert_close(top_k_mean(SIMILARITY, ONES, 3), torch.tensor([[0.7, -0.2]]))
    torch.testing.assert_close(top_k_mean(SIMILARITY, ONES, 1), torch.tensor([[0.9, 0.0]]))


def test_with_fewer_than_k_members_all_of_them_count() -> None:
    two = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    torch.testing.assert_close(top_k_mean(SIMILARITY, two, 3), torch.tensor([[0.4, -0.5]]))
    torch.testing.assert_close(top_k_mean(SIMILARITY[..., :2], ONES[:, :2], 3), torch.tensor([[0.5, -0.3]]))


def test_no_members_give_zero() -> None:
    assert (top_k_mean(SIMILARITY, torch.zeros(1, 4), 3) == 0).all()


def test_weights_scale_the_similarity() -> None:
    soft = torch.tensor([[0.5, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(top_k_mean(SIMILARITY, soft, 1), torch.tensor([[0.45, -0.1]]))


def test_each_query_of_a_batch_has_its_own_members() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 1.0]])
    found = top_k_mean(SIMILARITY.expand(2, -1, -1), weights, 3)
    torch.testing.assert_close(found, torch.tensor([[0.9, -0.2], [0.4, -0.5]]))


def test_one_querys_weights_count_for_every_frame() -> None:
    similarity, weight = torch.randn(3, 5, 9), torch.tensor([[1.0, 0, 0.5, 1, 0, 0, 1, 0.2, 0]])
    shared, each = top_k_mean(similarity, weight, 3), top_k_mean(similarity, weight.expand(3, -1), 3)
    torch.testing.assert_close(shared, each)


def test_maps_from_cosines_by_hand() -> None:
    """Cells at 0 and 90 degrees, foreground at 0 and 60, background at 90."""
    cells = unit(0, 90).T[None, :, None, :]  # (1, 2, 1, 2)
    tokens = unit(0, 60, 90)[None]
    foreground, background = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    similarity, likelihood = similarity_maps(
        cells, tokens, foreground, background, DpmConfig(temperature=0.5)
    )
    side = math.cos(math.radians(30))
    expected = torch.tensor([[[(1 + 0.5) / 2, (0 + side) / 2]]])
    torch.testing.assert_close(similarity, expected, atol=1e-6, rtol=0)
    background_similarity = torch.tensor([[[0.0, 1.0]]])
    closed = torch.stack([expected / 0.5, background_similarity / 0.5]).softmax(0)[0]
    torch.testing.assert_close(likelihood, closed, atol=1e-6, rtol=0)


def test_the_papers_temperature_confines_z() -> None:
    """docs/paper.md D4: two cosines differ by at most 2, so with temperature 1 Z stays in [.12, .88]."""
    cells, tokens = unit(0).T[None, :, :, None], unit(0, 180)[None]
    sets = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    _, printed = similarity_maps(cells, tokens, *sets, DpmConfig(temperature=1))
    _, ours = similarity_maps(cells, tokens, *sets, DpmConfig())
    assert float(printed) == pytest.approx(0.8808, abs=1e-4)
    assert float(ours) > 0.999


def test_empty_background_leaves_z_to_the_foreground() -> None:
    cells, tokens = unit(60).T[None, :, :, None], unit(0, 90)[None]
    _, likelihood = similarity_maps(cells, tokens, torch.ones(1, 2), torch.zeros(1, 2), DpmConfig(top_k=1))
    assert float(likelihood) == pytest.approx(1 / (1 + math.exp(-math.cos(math.radians(30)) / 0.1)), rel=1e-5)


def test_order_of_tokens_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    cells = F.normalize(torch.randn(2, 8, 3, 5, generator=generator), dim=1)
    tokens = F.normalize(torch.randn(2, 20, 8, generator=generator), dim=2)
    foreground = (torch.rand(2, 20, generator=generator) > 0.5).float()
    order = torch.randperm(20, generator=generator)
    found = similarity_maps(cells, tokens, foreground, 1 - foreground, DpmConfig())
    mixed = similarity_maps(
        cells, tokens[:, order], foreground[:, order], 1 - foreground[:, order], DpmConfig()
    )
    for one, other in zip(found, mixed, strict=True):
        assert one.shape == (2, 3, 5)
        torch.testing.assert_close(one, other)


def test_gradients_are_finite_with_empty_sets() -> None:
    tokens = unit(0, 90)[None].requires_grad_()
    similarity, likelihood = similarity_maps(
        unit(60).T[None, :, :, None], tokens, torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), DpmConfig()
    )
    (similarity.sum() + likelihood.sum()).backward()
    assert tokens.grad is not None
    assert tokens.grad.isfinite().all()
    assert tokens.grad[0, 0].abs().sum() > 0
    assert (tokens.grad[0, 1] == 0).all()
