"""The virtual camera of a clip: its image shape, lens, and motion through the scene."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.render import chain, projective, rotation, scaling, translation


@dataclass(frozen=True, eq=False)
class Cameras:
    """One camera per clip. View coordinates: the canvas is [-1, 1] both ways."""

    half: Tensor  # (B, 2) half sides of the image on the canvas, outside of which are black bars
    circle: Tensor  # (B,) radius of a round image; large where the image is not round
    lens: Tensor  # (B,) fisheye coefficient
    scene_from_view: Tensor  # (B, T, 3, 3)
    zoom: Tensor  # (B,) the largest magnification in the clip
    drift: Tensor  # (B, 2) motion from frame to frame in view coordinates
    swing: Tensor  # (B,) rotation from frame to frame in radians

    def of(self, clips: Tensor) -> Cameras:
        """The cameras of some clips."""
        return Cameras(**{name: value[clips] for name, value in vars(self).items()})

    def content(self, canvas: int) -> tuple[Tensor, Tensor]:
        """Masks (B, 1, F, F): inside the bars, with hard edges, and inside the circle, with soft ones."""
        ramp = (torch.arange(canvas, device=self.lens.device) + 0.5) * (2 / canvas) - 1
        x_in = ramp.abs() <= self.half[:, 0, None]
        y_in = ramp.abs() <= self.half[:, 1, None]
        bars = (y_in[:, :, None] & x_in[:, None, :])[:, None]
        radius = (ramp.square()[:, None] + ramp.square()).sqrt()
        lens = ((self.circle[:, None, None] - radius) * 40).clamp(0, 1)[:, None]
        return bars.float(), lens


def draw_cameras(
    rng: RandomNumbers, config: ComposerConfig, batch: int, aspects: Tensor, weights: Tensor
) -> Cameras:
    """Draw a camera for each clip; `aspects` (K,) are the aspect ratios, `weights` (K,) their shares."""
    frames = config.clip_frames
    round_ = rng.chance(config.circle_share, batch)
    aspect = torch.where(round_, 1.0, aspects[rng.choice(weights, batch)])
    half = torch.stack((aspect.clamp(max=1), (1 / aspect).clamp(max=1)), -1)
    circle = torch.where(round_, rng.uniform(config.circle, batch), 9.0)
    bent = round_ | rng.chance(config.fisheye_share - config.circle_share, batch)
    lens = torch.where(bent, rng.uniform(config.fisheye, batch), 0.0)

    time = torch.linspace(-0.5, 0.5, frames, device=half.device) if frames > 1 else half.new_zeros(1)
    angle = rng.uniform((0.0, 2 * math.pi), batch)
    pan = rng.log_uniform(config.pan, batch)[:, None] * torch.stack((angle.cos(), angle.sin()), -1)
    roll = rng.normal(math.radians(config.roll_deg), batch)
    zoom = rng.normal(config.zoom_log, batch)
    tilt = rng.normal(config.tilt, batch, 2)
    offset = pan[:, None] * time[:, None] + rng.normal(config.shake, batch, frames, 2)
    magnification = (zoom[:, None] * time).exp()
    path = chain(
        translation(offset),
        rotation(roll[:, None] * time + rng.normal(config.shake, batch, frames)),
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
