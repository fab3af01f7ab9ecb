"""Small packs with known colours: grey photos with one green ellipse and one blue box each, plain sprites."""

from __future__ import annotations

import numpy as np
import torch

from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs

GREEN, BLUE = (20, 220, 30), (30, 40, 230)
SPRITE_COLOURS = ((230, 20, 200), (240, 230, 10), (10, 220, 230), (250, 120, 10))

QUIET = """
absent_share leave_share occluder_share shape_share hand_share second_hand_share
rival_share distractor_share layer_gain_log exposure_log dark_share tint_log gamma_log
contrast_log flicker_log motion_blur_share defocus_share low_resolution_share
compression_share circle_share query_hand_share query_blur_share query_resolution_share
query_compression_share crop_only_share box_jitter loose_box_share
"""


def tiny_packs(*, photos: int = 8, views: int = 4, sprite_id: tuple[int, ...] = (0, 1, 2, 3)) -> Packs:
    rng = np.random.default_rng(0)
    images = np.repeat(rng.integers(90, 130, (photos, 256, 256, 1), dtype=np.uint8), 3, axis=3)
    ellipse, box = np.array([60, 70, 140, 130]), np.array([160, 150, 220, 230])
    y, x = np.mgrid[:256, :256] + 0.5
    inside = ((x - 100) / 40) ** 2 + ((y - 100) / 30) ** 2 <= 1
    images[:, inside] = GREEN
    images[:, box[1] : box[3], box[0] : box[2]] = BLUE
    cy, cx = (np.mgrid[:96, :96] + 0.5) / 48 - 1
    crops = np.stack([(cx**2 + cy**2 <= 1) * np.uint8(255), np.full((96, 96), 255, np.uint8)])
    sprites = np.zeros((len(sprite_id), views, 192, 192, 4), np.uint8)
    for k in range(len(sprite_id)):
        for view in range(views):
            margin = 4 + 10 * view
            sprites[k, view, 40:150, margin : 192 - margin] = (*SPRITE_COLOURS[k % 4], 255)
    angle = np.arange(views) * 2 * np.pi / views
    direction = np.stack((np.cos(angle), np.sin(angle), 0 * angle), -1).astype(np.float32)
    return Packs(
        photos=torch.from_numpy(images),
        mask_crops=torch.from_numpy(np.tile(crops, (photos, 1, 1))),
        mask_photo=torch.arange(photos).repeat_interleave(2),
        mask_box=torch.from_numpy(np.tile(np.stack((ellipse, box)), (photos, 1)).astype(np.float32)),
        sprites=torch.from_numpy(sprites),
        sprite_direction=torch.from_numpy(np.tile(direction, (len(sprite_id), 1, 1))),
        sprite_id=torch.tensor(sprite_id),
    )


def small_config(**changes: object) -> ComposerConfig:
    """All effects on, at a size fast enough for tests."""
    settings: dict[str, object] = {
        "query_px": 64,
        "frame_px": 128,
        "twin_similarity": 2.0,
        "min_visible_px": 8.0,
    }
    return ComposerConfig(**(settings | changes))  # type: ignore[arg-type]


def calm_config(**changes: object) -> ComposerConfig:
    """No effect that changes colours or hides the target."""
    quiet: dict[str, object] = dict.fromkeys(QUIET.split(), 0.0)
    quiet |= {"shadow": (0.0, 0.0), "vignette": (0.0, 0.0), "noise": (0.0, 0.0), "saturation": (1.0, 1.0)}
    return small_config(**(quiet | {"frame_px": 224} | changes))
