"""Simulates the camera: from painted scenes to the frames that optics, sensor and codec would deliver."""

from __future__ import annotations

import torch
from torch import Tensor

from egohieraloc.training.composer import degrade
from egohieraloc.training.composer.composer_config import STANDARD_PX, ComposerConfig
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.virtual_camera import Cameras


def record(
    rng: RandomNumbers, config: ComposerConfig, codec: degrade.Codec, scene: Tensor, cameras: Cameras
) -> tuple[Tensor, Tensor]:
    """Frames (N, 3, F, F) of scenes of that shape, and the part of the canvas they fill (N, 1, F, F)."""
    frames = config.clip_frames
    bars, lens = (m.to(scene.dtype).repeat_interleave(frames, 0) for m in cameras.content(config.frame_px))
    image = _blurred(rng, config, scene.clone(), cameras)
    image = _colour_graded(rng, config, image, len(cameras.lens))
    image *= lens * _vignette(rng, config, image, cameras)
    image = _at_low_resolution(rng, config, image)
    grain = rng.uniform(config.noise, len(image)).to(image.dtype)[:, None, None, None]
    image.addcmul_(rng.noise_like(image), grain * (0.15 + 0.85 * lens)).clamp_(0, 1)
    chosen = rng.subset(config.compression_share, len(image))
    if len(chosen):
        strength = rng.log_uniform(config.compression, len(chosen))
        image.index_copy_(0, chosen, codec(image[chosen], strength))
    return image.mul_(bars), bars * lens


def _blurred(rng: RandomNumbers, config: ComposerConfig, image: Tensor, cameras: Cameras) -> Tensor:
    """Defocus, and motion blur along the camera's path, each in a share of the frames."""
    chosen = rng.subset(config.defocus_share, len(image))
    if len(chosen):
        sigma = rng.log_uniform(config.defocus_px, len(chosen)) * config.unit
        image.index_copy_(0, chosen, degrade.gaussian_blur(image[chosen], sigma))
    chosen = rng.subset(config.motion_blur_share, len(image))
    if len(chosen):
        clip = chosen // config.clip_frames
        direction = cameras.drift[clip] + rng.normal(0.05, len(chosen), 2)
        direction = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-4)
        length = rng.log_uniform(config.motion_blur_px, len(chosen)) * (2 / STANDARD_PX)
        swing = rng.normal(config.swirl, len(chosen)) + cameras.swing[clip] * 0.2
        image.index_copy_(0, chosen, degrade.motion_blur(image[chosen], direction * length[:, None], swing))
    return image


def _colour_graded(rng: RandomNumbers, config: ComposerConfig, image: Tensor, clips: int) -> Tensor:
    frames = config.clip_frames
    gain = rng.normal(config.exposure_log, clips, 1) + rng.normal(config.tint_log, clips, 3)
    dark = torch.where(rng.chance(config.dark_share, clips), rng.uniform(config.dark, clips), 1.0)
    flicker = rng.normal(config.flicker_log, clips * frames, 1)
    gain = (gain.clamp(max=config.brightest_log) + dark.log()[:, None]).repeat_interleave(frames, 0) + flicker
    look = (
        rng.normal(config.gamma_log, clips).exp(),
        rng.normal(config.contrast_log, clips).exp(),
        rng.uniform(config.saturation, clips),
    )
    return degrade.grade(image, gain.exp(), *(value.repeat_interleave(frames) for value in look))


def _vignette(rng: RandomNumbers, config: ComposerConfig, image: Tensor, cameras: Cameras) -> Tensor:
    """Darkening towards the corners (N, 1, F, F), stronger in round images."""
    ramp = (torch.arange(config.frame_px, device=image.device) + 0.5) * (2 / config.frame_px) - 1
    radius = ramp.square()[:, None] + ramp.square()
    strength = rng.uniform(config.vignette, len(cameras.lens)) * torch.where(cameras.circle < 2, 2.0, 1.0)
    falloff = 1 - strength[:, None, None, None] * (radius / 1.3).square()
    return falloff.clamp(min=0.05).to(image.dtype).repeat_interleave(config.clip_frames, 0)


def _at_low_resolution(rng: RandomNumbers, config: ComposerConfig, image: Tensor) -> Tensor:
    """A few frames reduced to each of the lower resolutions."""
    share = config.low_resolution_share
    chosen = rng.subset(share * len(config.low_resolution_px), len(image))
    for some, side in zip(
        chosen.chunk(len(config.low_resolution_px)), config.low_resolution_px, strict=False
    ):
        if len(some) and side < config.frame_px:
            small = degrade.downscale(image[some], side)
            image.index_copy_(0, some, degrade.upscale(small, config.frame_px))
    return image
