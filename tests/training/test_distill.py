"""Distillation of one backbone into another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError
from egohieraloc.models.backbone import build_backbone, load_imagenet
from egohieraloc.settings import override
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.distill import DistillConfig, distill, draw_images, save_backbone


def test_a_student_learns_and_a_recipe_can_start_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    photos = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8)
    photos = photos.repeat_interleave(8, 1).repeat_interleave(8, 2)
    student = build_backbone(BackboneConfig(name="pvt_v2_b0"))
    teacher = build_backbone(BackboneConfig(name="efficientnet_lite_tiny"))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    losses: list[float] = []
    config = DistillConfig(steps=25, batch=4, side=64, warmup=3)
    distill(student, teacher, photos, config, "cpu", report=lambda step, loss: losses.append(loss))
    assert len(losses) == 2
    assert losses[-1] < 0.8 * losses[0]
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, before[name])

    save_backbone(tmp_path / "start.safetensors", student)
    started = build_backbone(BackboneConfig(name="pvt_v2_b0"))
    load_imagenet(started, tmp_path / "start.safetensors")
    for name, value in started.state_dict().items():
        assert torch.equal(value, student.state_dict()[name])


def test_zero_steps_are_rejected() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        override(DistillConfig(), ["steps=0"])


def test_images_are_crops_of_photos() -> None:
    photos = torch.full((3, 16, 16, 3), 128, dtype=torch.uint8)
    drawn = draw_images(
        RandomNumbers(torch.Generator().manual_seed(0)), photos, DistillConfig(batch=5, side=32)
    )
    assert drawn.shape == (5, 3, 32, 32)
    assert drawn.flatten(1).std(1).max() < 0.2  # one colour each, tinted
    assert 0 <= drawn.min() <= drawn.max() <= 1
