"""Two ways to look for an object without training for it, as baselines: pixels and plain ImageNet features.

Both slide the query, in several sizes, over every frame and keep the best place. Canvas: 448 x 448 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import BackboneConfig
from egohieraloc.models.backbone import build_backbone, load_imagenet
from egohieraloc.query import Query
from egohieraloc.types import Floats, Rgb

CANVAS_PX = 448
SIDES_PX = (32, 45, 64, 90, 128, 180)  # longer side of the object on the canvas


@dataclass(frozen=True, eq=False)
class Matches:
    """The best place in each of N frames."""

    scores: Floats  # (N,)
    boxes_xyxy: Floats  # (N, 4) on the canvas

    @staticmethod
    def cat(parts: Sequence[Matches]) -> Matches:
        return Matches(
            np.concatenate([p.scores for p in parts]), np.concatenate([p.boxes_xyxy for p in parts])
        )


class Matcher(Protocol):
    def prepare(self, canvases: Sequence[Rgb]) -> object: ...

    def match(self, query: Query, prepared: object) -> Matches: ...


class TemplateMatcher:
    """Normalised cross-correlation of colours (OpenCV), at half the canvas's resolution."""

    SHRINK = 2

    def prepare(self, canvases: Sequence[Rgb]) -> list[Rgb]:
        side = CANVAS_PX // self.SHRINK
        return [cv2.resize(c, (side, side), interpolation=cv2.INTER_AREA) for c in canvases]

    def match(self, query: Query, prepared: list[Rgb]) -> Matches:
        templates = [resized(query.crop, side / self.SHRINK) for side in SIDES_PX]
        rows = []
        for frame in prepared:
            best = (-1.0, (0, 0), (1, 1))
            for template in templates:
                response = cv2.matchTemplate(frame, template, cv2.TM_CCOEFF_NORMED)
                # A flat patch has no correlation: OpenCV gives infinity or nonsense there.
                response[~np.isfinite(response) | (np.abs(response) > 1.01)] = -1
                _, score, _, corner = cv2.minMaxLoc(response)
                best = max(best, (score, corner, template.shape[1::-1]))
            score, corner, size = best
            low = np.array(corner)
            rows.append((score, *(low * self.SHRINK), *((low + size) * self.SHRINK)))
        return _matches(rows)


class FeatureMatcher:
    """Cosine of EfficientNet-Lite's ImageNet features at stride 16, summed over the cells of the object.

    The mean feature of a video is taken away first: without it everything is alike.
    """

    STRIDE = 16

    def __init__(self) -> None:
        self.backbone = build_backbone(BackboneConfig(name="efficientnet_lite1", stages=3)).eval()
        load_imagenet(self.backbone)

    def prepare(self, canvases: Sequence[Rgb]) -> tuple[Tensor, Tensor]:
        """Features (N, C, h, w) of unit length and the mean (C, 1, 1) taken from them."""
        features = torch.cat([self._features(c) for c in canvases])
        mean = features.mean((0, 2, 3))[:, None, None]
        return F.normalize(features - mean, dim=1), mean

    def match(self, query: Query, prepared: tuple[Tensor, Tensor]) -> Matches:
        frames, mean = prepared
        best: list[tuple[float, ...]] = [(-1.0, 0, 0, 1, 1)] * len(frames)
        for side in SIDES_PX:
            crop = resized(query.crop, side)
            height, width = (max(1, round(v / self.STRIDE)) for v in crop.shape[:2])
            cells = self._crop_features(crop)[:, :, :height, :width]
            kernel = F.normalize(cells - mean, dim=1) / (height * width)
            with torch.inference_mode():
                response = F.conv2d(frames, kernel)[:, 0]
            for number, (value, place) in enumerate(zip(*response.flatten(1).max(1), strict=True)):
                y, x = divmod(int(place), response.shape[2])
                box = np.array([x, y, x + width, y + height]) * self.STRIDE
                best[number] = max(best[number], (float(value), *box))
        return _matches(best)

    def _crop_features(self, crop: Rgb) -> Tensor:
        """Features of a crop, its border repeated to a side that the network takes."""
        height, width = crop.shape[:2]
        down, right = (-height % 32) + 32, (-width % 32) + 32
        return self._features(cv2.copyMakeBorder(crop, 0, down, 0, right, cv2.BORDER_REPLICATE))

    def _features(self, rgb: Rgb) -> Tensor:
        pixels = torch.from_numpy(rgb).permute(2, 0, 1)[None].float() / 255
        with torch.inference_mode():
            return self.backbone(pixels)[2]


def resized(crop: Rgb, longer_px: float) -> Rgb:
    """The crop with its longer side that long."""
    scale = longer_px / max(crop.shape[:2])
    size = tuple(max(4, round(v * scale)) for v in crop.shape[1::-1])
    return cv2.resize(crop, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)


def _matches(rows: Sequence[Sequence[float]]) -> Matches:
    table: NDArray[np.float64] = np.array(rows, np.float64)
    return Matches(table[:, 0], table[:, 1:])
