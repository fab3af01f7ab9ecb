"""From the painted scene to the frames a head-worn camera would record."""

from __future__ import annotations

import torch
from torch import Tensor

from egohieraloc.training.composer import degrade
from egohieraloc.training.composer.config import STANDARD_PX, ComposerConfig
from egohieraloc.training.composer.dice import Dice
from egohieraloc.training.composer.virtual_camera import Cameras


def record(
    dice: Dice, config: ComposerConfig, codec: degrade.Codec, scene: Tensor, cameras: Cameras
) -> tuple[Tensor, Tensor]:
    """Frames (N, 3, F, F) of scenes of that shape, and what of the canvas shows anything (N, 1, F, F)."""
    frames = config.clip_frames
    bars, lens = (m.to(scene.dtype).repeat_interleave(frames, 0) for m in cameras.content(config.frame_px))
    image = _blurred(dice, config, scene.clone(), cameras)
    image = _graded(dice, config, image, len(cameras.lens))
    image *= lens * _falloff(dice, config, image, cameras)
    image = _coarsened(dice, config, image)
    grain = dice.uniform(config.noise, len(image)).to(image.dtype)[:, None, None, None]
    image.addcmul_(dice.noise_like(image), grain * (0.15 + 0.85 * lens)).clamp_(0, 1)
    chosen = dice.some(config.compression_share, len(image))
    if len(chosen):
        strength = dice.log_uniform(config.compression, len(chosen))
        image.index_copy_(0, chosen, codec(image[chosen], strength))
    return image.mul_(bars), bars * lens


def _blurred(dice: Dice, config: ComposerConfig, image: Tensor, cameras: Cameras) -> Tensor:
    """Defocus and motion blur along the camera's way, each on a share of the frames."""
    chosen = dice.some(config.defocus_share, len(image))
    if len(chosen):
        sigma = dice.log_uniform(config.defocus_px, len(chosen)) * config.unit
        image.index_copy_(0, chosen, degrade.defocus(image[chosen], sigma))
    chosen = dice.some(config.motion_blur_share, len(image))
    if len(chosen):
        clip = chosen // config.clip_frames
        way = cameras.drift[clip] + dice.normal(0.05, len(chosen), 2)
        way = way / way.norm(dim=-1, keepdim=True).clamp(min=1e-4)
        length = dice.log_uniform(config.motion_blur_px, len(chosen)) * (2 / STANDARD_PX)
        swing = dice.normal(config.swirl, len(chosen)) + cameras.swing[clip] * 0.2
        image.index_copy_(0, chosen, degrade.smear(image[chosen], way * length[:, None], swing))
    return image


def _graded(dice: Dice, config: ComposerConfig, image: Tensor, clips: int) -> Tensor:
    frames = config.clip_frames
    gain = dice.normal(config.exposure_log, clips, 1) + dice.normal(config.tint_log, clips, 3)
    dark = torch.where(dice.chance(config.dark_share, clips), dice.uniform(config.dark, clips), 1.0)
    flicker = dice.normal(config.flicker_log, clips * frames, 1)
    gain = (gain.clamp(max=config.brightest_log) + dark.log()[:, None]).repeat_interleave(frames, 0) + flicker
    look = (
        dice.normal(config.gamma_log, clips).exp(),
        dice.normal(config.contrast_log, clips).exp(),
        dice.uniform(config.saturation, clips),
    )
    return degrade.grade(image, gain.exp(), *(value.repeat_interleave(frames) for value in look))


def _falloff(dice: Dice, config: ComposerConfig, image: Tensor, cameras: Cameras) -> Tensor:
    """Darkening towards the corners (N, 1, F, F), stronger in round images."""
    ramp = (torch.arange(config.frame_px, device=image.device) + 0.5) * (2 / config.frame_px) - 1
    radius = ramp.square()[:, None] + ramp.square()
    strength = dice.uniform(config.vignette, len(cameras.lens)) * torch.where(cameras.circle < 2, 2.0, 1.0)
    falloff = 1 - strength[:, None, None, None] * (radius / 1.3).square()
    return falloff.clamp(min=0.05).to(image.dtype).repeat_interleave(config.clip_frames, 0)


def _coarsened(dice: Dice, config: ComposerConfig, image: Tensor) -> Tensor:
    """A few frames at each lower resolution."""
    share = config.low_resolution_share
    chosen = dice.some(share * len(config.low_resolution_px), len(image))
    for some, side in zip(
        chosen.chunk(len(config.low_resolution_px)), config.low_resolution_px, strict=False
    ):
        if len(some) and side < config.frame_px:
            small = degrade.coarse(image[some], side)
            image.index_copy_(0, some, degrade.enlarged(small, config.frame_px))
    return image
