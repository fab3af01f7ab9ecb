"""Laws of the correlation filter: it solves its problem, its peak stands on the object, it moves with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.models.dcf import gaussian_target, hann_window, respond, solve_filter


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=1)


def peak(response: Tensor) -> tuple[int, int]:
    """Row and column of the highest response of (H, W)."""
    return divmod(int(response.argmax()), response.shape[1])


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7), (6, 9), (9, 6)])
def test_gaussian_has_its_only_one_at_the_centre_cell(height: int, width: int) -> None:
    target = gaussian_target(height, width, 0.8)
    assert peak(target) == (height // 2, width // 2)
    assert target.max() == 1
    assert (target == 1).sum() == 1
    beside = target[height // 2, width // 2 + 1]
    assert beside == pytest.approx(np.exp(-1 / (2 * 0.8**2)))


def test_window_fades_to_all_sides_and_keeps_every_cell() -> None:
    window = hann_window(5, 8)
    assert window.shape == (5, 8)
    assert window.min() > 0
    torch.testing.assert_close(window, window.flip(0).flip(1))
    assert (window[0] < window[1]).all()
    assert (window[:, 0] < window[:, 1]).all()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7), (6, 9), (9, 6)])
def test_self_response_peaks_at_the_gaussians_centre(height: int, width: int) -> None:
    patch = features(2, 12, height, width)
    target = gaussian_target(height, width, 0.8)
    found = respond(patch, [solve_filter(patch, target, 1e-2)])[:, 0]
    for response in found:
        assert peak(response) == (height // 2, width // 2)
        assert response.max() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5)])
def test_filter_equals_a_dense_ridge_solve(height: int, width: int) -> None:
    """All cyclic shifts of all channels as the rows of one least-squares problem, solved without Fourier."""
    channels, ridge = 3, 1e-2
    patch = features(1, channels, height, width, dtype=torch.float64)
    target = gaussian_target(height, width, 0.7).double()
    lam = ridge * float(torch.fft.rfft2(patch).abs().square().sum(1).mean()) + 1e-8
    shifts = [(y, x) for y in range(height) for x in range(width)]
    rows = torch.stack([patch[0].roll((-y, -x), (1, 2)).flatten() for y, x in shifts])  # x(q + p)
    dense = torch.linalg.solve(
        rows.T @ rows + lam * torch.eye(rows.shape[1]).double(), rows.T @ target.flatten()
    )
    found = solve_filter(patch, target, ridge)
    unrolled = found.roll((-(height // 2), -(width // 2)), (-2, -1))[0].flatten()
    torch.testing.assert_close(unrolled, dense, rtol=1e-7, atol=1e-9)


def test_the_printed_filter_is_worse_than_no_filter() -> None:
    """docs/paper.md Q1: with the objective's own conjugation the paper's solution misses its target."""
    patch, target, lam = features(1, 1, 16, 16).double(), gaussian_target(16, 16, 1.6).double(), 1e-2
    spectrum, wanted = torch.fft.fft2(patch), torch.fft.fft2(target)
    energy = spectrum.abs().square()

    def objective(filter_spectrum: Tensor) -> float:
        response = torch.fft.ifft2(spectrum * filter_spectrum.conj()).real
        taps = torch.fft.ifft2(filter_spectrum).real
        return float((response - target).square().sum() + lam * taps.square().sum())

    ours = objective(spectrum * wanted.conj() / (energy + lam))
    printed = objective(spectrum.conj() * wanted / (energy + lam))
    nothing = objective(torch.zeros_like(spectrum))
    assert ours < 0.1 * nothing
    assert printed > nothing


@pytest.mark.parametrize("size", [(14, 14), (11, 17), (17, 11)])
@pytest.mark.parametrize("patch_size", [(6, 6), (5, 5), (6, 5), (3, 4)])
def test_peak_moves_with_the_object(size: tuple[int, int], patch_size: tuple[int, int]) -> None:
    (height, width), (h, w) = size, patch_size
    patch = features(1, 24, h, w)
    solved = solve_filter(patch, gaussian_target(h, w, 0.7), 1e-2)
    for top, left in [(0, 0), (2, 3), (height - h, width - w)]:
        frame = torch.zeros(1, 24, height, width)
        frame[..., top : top + h, left : left + w] = patch
        assert peak(respond(frame, [solved])[0, 0]) == (top + h // 2, left + w // 2)


@pytest.mark.parametrize("patch_size", [(6, 6), (5, 4), (3, 7)])
def test_response_is_plain_correlation_at_every_cell(patch_size: tuple[int, int]) -> None:
    """No wrap-around: what leaves the frame on one side does not come back on the other."""
    frame, taps = features(1, 4, 9, 12), features(1, 4, *patch_size, seed=1)
    h, w = patch_size
    padded = F.pad(frame, (w // 2, w - 1 - w // 2, h // 2, h - 1 - h // 2))
    torch.testing.assert_close(respond(frame, [taps])[0], F.conv2d(padded, taps)[0], atol=1e-5, rtol=1e-4)


def test_filters_of_several_sizes_answer_side_by_side_as_alone() -> None:
    frame, filters = features(2, 4, 10, 8), [features(2, 4, 6, 6, seed=1), features(2, 4, 3, 3, seed=2)]
    together = respond(frame, filters)
    assert together.shape == (2, 2, 10, 8)
    for number, each in enumerate(filters):
        torch.testing.assert_close(together[:, number], respond(frame, [each])[:, 0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("patch_size", [(6, 6), (5, 7), (14, 14)])
def test_one_filter_for_all_frames_responds_as_one_for_each(patch_size: tuple[int, int]) -> None:
    """Two ways to the same response: adding up cells, and Fourier transforms."""
    frames, filters = torch.randn(3, 8, 11, 12), [torch.randn(1, 8, *patch_size)]
    each = [one.expand(3, -1, -1, -1) for one in filters]
    torch.testing.assert_close(respond(frames, filters), respond(frames, each), atol=1e-4, rtol=1e-4)


def test_half_precision_is_computed_in_full() -> None:
    patch = features(1, 4, 5, 5).bfloat16()
    found = solve_filter(patch, gaussian_target(5, 5, 0.7), 1e-2)
    assert found.dtype == torch.float32
    assert respond(patch, [found.bfloat16()]).dtype == torch.float32


def test_gradients_agree_with_numeric_ones() -> None:
    patch = features(1, 2, 4, 3, dtype=torch.float64).requires_grad_()
    frame = features(1, 2, 5, 6, seed=1, dtype=torch.float64).requires_grad_()
    target = gaussian_target(4, 3, 0.8).double()
    torch.autograd.gradcheck(lambda p, f: respond(f, [solve_filter(p, target, 1e-2)]), (patch, frame))


def test_all_zero_features_give_a_zero_filter() -> None:
    found = solve_filter(torch.zeros(1, 3, 4, 4), gaussian_target(4, 4, 0.7), 1e-2)
    assert (found == 0).all()
