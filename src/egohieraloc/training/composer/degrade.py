"""Image degradations of lens, sensor and codec: blur, colour, resolution, compression.

Images are (N, 3, H, W) in [0, 1]. Costly effects are applied to a random subset (`RandomNumbers.subset`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as nnf
from torch import Tensor

try:  # Triton comes with torch for CUDA
    from egohieraloc.training.composer import fused
except ImportError:
    fused = None  # type: ignore[assignment]

BLUR_TAPS = 4  # shifted copies per pass; two passes act like 16
BLUR_PASSES = (1 / BLUR_TAPS**2, 1 / BLUR_TAPS)  # shift between copies, as a share of the whole motion
BLOCK = 8
BLUR_RADIUS = 5  # of the Gaussian kernel, in pixels
MID_GREY = 0.4

# Quantisation steps of the JPEG standard (Annex K) at quality 50, as shares of white.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA_DC, _CHROMA_SLOPE, _CHROMA_TOP = 17, 8, 99


class Codec:
    """JPEG-like compression: quantises the cosine coefficients of 8x8 blocks."""

    def __init__(self, device: torch.device) -> None:
        n = torch.arange(BLOCK, dtype=torch.float64)
        basis = torch.cos((n[None, :] + 0.5) * n[:, None] * math.pi / BLOCK) * math.sqrt(2 / BLOCK)
        basis[0] /= math.sqrt(2)
        self._basis = torch.kron(basis, basis).float().to(device)  # acts on a block flattened to 64 values
        chroma = (_CHROMA_DC + _CHROMA_SLOPE * (n[:, None] + n[None, :]) * 2).clamp(max=_CHROMA_TOP)
        luma = torch.tensor(_LUMA, dtype=torch.float64)
        self._steps = (torch.stack((luma, chroma, chroma)) / 255).float().flatten(1).to(device)
        self._ycc = torch.tensor(
            [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], device=device
        )
        self._rgb = torch.linalg.inv(self._ycc.double().cpu()).float().contiguous().to(device)

    def __call__(self, image: Tensor, strength: Tensor) -> Tensor:
        """Compress with the standard table times strength (N,). Image sides must be multiples of 8."""
        if image.is_cuda and fused is not None:
            return fused.compress(image, strength, self._basis, self._steps, self._ycc, self._rgb)
        count, _, height, width = image.shape
        dtype = image.dtype
        basis, steps = self._basis.to(dtype), self._steps.to(dtype)
        blocks = torch.einsum("dc,nchw->ndhw", self._ycc.to(dtype), image)
        grid = (count, 3, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
        blocks = blocks.reshape(grid).transpose(3, 4).flatten(4)
        step = steps[:, None, None] * strength.to(dtype)[:, None, None, None, None]
        coefficients = ((blocks @ basis.T) / step).round_() * step
        blocks = (coefficients @ basis).unflatten(4, (BLOCK, BLOCK))
        blocks = blocks.transpose(3, 4).reshape(count, 3, height, width)
        return torch.einsum("dc,nchw->ndhw", self._rgb.to(dtype), blocks).clamp(0, 1)


def grade(image: Tensor, gain: Tensor, gamma: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Colour grading by gain (N, 3), gamma, contrast about mid grey and saturation (N,)."""
    mix, lift = colour_mix(gain, contrast, saturation)
    if image.is_cuda and fused is not None:
        return fused.grade(image, mix, lift, gamma)
    curved = (image.clamp(min=1e-3) ** gamma.to(image.dtype)[:, None, None, None]).flatten(2)
    mixed = torch.baddbmm(lift.to(image.dtype)[:, None, None], mix.to(image.dtype), curved)
    return mixed.clamp_(0, 1).view_as(image)


def colour_mix(gain: Tensor, contrast: Tensor, saturation: Tensor) -> tuple[Tensor, Tensor]:
    """Colour matrices (N, 3, 3) and offsets (N,)."""
    identity, mean = torch.eye(3, device=gain.device), torch.full((3, 3), 1 / 3, device=gain.device)
    s = saturation[:, None, None]
    mix = (s * identity + (1 - s) * mean) * contrast[:, None, None] * gain[:, None, :]
    return mix, MID_GREY * (1 - contrast)


def gaussian_blur(image: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur with sigma (N,) in pixels, at most about 3."""
    weights = gaussian_weights(sigma)
    if image.is_cuda and fused is not None:
        return fused.blur(image, weights)
    count, channels, height, width = image.shape
    kernel = weights.to(image.dtype).repeat_interleave(channels, 0)[:, None, None, :]
    flat = nnf.pad(image, (BLUR_RADIUS,) * 4, mode="replicate").flatten(0, 1)[None]
    flat = nnf.conv2d(flat, kernel, groups=count * channels)
    flat = nnf.conv2d(flat, kernel.transpose(2, 3), groups=count * channels)
    return flat.reshape(count, channels, height, width)


def gaussian_weights(sigma: Tensor) -> Tensor:
    """Normalised weights (N, 11) of a Gaussian kernel."""
    offsets = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=sigma.device)
    weights = torch.exp(-offsets.square() / (2 * sigma[:, None].square()))
    return weights / weights.sum(1, keepdim=True)


def motion_blur(image: Tensor, drift: Tensor, swing: Tensor) -> Tensor:
    """Blur by a camera that moves by drift (N, 2) and rotates by swing (N,) during the exposure.

    In view units, and radians about the centre. The labels belong to the middle of the exposure.
    """
    if image.is_cuda and fused is not None:
        for reach in BLUR_PASSES:
            image = fused.shift_and_add(image, drift, swing, reach)
        return image
    height, width = image.shape[-2:]
    y = (torch.arange(height, device=image.device) + 0.5) * (2 / height) - 1
    x = (torch.arange(width, device=image.device) + 0.5) * (2 / width) - 1
    base = torch.stack((x[None, :].expand(height, width), y[:, None].expand(height, width)), -1)
    turned = torch.stack((-base[..., 1], base[..., 0]), -1)
    field = (drift[:, None, None] + swing[:, None, None, None] * turned).to(image.dtype)
    base = base.to(image.dtype)
    for reach in BLUR_PASSES:
        total = torch.zeros_like(image)
        for tap in range(BLUR_TAPS):
            grid = base + field * ((tap - (BLUR_TAPS - 1) / 2) * reach)
            total += nnf.grid_sample(image, grid, padding_mode="border", align_corners=False)
        image = total / BLUR_TAPS
    return image


def downscale(image: Tensor, side: int) -> Tensor:
    """To side x side, with antialiasing."""
    size = (side, side)
    small = nnf.interpolate(image.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return small.to(image.dtype)


def upscale(image: Tensor, side: int) -> Tensor:
    return nnf.interpolate(image, size=(side, side), mode="bilinear", align_corners=False).clamp(0, 1)
