"""Image degradations: compression like JPEG's, and blur and colour of known strength."""

from __future__ import annotations

import numpy as np
import torch
from scipy.fft import dctn, idctn

from egohieraloc.training.composer.degrade import (
    _LUMA,
    Codec,
    downscale,
    gaussian_blur,
    grade,
    motion_blur,
    upscale,
)


def spot(side: int = 64) -> torch.Tensor:
    image = torch.zeros(1, 3, side, side)
    image[..., side // 2 - 1 : side // 2 + 1, side // 2 - 1 : side // 2 + 1] = 1
    return image


def spread(image: torch.Tensor, axis: int) -> float:
    """Standard deviation of the light along an axis, in pixels."""
    profile = image[0, 0].sum(1 - axis)
    place = torch.arange(len(profile)) + 0.5
    mean = (profile * place).sum() / profile.sum()
    return float(((profile * (place - mean) ** 2).sum() / profile.sum()).sqrt())


def test_the_codec_quantises_like_jpeg() -> None:
    grey = torch.rand(1, 1, 16, 24, generator=torch.Generator().manual_seed(0)).expand(-1, 3, -1, -1)
    ours = Codec(torch.device("cpu"))(grey, torch.tensor([2.0]))[0, 0].numpy()
    steps = 2 * np.array(_LUMA) / 255
    image = grey[0, 0].numpy().astype(float)
    for row in range(0, 16, 8):
        for column in range(0, 24, 8):
            block = dctn(image[row : row + 8, column : column + 8], norm="ortho")
            expected = idctn(np.round(block / steps) * steps, norm="ortho").clip(0, 1)
            np.testing.assert_allclose(ours[row : row + 8, column : column + 8], expected, atol=1e-4)


def test_mild_compression_changes_little() -> None:
    image = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(
        Codec(torch.device("cpu"))(image, torch.full((2,), 0.001)), image, atol=5e-3, rtol=0
    )


def test_grading_with_ones_changes_nothing() -> None:
    image = torch.rand(2, 3, 8, 8) * 0.9 + 0.05
    one = torch.ones(2)
    torch.testing.assert_close(grade(image, torch.ones(2, 3), one, one, one), image)


def test_gain_gamma_contrast_and_saturation() -> None:
    image = torch.tensor([0.2, 0.4, 0.6])[None, :, None, None].expand(1, 3, 2, 2)
    one = torch.ones(1)
    brighter = grade(image, torch.tensor([[2.0, 1.0, 0.5]]), one, one, one)
    torch.testing.assert_close(brighter[0, :, 0, 0], torch.tensor([0.4, 0.4, 0.3]))
    curved = grade(image, torch.ones(1, 3), 2 * one, one, one)
    torch.testing.assert_close(curved[0, :, 0, 0], torch.tensor([0.04, 0.16, 0.36]))
    flat = grade(image, torch.ones(1, 3), one, 0.5 * one, one)
    torch.testing.assert_close(flat[0, :, 0, 0], torch.tensor([0.3, 0.4, 0.5]))
    grey = grade(image, torch.ones(1, 3), one, one, 0 * one)
    torch.testing.assert_close(grey[0, :, 0, 0], torch.full((3,), 0.4))


def test_gaussian_blur_has_its_sigma_and_keeps_the_brightness() -> None:
    image = spot()
    sharp, blurred = (
        image.repeat(2, 1, 1, 1),
        gaussian_blur(image.repeat(2, 1, 1, 1), torch.tensor([0.1, 1.5])),
    )
    torch.testing.assert_close(blurred[:1], sharp[:1])
    torch.testing.assert_close(blurred.sum(), sharp.sum())
    extra = (spread(blurred[1:], 0) ** 2 - spread(image, 0) ** 2) ** 0.5
    assert abs(extra - 1.5) < 0.05


def test_motion_blur_is_along_the_motion_and_centred() -> None:
    image = spot()
    length = 16.0
    blurred = motion_blur(image, torch.tensor([[length * 2 / 64, 0.0]]), torch.zeros(1))
    torch.testing.assert_close(blurred.sum(), image.sum(), rtol=1e-3, atol=0)
    torch.testing.assert_close(blurred, blurred.flip(3), atol=1e-5, rtol=0)
    assert abs(spread(blurred, 1) - length / 12**0.5) < 0.6
    assert spread(blurred, 0) < 1


def test_a_rotating_camera_blurs_the_border_not_the_centre() -> None:
    image = torch.zeros(1, 3, 64, 64)
    image[..., ::8] = 1
    blurred = motion_blur(image, torch.zeros(1, 2), torch.tensor([0.3]))
    change = (blurred - image).abs().mean(1)[0]
    assert change[28:36, 28:36].mean() < 0.3 * change[:8].mean()


def test_downscaled_images_keep_their_mean() -> None:
    image = torch.rand(1, 3, 64, 64)
    small = downscale(image, 16)
    assert small.shape == (1, 3, 16, 16)
    assert abs(float(small.mean() - image.mean())) < 0.01
    assert upscale(small, 64).shape == image.shape
