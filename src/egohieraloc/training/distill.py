"""Feature distillation: a backbone without pretrained weights learns the feature maps of one that has them.

Both must have feature maps of the same strides. P photos, B images per step, S their side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from egohieraloc.files import atomic_path
from egohieraloc.models.backbone import Backbone
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.render import chain, rotation, scaling, translation
from egohieraloc.training.optim import OptimConfig, learning_rate_factor


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """How the student is trained."""

    steps: int = 4000
    batch: int = 256
    side: int = 224  # S
    shown: tuple[float, float] = (0.3, 1.0)  # side of the crop, as a share of the photo's
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup: int = 250
    clip_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch) < 1:
            raise ValueError(f"steps and batch must be at least 1, got {self.steps}, {self.batch}")


class Distillation(nn.Module):
    """A student with a linear projection from each of its stages to the teacher's."""

    def __init__(self, student: Backbone, teacher: Backbone) -> None:
        super().__init__()
        self.student = student
        self.projections = nn.ModuleList(
            nn.Conv2d(mine, theirs, 1)
            for mine, theirs in zip(student.channels, teacher.channels, strict=True)
        )

    def forward(self, images: Tensor, teacher_maps: tuple[Tensor, ...]) -> Tensor:
        """Mean smooth L1 distance to the teacher's maps, whose channels are standardised."""
        stages = zip(self.projections, self.student(images), strict=True)
        maps = [project(stage) for project, stage in stages]
        distances = [
            F.smooth_l1_loss(mine.float(), _standardised(theirs.float()))
            for mine, theirs in zip(maps, teacher_maps, strict=True)
        ]
        return torch.stack(distances).mean()


def distill(
    student: Backbone,
    teacher: Backbone,
    photos: Tensor,
    config: DistillConfig,
    device: torch.device | str,
    *,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train the student in place on photos (P, H, H, 3) uint8; `report` gets the loss every 100 steps."""
    device = torch.device(device)
    torch.manual_seed(config.seed)
    teacher = teacher.to(device).eval().requires_grad_(False)
    distillation = Distillation(student, teacher).to(device).train()
    photos = photos.to(device)
    optimizer = torch.optim.AdamW(
        distillation.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    pace = OptimConfig(steps=config.steps, warmup=config.warmup)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, pace))
    generator = torch.Generator(device).manual_seed(config.seed)
    for step in range(config.steps):
        images = draw_images(RandomNumbers(generator), photos, config)
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                teacher_maps = teacher(images)
            loss = distillation(images, teacher_maps)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(distillation.parameters(), config.clip_norm)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == config.steps - 1:
            report(step, loss.item())


def save_backbone(path: Path, backbone: Backbone) -> None:
    """Write a file that a recipe can `start` from."""
    with atomic_path(path) as temporary:
        save_file(
            {name: value.cpu().contiguous() for name, value in backbone.state_dict().items()}, temporary
        )


def draw_images(rng: RandomNumbers, photos: Tensor, config: DistillConfig) -> Tensor:
    """Random crops of photos (B, 3, S, S) in [0, 1], mirrored, slightly rotated, and varied in brightness."""
    count = config.batch
    pixels = photos[rng.integers(len(photos), count)].permute(0, 3, 1, 2).float() / 255
    share = rng.log_uniform(config.shown, count)[:, None]
    mirror = torch.where(rng.chance(0.5, count, 1), -1.0, 1.0)
    place = rng.uniform((-1.0, 1.0), count, 2) * (1 - share)
    maps = chain(
        translation(place),
        rotation(rng.normal(0.1, count)),
        scaling(torch.cat((share * mirror, share), 1)),
    )
    grid = F.affine_grid(maps[:, :2], [count, 3, config.side, config.side], align_corners=False)
    images = F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)
    gain = (rng.normal(0.2, count, 1) + rng.normal(0.05, count, 3)).exp()
    return (images * gain[:, :, None, None]).clamp(0, 1)


def _standardised(maps: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(maps, (0, 2, 3), keepdim=True)
    return (maps - mean) / deviation.clamp(min=1e-4)
