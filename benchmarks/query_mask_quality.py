"""Does the built-in segmenter know how good its masks are? Its quality beside the true IoU, composed queries.

    python benchmarks/query_mask_quality.py --data DIR [--model FILE|NAME] [--split val] [--queries 60]
        [--set network.query_mask.slope=0.85 --set network.query_mask.offset=-0.59]

DIR holds photos/ and sprites/. Every query is segmented as it is, blurred, at 20 pixels, behind a hand and
with all three. The hand's pixels are no part of the object. The last line has the slope and offset that make
the quality's logit predict the IoU best (`network.query_mask.slope`, `offset`): fit them with `--split val`,
look at others with `--split heldout`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from degraded import DEGRADED, behind_hand
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import BATCH, VIDEO_CLIPS, clip_of
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Floats, Mask, QueryMask

SEED = 7


@dataclass(frozen=True)
class Segmented:
    iou: float
    quality: float
    level: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--split", default="val", choices=["val", "heldout"])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        localizer = Localizer.from_pretrained(
            options.model, settings=options.settings, device="cpu", cache=Path(scratch)
        )
    queries = composed(options.data, options.split, options.queries)
    rows = {name: [segment(localizer, name, *query) for query in queries] for name in DEGRADED}
    names = ["true IoU", "below .6", "below .4", "quality", "level 0", "level 1", "level 2"]
    print(f"{len(queries)} queries\n{'':16}" + "".join(f"{name:>10}" for name in names))
    for name, found in rows.items():
        ious = np.array([one.iou for one in found])
        cells = [
            f"{ious.mean():.2f}",
            f"{100 * (ious < 0.6).mean():.0f} %",
            f"{100 * (ious < 0.4).mean():.0f} %",
        ]
        cells += [f"{np.mean([one.quality for one in found]):.2f}"]
        cells += [f"{100 * np.mean([one.level == level for one in found]):.0f} %" for level in range(3)]
        print(f"{name:16}" + "".join(f"{cell:>10}" for cell in cells))
    print_fit([one for found in rows.values() for one in found])


def composed(data: Path, split: str, count: int) -> list[tuple[Query, Mask]]:
    """Queries as images, with the object's pixels."""
    packs = read_packs(data, split=split, limit=PACK_LIMIT)
    composer = ClipComposer(packs, update(VIDEO_CLIPS, {"clip_frames": 1}), torch.device("cpu"), SEED)
    found: list[tuple[Query, Mask]] = []
    for step in range(-(-count // BATCH)):
        batch = composer.batch(step, BATCH)
        for number in range(len(batch)):
            query = clip_of(batch, number).query
            mask = batch.query_mask[number].squeeze().float().numpy()
            found.append((query, cv2.resize(mask, query.image.shape[1::-1]) > 0.5))
    return found[:count]


def segment(localizer: Localizer, name: str, query: Query, truth: Mask) -> Segmented:
    """`truth` is at the size of the query's image before it was degraded."""
    asked = DEGRADED[name](query)
    if name in ("behind a hand", "all three"):
        truth = truth & (behind_hand(query).image == query.image).all(-1)
    found = localizer.predictor.prepare(asked).mask
    shrunk = np.array(query.image.shape[1::-1]) / asked.image.shape[1::-1]
    mask = in_image(found, shrunk, query.image.shape[1::-1])
    iou = float((mask & truth).sum() / max(1, (mask | truth).sum()))
    return Segmented(iou, found.quality, found.level)


def in_image(found: QueryMask, scale: Floats, size: tuple[int, ...]) -> NDArray[np.bool_]:
    """The window's mask in an image `scale` times as large as the one it was cut from."""
    x1, y1, x2, y2 = np.array(found.box.xyxy) * np.tile(scale, 2)
    height, width = found.mask.shape
    matrix = np.array([[(x2 - x1) / width, 0, x1], [0, (y2 - y1) / height, y1]])
    inside = (found.mask >= 128).astype(np.float32)
    return np.asarray(cv2.warpAffine(inside, matrix, tuple(size)) > 0.5)


def print_fit(found: list[Segmented]) -> None:
    iou = np.array([one.iou for one in found])
    raw = logit(np.clip([one.quality for one in found], 1e-6, 1 - 1e-6))

    def loss(line: Floats) -> float:
        guess = np.clip(expit(line[0] * raw + line[1]), 1e-9, 1 - 1e-9)
        return float(-np.mean(iou * np.log(guess) + (1 - iou) * np.log(1 - guess)))

    slope, offset = minimize(loss, [1.0, 0.0]).x
    before, after = (np.sqrt(np.mean((expit(x) - iou) ** 2)) for x in (raw, slope * raw + offset))
    print(f"error of the quality {before:.3f}; with slope {slope:.2f} and offset {offset:.2f} {after:.3f}")


if __name__ == "__main__":
    main()
