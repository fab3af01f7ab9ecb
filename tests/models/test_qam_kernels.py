"""The kernels do what `qam.py` does. Without CUDA, Triton's interpreter runs them (TRITON_INTERPRET=1)."""

from __future__ import annotations

import importlib
import os
from dataclasses import fields
from types import ModuleType

import pytest
import torch

from egohieraloc.config import QamConfig
from egohieraloc.models import qam

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    if DEVICE == "cpu" and not os.environ.get("TRITON_INTERPRET"):
        pytest.skip("needs CUDA, or TRITON_INTERPRET=1 before Triton is imported")
    monkeypatch.setattr(qam, "fused", None)
    return importlib.import_module("egohieraloc.models.fused")


def snake(height: int, width: int) -> torch.Tensor:
    """One component that winds through the whole grid (1, H, W)."""
    mask = torch.zeros(1, height, width, dtype=torch.bool)
    mask[:, ::2] = True
    mask[:, 1::4, -1] = True
    mask[:, 3::4, 0] = True
    return mask


@pytest.mark.parametrize(("height", "width"), [(28, 28), (5, 7), (1, 1), (9, 33)])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 1.0])
def test_the_kernel_labels_the_same(fused: ModuleType, height: int, width: int, share: float) -> None:
    generator = torch.Generator().manual_seed(height)
    mask = (torch.rand(5, height, width, generator=generator) < share).to(DEVICE)
    mask = torch.cat([mask, snake(height, width).to(DEVICE)])
    assert torch.equal(fused.connected_components(mask), qam.connected_components(mask))


@pytest.mark.parametrize(
    "config",
    [
        QamConfig(),
        QamConfig(ellipse=False),
        QamConfig(multi_peak=False),
        QamConfig(candidates=1, lost_below=2.2),
    ],
)
def test_the_kernel_follows_the_same(fused: ModuleType, config: QamConfig) -> None:
    """Smooth noise for responses, a constant frame in between: there no peak is eligible."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(3 * 6, 1, 14, 18, generator=generator)
    response = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)[:, 0].mul(4).to(DEVICE)
    response[7] = 0.1
    start = qam.QamState(
        torch.tensor([[3.0, 4.0], [9.0, 2.0], [0.0, 0.0]], device=DEVICE),
        torch.tensor([[0.5, -0.3], [0.0, 1.0], [0.0, 0.0]], device=DEVICE),
        torch.tensor([[2.0, 3.0], [0.5, 0.7], [4.0, 1.0]], device=DEVICE),
        torch.tensor([True, True, False], device=DEVICE),
        torch.zeros(3, 1, 1, device=DEVICE),
    )
    wanted_state, wanted = qam.follow(start, response.unflatten(0, (3, 6)), config)
    peaks = qam._find_peaks(response, config)
    figures, following = fused.advance(start, response, peaks.labels, peaks.score, config)
    position, peak, semi_axes, drift = figures.split([2, 1, 2, 2], -1)
    for found, expected in [
        (position, wanted.position),
        (peak, wanted.peak),
        (semi_axes, wanted.semi_axes),
        (drift, wanted.drift),
    ]:
        torch.testing.assert_close(found.flatten(), expected.flatten(), atol=1e-5, rtol=0)
    assert torch.equal(following, wanted_state.following)
    assert wanted.drift.abs().max() > 0.1


def test_the_module_gives_the_kernels_answer(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """`follow` reads the kernel's figures in their order."""
    if DEVICE == "cpu":
        pytest.skip("the module calls the kernels on CUDA alone")
    response = torch.rand(2, 4, 12, 12, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    start = qam.initial_state(torch.tensor([[2.0, 2.0], [1.0, 3.0]], device=DEVICE))
    plain = qam.follow(start, response, QamConfig())
    monkeypatch.setattr(qam, "fused", fused)
    for mine, other in zip(qam.follow(start, response, QamConfig()), plain, strict=True):
        for field in fields(mine):
            torch.testing.assert_close(getattr(mine, field.name), getattr(other, field.name))
