"""The virtual camera of a clip: its image shape, lens, path through the scene and blur."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from egohieraloc.training.composer.config import ComposerConfig
from egohieraloc.training.composer.dice import Dice
from egohieraloc.training.composer.render import chain, projective, rotation, scaling, translation


@dataclass(frozen=True, eq=False)
class Cameras:
    """One camera per clip. View coordinates: the canvas is [-1, 1] both ways."""

    half: Tensor  # (B, 2) half sides of the image on the canvas; outside are black bars
    circle: Tensor  # (B,) radius of the black round surround; large where there is none
    lens: Tensor  # (B,) fisheye coefficient
    scene_from_view: Tensor  # (B, T, 3, 3)
    zoom: Tensor  # (B,) the largest magnification on the path
    drift: Tensor  # (B, 2) travel from frame to frame in view coordinates
    swing: Tensor  # (B,) rotation from frame to frame, radians

    def of(self, clips: Tensor) -> Cameras:
        """The cameras of some clips."""
        return Cameras(**{name: value[clips] for name, value in vars(self).items()})

    def content(self, canvas: int) -> tuple[Tensor, Tensor]:
        """Masks (B, 1, F, F): the image without bars, sharp, and without the surround, soft."""
        ramp = (torch.arange(canvas, device=self.lens.device) + 0.5) * (2 / canvas) - 1
        x_in = ramp.abs() <= self.half[:, 0, None]
        y_in = ramp.abs() <= self.half[:, 1, None]
        bars = (y_in[:, :, None] & x_in[:, None, :])[:, None]
        radius = (ramp.square()[:, None] + ramp.square()).sqrt()
        lens = ((self.circle[:, None, None] - radius) * 40).clamp(0, 1)[:, None]
        return bars.float(), lens


def draw_cameras(dice: Dice, config: ComposerConfig, batch: int, aspects: Tensor, weights: Tensor) -> Cameras:
    """`aspects` and `weights` (K,) are the image shapes and their shares, on the device."""
    frames = config.clip_frames
    round_ = dice.chance(config.circle_share, batch)
    aspect = torch.where(round_, 1.0, aspects[dice.choice(weights, batch)])
    half = torch.stack((aspect.clamp(max=1), (1 / aspect).clamp(max=1)), -1)
    circle = torch.where(round_, dice.uniform(config.circle, batch), 9.0)
    bent = round_ | dice.chance(config.fisheye_share - config.circle_share, batch)
    lens = torch.where(bent, dice.uniform(config.fisheye, batch), 0.0)

    time = torch.linspace(-0.5, 0.5, frames, device=half.device) if frames > 1 else half.new_zeros(1)
    angle = dice.uniform((0.0, 2 * math.pi), batch)
    pan = dice.log_uniform(config.pan, batch)[:, None] * torch.stack((angle.cos(), angle.sin()), -1)
    roll = dice.normal(math.radians(config.roll_deg), batch)
    zoom = dice.normal(config.zoom_log, batch)
    tilt = dice.normal(config.tilt, batch, 2)
    offset = pan[:, None] * time[:, None] + dice.normal(config.shake, batch, frames, 2)
    magnification = (zoom[:, None] * time).exp()
    path = chain(
        translation(offset),
        rotation(roll[:, None] * time + dice.normal(config.shake, batch, frames)),
        scaling((1 / magnification)[..., None].expand(-1, -1, 2)),
        projective(tilt[:, None] * time[:, None]),
    )
    step = 1 / max(frames - 1, 1)
    return Cameras(
        half=half,
        circle=circle,
        lens=lens,
        scene_from_view=path,
        zoom=magnification.amax(1),
        drift=pan * step,
        swing=roll * step,
    )
