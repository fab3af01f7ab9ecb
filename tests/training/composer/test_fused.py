"""The kernels do what `painting.py` and `degrade.py` do. Without CUDA, Triton's interpreter runs them."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch

from egohieraloc.training.composer import degrade, painting
from egohieraloc.training.composer.painting import DISTRACTOR, TARGET, Backdrop, Layer
from egohieraloc.training.composer.render import LEVELS, mip_atlas, on_level, window_points

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return importlib.reload(importlib.import_module("egohieraloc.training.composer.fused"))


def draw(side: int = 64, window: int = 32) -> tuple[torch.Tensor, Layer, torch.Tensor]:
    """Two clips of two frames; each texture is a slice of several, as `render` passes them."""
    generator = torch.Generator().manual_seed(0)
    canvas = torch.rand(4, 5, side, side, generator=generator).to(DEVICE)
    texture = torch.rand(6, 5, 40, 40, generator=generator).to(DEVICE)
    texture[:, :3] *= texture[:, 3:4]
    texture[..., :8], texture[:, :, :8] = 0, 0
    atlas = mip_atlas(texture).unflatten(0, (2, 3, 1))[:, 1].flatten(0, 1)
    assert not atlas.is_contiguous()
    origin = torch.tensor([[0.0, 32.0], [5.0, 9.0], [32.0, 0.0], [17.0, 31.0]], device=DEVICE)
    points = window_points(origin, window, side) * 1.7 + torch.tensor([0.2, -0.3], device=DEVICE)
    points, low, high = on_level(points, torch.tensor([0.0, 2.0], device=DEVICE), 40)
    layer = Layer(atlas, points, low, high, origin).where(torch.tensor([True, True, True, False]).to(DEVICE))
    return canvas, layer, torch.rand(4, generator=generator).to(DEVICE)


@pytest.mark.parametrize("label", [None, DISTRACTOR, torch.tensor([TARGET, DISTRACTOR, TARGET, TARGET])])
@pytest.mark.parametrize("opaque", [None, torch.tensor([True, False, True, True])])
def test_the_kernel_paints_the_same(
    fused: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    label: torch.Tensor | int | None,
    opaque: torch.Tensor | None,
) -> None:
    canvas, layer, shadow = draw()
    label = label.to(DEVICE) if isinstance(label, torch.Tensor) else label
    opaque = None if opaque is None else opaque.to(DEVICE)
    monkeypatch.setattr(painting, "fused", None)
    wanted = painting.paint(canvas.clone(), layer, shadow, label, opaque)
    found = fused.paint(canvas.clone(), layer, shadow, label, opaque)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)
    assert (wanted - canvas).abs().flatten(1).amax(1).gt(0.1).tolist() == [True, True, True, False]


@pytest.mark.parametrize("size", [40, 120, 240])
def test_the_kernel_reads_nothing_outside_a_texture(fused: ModuleType, size: int) -> None:
    """Rounding may put the first point of a level outside the texture, where no memory may be allocated."""
    memory = torch.full((LEVELS, 3, 5, size, size * 3 // 2), torch.nan, device=DEVICE)
    memory[:, 1] = 0
    beyond = (
        [-9.0, 9.0, torch.nan] if DEVICE == "cuda" else [-9.0, 9.0]
    )  # in the interpreter the maximum with NaN is NaN
    points = torch.tensor(beyond, device=DEVICE).repeat(LEVELS)
    points = points[:, None, None, None].expand(-1, 3, 3, 2)
    level = torch.arange(LEVELS, device=DEVICE)
    layer = Layer(memory[:, 1], *on_level(points, level, size), points.new_zeros(len(points), 2))
    canvas = points.new_zeros(len(points), 5, 8, 8)
    assert not fused.paint(canvas, layer, points.new_ones(len(points)), DISTRACTOR, None).any()


def test_the_kernel_paints_the_same_background(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    photos = torch.randint(0, 256, (5, 256, 256, 3), generator=generator, dtype=torch.uint8).to(DEVICE)
    backdrop = Backdrop(
        torch.randint(0, 5, (2, 9), generator=generator).to(DEVICE),
        (torch.rand(2, 9, generator=generator) < 0.5).to(DEVICE),
    )
    points = window_points(torch.zeros(4, 2, device=DEVICE), 64, 64)
    points = points * torch.tensor([0.4, 1.3, 2.9, 0.9], device=DEVICE)[:, None, None, None] + 0.1
    canvas = torch.zeros(4, 5, 64, 64, device=DEVICE)
    monkeypatch.setattr(painting, "fused", None)
    wanted = painting.paint_background(canvas.clone(), photos, backdrop, points)
    found = fused.paint_background(canvas.clone(), photos, backdrop, points)
    # Coordinates of several hundred pixels are rounded to some thousandths, and the photos are noise.
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=0)
    assert wanted[:, :3].std() > 0.1
    assert not found[:, 3:].any()


def test_the_kernel_motion_blurs_the_same(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    image = torch.rand(3, 3, 48, 48, generator=generator).to(DEVICE)
    drift = torch.tensor([[0.1, 0.02], [-0.3, 0.2], [0.0, 0.0]], device=DEVICE)
    swing = torch.tensor([0.05, -0.1, 0.0], device=DEVICE)
    monkeypatch.setattr(degrade, "fused", None)
    wanted = degrade.motion_blur(image, drift, swing)
    found = image
    for reach in degrade.BLUR_PASSES:
        found = fused.shift_and_add(found, drift, swing, reach)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    torch.testing.assert_close(found[2], image[2], atol=1e-5, rtol=0)
    assert (found[0] - image[0]).abs().max() > 0.1


def test_the_kernel_compresses_the_same(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    image = torch.rand(2, 3, 40, 48, generator=generator).to(
        DEVICE
    )  # 30 blocks, fewer than one program takes
    strength = torch.tensor([0.5, 3.0], device=DEVICE)
    monkeypatch.setattr(degrade, "fused", None)
    codec = degrade.Codec(torch.device(DEVICE))
    wanted = codec(image, strength)
    found = fused.compress(image, strength, codec._basis, codec._steps, codec._ycc, codec._rgb)
    # Where a coefficient lies halfway between two steps, rounding decides, and its whole block differs.
    same = (found - wanted).abs() < 1 / 255
    assert same.float().mean() > (0.9 if DEVICE == "cuda" else 0.999)
    assert (wanted - image).abs().mean() > 0.02


def test_the_kernel_grades_the_same(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(4)
    image = torch.rand(2, 3, 40, 48, generator=generator).to(DEVICE)
    image[:, :, 0] = 0
    gain = torch.tensor([[1.1, 0.9, 1.0], [0.5, 0.6, 1.8]], device=DEVICE)
    gamma, contrast, saturation = torch.tensor([[0.8, 1.3], [1.2, 0.7], [0.4, 1.2]], device=DEVICE)
    monkeypatch.setattr(degrade, "fused", None)
    wanted = degrade.grade(image, gain, gamma, contrast, saturation)
    found = fused.grade(image, *degrade.colour_mix(gain, contrast, saturation), gamma)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    assert (wanted - image).abs().mean() > 0.05


def test_the_kernel_gaussian_blurs_the_same(fused: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    image = torch.rand(3, 3, 40, 48, generator=generator).to(DEVICE)
    sigma = torch.tensor([0.5, 1.1, 2.2], device=DEVICE)
    monkeypatch.setattr(degrade, "fused", None)
    wanted = degrade.gaussian_blur(image, sigma)
    found = fused.blur(image, degrade.gaussian_weights(sigma))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    assert (wanted - image).abs().mean() > 0.05
