"""How far the built-in segmenter's masks are to be trusted, fitted to composed queries, sound and degraded.

The fit gives the IoU to be expected of a mask from what is known at inference: the segmenter's own estimate
and its mask's steadiness. The paper's thresholds of quality then send queries to its fallback levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from scipy.special import expit, logit

from egohieraloc.config import QueryMaskConfig
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.second_look import SMALLEST
from egohieraloc.models.query_mask import steadiness
from egohieraloc.models.weights import load_weights
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.calibrate import fit_line
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import BATCH, VIDEO_CLIPS, query_of
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.degraded_queries import DEGRADED, WITH_HAND, hand_over
from egohieraloc.training.composer.packs import Packs
from egohieraloc.types import Floats, Mask, QueryMask

SEED = 7


@dataclass(frozen=True)
class Segmented:
    """A query, sound or degraded, as the segmenter sees it."""

    degradation: str  # a name of DEGRADED
    iou: float  # of its mask with the pixels of the object that can be seen
    quality: float
    steadiness: float
    level: int


def calibrate_segmenter(
    path: Path, packs: Packs, *, queries: int, config: ComposerConfig = VIDEO_CLIPS
) -> tuple[QueryMaskConfig, list[Segmented]]:
    """The fit for a weights file, and the queries it was fitted to, with the segmenter's own estimate."""
    weights = load_weights(path)
    network = weights.network.config
    bare = weights.with_settings(replace(network, query_mask=plain(network.query_mask)))
    found = list(segmented_queries(Predictor(bare), packs, queries, config=config))
    return fit_segmenter(found, network.query_mask), found


def segmented_queries(
    predictor: Predictor, packs: Packs, count: int, *, config: ComposerConfig = VIDEO_CLIPS
) -> Iterator[Segmented]:
    """So many composed queries of the packs' objects, each under every degradation."""
    for query, truth in _composed(packs, count, config):
        for name, degrade in DEGRADED.items():
            asked = degrade(query)
            seen = truth & ~hand_over(query) if name in WITH_HAND else truth
            yield segmented(predictor, name, asked, seen)


def segmented(predictor: Predictor, name: str, asked: Query, truth: Mask) -> Segmented:
    """`truth` is at the size of the query's image before it was degraded."""
    found = predictor.prepare(asked).mask
    height, width = truth.shape
    scale = np.array([width, height]) / asked.image.shape[1::-1]
    mask = _in_image(found, scale, (width, height))
    iou = float((mask & truth).sum() / max(1, (mask | truth).sum()))
    steady = steadiness((found.mask / np.float32(255)).astype(np.float32))
    return Segmented(name, iou, found.quality, steady, found.level)


def fit_segmenter(found: Sequence[Segmented], config: QueryMaskConfig) -> QueryMaskConfig:
    """The line that predicts the IoU best; `found` must come from a segmenter without one (`plain`)."""
    known = np.array([[logit(np.clip(one.quality, SMALLEST, 1 - SMALLEST)), one.steadiness] for one in found])
    (slope, steady), offset = fit_line(known, np.array([one.iou for one in found]))
    return replace(config, slope=slope, steadiness=steady, offset=offset)


def plain(config: QueryMaskConfig) -> QueryMaskConfig:
    """The segmenter's own estimate."""
    return replace(config, slope=1.0, steadiness=0.0, offset=0.0)


def quality_error(found: Sequence[Segmented], config: QueryMaskConfig) -> float:
    """Root mean square error of the quality under a line, of queries segmented without one."""
    values = [
        config.slope * logit(np.clip(one.quality, SMALLEST, 1 - SMALLEST))
        + config.steadiness * one.steadiness
        + config.offset
        for one in found
    ]
    wanted: Floats = np.array([one.iou for one in found])
    return float(np.sqrt(np.mean((expit(values) - wanted) ** 2)))


def _composed(packs: Packs, count: int, config: ComposerConfig) -> Iterator[tuple[Query, Mask]]:
    """Queries as images, with the object's pixels."""
    composer = ClipComposer(packs, update(config, {"clip_frames": 1}), torch.device("cpu"), SEED)
    for start in range(0, count, BATCH):
        batch = composer.batch(start // BATCH, BATCH)
        for number in range(min(BATCH, count - start)):
            query = query_of(batch.query[number], batch.query_box[number])
            mask = batch.query_mask[number].squeeze().float().numpy()
            yield query, np.asarray(cv2.resize(mask, query.image.shape[1::-1]) > 0.5)


def _in_image(found: QueryMask, scale: Floats, size: tuple[int, int]) -> Mask:
    """The window's mask in an image `scale` times as large as the one it was cut from."""
    x1, y1, x2, y2 = np.array(found.box.xyxy) * np.tile(scale, 2)
    height, width = found.mask.shape
    matrix = np.array([[(x2 - x1) / width, 0, x1], [0, (y2 - y1) / height, y1]])
    inside = (found.mask >= 128).astype(np.float32)
    return np.asarray(cv2.warpAffine(inside, matrix, size) > 0.5)
