"""Every loss: known values, and gradients that agree with numeric ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.models.dcf import gaussian_target, respond, solve_filter
from egohieraloc.training import losses
from egohieraloc.training.losses import PAPER, LossWeights

GENERATOR = torch.Generator().manual_seed(0)
LN2 = math.log(2)


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


PRESENCE = numbers(1, 0, 1)
BOXES = torch.tensor([[1.0, 1, 3, 4], [0, 0, 0, 0], [0, 2, 2, 3]], dtype=torch.float64)
APART = torch.tensor([[False, True, False], [True, False, True], [False, True, False]])
MASKS = (rand(3, 4, 5) > 0.5).double()

CASES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "presence": (lambda x: losses.presence_loss(x, PRESENCE), rand(3)),
    "box": (lambda x: losses.box_loss(x, BOXES / 5, rand_weight, beta=0.3), 3 * rand(3, 4, 4, 5)),
    "box_xywh": (lambda x: losses.box_xywh_loss(x, BOXES / 5, rand_weight), 3 * rand(3, 4, 4, 5)),
    "theta": (lambda x: losses.theta_loss(x, PRESENCE), 0.1 + 0.8 * rand(3)),
    "mask_in_box": (lambda x: losses.mask_in_box_loss(x, MASKS, PRESENCE), rand(3, 4, 5)),
    "filter": (lambda x: losses.filter_loss(x, BOXES, PRESENCE, 0.3), rand(3, 4, 5)),
    "mask": (lambda x: losses.mask_loss(x, MASKS, numbers(1, 0.3, 1)), rand(3, 4, 5) - 0.5),
    "dice": (lambda x: losses.dice_loss(x, MASKS, PRESENCE), rand(3, 4, 5)),
    "contrast": (
        lambda x: losses.contrast_loss(x, APART, PRESENCE, scale=4.0),
        rand(3, 3),
    ),
    "query_quality": (lambda x: losses.quality_loss(x, MASKS - 0.5, 1 - MASKS), rand(3)),
}
rand_weight = rand(3, 4, 5)


def test_every_loss_has_its_gradient_checked() -> None:
    """Cells and similarity are one function, checked below; the query mask is the mask and the Dice loss."""
    assert CASES.keys() | {"score", "cells", "similarity", "query_mask"} == {
        f.name for f in fields(LossWeights)
    }


@pytest.mark.parametrize("name", CASES)
def test_gradient_agrees_with_a_numeric_one(name: str) -> None:
    loss, point = CASES[name]
    assert torch.autograd.gradcheck(loss, point.clone().requires_grad_())


def test_gradient_of_the_cell_loss_with_constant_weights() -> None:
    """The weights of the negatives are not differentiated, so a numeric check must keep them constant."""
    logits, wanted, alike = (
        rand(2, 3, 3) - 0.5,
        (rand(2, 3, 3) > 0.7).double(),
        (rand(2, 3, 3) > 0.5).double(),
    )
    point = logits.clone().requires_grad_()
    losses.balanced_cell_loss(point, wanted, alike).backward()
    hardness = (logits.sigmoid() ** 2 + 0.25 * alike).clamp(max=1) * (1 - wanted)
    negatives = max(float(hardness.sum()), float(wanted.sum()), 1.0)
    expected = -torch.sigmoid(-logits) * wanted / wanted.sum() + logits.sigmoid() * hardness / negatives
    torch.testing.assert_close(point.grad, expected)


def test_presence_by_hand() -> None:
    assert float(losses.presence_loss(numbers(0, 0), numbers(1, 0))) == pytest.approx(LN2)
    assert float(losses.presence_loss(numbers(20, -20), numbers(1, 0))) < 1e-8


def test_box_by_hand() -> None:
    """Linear beyond beta, quadratic below; only weighted cells count."""
    boxes = torch.zeros(1, 4, 1, 2, dtype=torch.float64)
    boxes[0, :, 0, 0] = numbers(0.5, 0, 0, 0.01)
    boxes[0, :, 0, 1] = 9
    loss = losses.box_loss(boxes, torch.zeros(1, 4), torch.tensor([[[1.0, 0.0]]]), beta=0.1)
    assert float(loss) == pytest.approx((0.5 - 0.05) + 0.5 * 0.01**2 / 0.1)
    assert float(losses.box_loss(boxes, torch.zeros(1, 4), torch.zeros(1, 1, 2))) == 0


def test_the_papers_box_loss_by_hand() -> None:
    """Centre x, y and w, h are off by 0.5, 0, 1.5 and 0: quadratic below 1, linear beyond."""
    boxes = numbers(-0.25, 0, 2.25, 1).reshape(1, 4, 1, 1)
    loss = losses.box_xywh_loss(boxes, numbers(0, 0, 1, 1)[None], torch.ones(1, 1, 1))
    assert float(loss) == pytest.approx(0.5 * 0.5**2 + (1.5 - 0.5))


def test_theta_by_hand() -> None:
    """Cross-entropy of the confidence itself; an empty mask costs much where the object is, and is finite."""
    loss = losses.theta_loss(torch.tensor([0.8, 0.3]), torch.tensor([1.0, 0.0]))
    assert float(loss) == pytest.approx(-(math.log(0.8) + math.log(0.7)) / 2)
    assert float(losses.theta_loss(torch.zeros(1), torch.ones(1))) == pytest.approx(-math.log(1e-4))


def test_mask_in_box_by_hand() -> None:
    """3 cells of the mask in a box of 4, 2 outside: 1 - 3 / (0.25 * 1 + 3 + 2)."""
    inside, mask = torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)
    inside[0, :2, :2] = 1
    mask[0, 0, :4] = 1
    mask[0, 1, 0] = 1
    one = torch.ones(1)
    assert float(losses.mask_in_box_loss(mask, inside, one)) == pytest.approx(1 - 3 / 5.25)
    assert float(losses.mask_in_box_loss(inside, inside, one)) == 0
    assert float(losses.mask_in_box_loss(mask, inside, torch.zeros(1))) == 0
    both = losses.mask_in_box_loss(mask.repeat(2, 1, 1), inside.repeat(2, 1, 1), torch.tensor([1.0, 0.0]))
    assert float(both) == pytest.approx(1 - 3 / 5.25)  # absent frames do not dilute it


def test_pseudo_masks_weigh_three_tenths() -> None:
    logits, wanted = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)
    real = losses.mask_loss(logits, wanted, torch.ones(1))
    pseudo = losses.mask_loss(logits, wanted, torch.tensor([0.3]))
    assert float(real) == pytest.approx(LN2)
    assert float(pseudo) == pytest.approx(0.3 * LN2)
    mixed = losses.mask_loss(logits.repeat(2, 1, 1), wanted.repeat(2, 1, 1), torch.tensor([1, 0.3]))
    assert float(mixed) == pytest.approx(0.65 * LN2)


def test_dice_by_hand() -> None:
    mask = torch.tensor([[[1.0, 1, 0, 0]]])
    other = torch.tensor([[[0.0, 1, 1, 0]]])
    one = torch.ones(1)
    assert float(losses.dice_loss(mask, mask, one)) == 0
    assert float(losses.dice_loss(mask, other, one)) == pytest.approx(1 - 3 / 5)
    assert float(losses.dice_loss(mask, other, torch.zeros(1))) == 0


def test_filter_loss_is_zero_for_a_gaussian_at_the_true_centre() -> None:
    boxes, present = torch.tensor([[2.0, 1.0, 5.0, 4.0]]), torch.ones(1)
    y, x = torch.arange(6)[:, None] + 0.5, torch.arange(8)[None] + 0.5
    ideal = torch.exp(-((y - 2.5) ** 2 + (x - 3.5) ** 2) / (2 * 0.9**2))[None]
    assert float(losses.filter_loss(ideal, boxes, present, 0.3)) == pytest.approx(0, abs=1e-12)
    assert float(losses.filter_loss(ideal.roll(1, 2), boxes, present, 0.3)) > 0.05
    off = losses.filter_loss(ideal + 0.1, boxes, present, 0.3)
    assert float(off) == pytest.approx(0.01 + 0.5 * 0.01, rel=1e-4)


def test_filter_loss_is_zero_for_no_response_where_the_object_is_absent() -> None:
    boxes, absent = torch.zeros(1, 4), torch.zeros(1)
    assert float(losses.filter_loss(torch.zeros(1, 6, 8), boxes, absent, 0.3)) == 0
    assert float(losses.filter_loss(torch.full((1, 6, 8), 0.5), boxes, absent, 0.3)) == pytest.approx(0.25)


def test_filter_loss_cannot_be_lowered_by_scaling_features() -> None:
    """docs/paper.md Q6: the paper's residual on the query falls with the square of the features' scale."""
    generator = torch.Generator().manual_seed(1)
    query, target = torch.randn(1, 6, 8, 8, generator=generator), gaussian_target(8, 8, 0.8)
    frame = torch.randn(1, 6, 14, 14, generator=generator)
    frame[..., 3:11, 4:12] = query

    def ours(scale: float) -> float:
        patch, cells = F.normalize(scale * query, dim=1), F.normalize(scale * frame, dim=1)
        response = respond(cells, [solve_filter(patch, target, 1e-2)])[:, 0]
        return float(losses.filter_loss(response, torch.tensor([[4.0, 3, 12, 11]]), torch.ones(1), 0.1))

    def printed(scale: float, lam: float = 1.0) -> float:
        spectrum, wanted = torch.fft.fft2(scale * query), torch.fft.fft2(target)
        energy = spectrum.abs().square().sum(1, keepdim=True)
        solution = spectrum * wanted.conj() / (energy + lam)
        response = torch.fft.ifft2((spectrum * solution.conj()).sum(1)).real
        taps = torch.fft.ifft2(solution).real
        return float((response - target).square().sum() + lam * taps.square().sum())

    assert ours(10) == pytest.approx(ours(1), rel=1e-3)
    assert printed(10) < 0.02 * printed(1)


def test_object_and_background_cells_have_equal_weight() -> None:
    """One cell of the object among 99 others, all with logit 0: ln 2 for each of the two classes."""
    wanted = torch.zeros(1, 10, 10)
    wanted[0, 3, 4] = 1
    loss = losses.balanced_cell_loss(torch.zeros(1, 10, 10), wanted, torch.zeros(1, 10, 10))
    assert float(loss) == pytest.approx(2 * LN2, rel=1e-5)


def test_look_alikes_always_count() -> None:
    """A confident negative costs next to nothing on background and more on a known look-alike."""
    logits, wanted = torch.full((1, 4, 4), -3.0), torch.zeros(1, 4, 4)
    without = losses.balanced_cell_loss(logits, wanted, torch.zeros(1, 4, 4))
    alike = losses.balanced_cell_loss(logits, wanted, torch.ones(1, 4, 4))
    assert float(alike) > 10 * float(without)


def test_contrast_by_hand() -> None:
    similarity = torch.tensor([[1.0, 0.0, 0.5], [0.2, 0.9, 0.1], [0.0, 0.0, 0.0]])
    present = torch.tensor([1.0, 1.0, 0.0])
    loss = losses.contrast_loss(similarity, APART, present, scale=2.0)
    first = -math.log(math.exp(2) / (math.exp(2) + 1))  # frame 2 shows the same object and is left out
    second = -math.log(math.exp(1.8) / (math.exp(0.4) + math.exp(1.8) + math.exp(0.2)))
    assert float(loss) == pytest.approx((first + second) / 2, rel=1e-5)


def test_quality_is_the_overlap_with_the_truth() -> None:
    found, truth = torch.tensor([[[1.0, 1, -1, -1]]]), torch.tensor([[[0.0, 1, 1, 0]]])  # a third
    best = math.log((1 / 3) / (2 / 3))
    at_best = float(losses.quality_loss(torch.tensor([best]), found, truth))
    for other in (best - 0.5, best + 0.5):
        assert float(losses.quality_loss(torch.tensor([other]), found, truth)) > at_best
    gradient = torch.tensor([best], requires_grad=True)
    losses.quality_loss(gradient, found, truth).backward()
    assert gradient.grad is not None
    assert float(gradient.grad) == pytest.approx(0, abs=1e-6)


def test_weighted_sum_takes_every_term_with_its_weight() -> None:
    terms = {f.name: torch.tensor(float(i + 1)) for i, f in enumerate(fields(LossWeights))}
    for chosen in terms:
        weights = LossWeights(**{name: 2.0 if name == chosen else 0.0 for name in terms})
        assert float(losses.weighted_sum(terms, weights)) == 2 * float(terms[chosen])


def test_the_papers_weights() -> None:
    assert (PAPER.theta, PAPER.box_xywh, PAPER.mask_in_box, PAPER.filter, PAPER.mask) == (
        0.1,
        0.4,
        0.4,
        0.1,
        0.2,
    )
    ours = ("presence", "score", "box", "dice", "cells", "similarity", "contrast")
    assert all(getattr(PAPER, name) == 0 for name in ours)


def test_one_process_divides_by_its_own_count() -> None:
    assert float(losses.shared_count(torch.tensor(5.0))) == 5
    assert float(losses.shared_count(torch.tensor(0.0))) == 1
