"""Does the built-in segmenter know how good its masks are? Its quality beside the true IoU, composed queries.

    python benchmarks/query_mask_quality.py --data DIR [--model FILE|NAME] [--split heldout] [--queries 200]
        [--set network.query_mask.steadiness=0]

DIR holds photos/ and sprites/. Every query is segmented as it is, blurred, at 20 pixels, behind a hand, with
all three, and worse (behind a hand, twice as blurred and half as large). The hand's pixels are no part of the
object. `egohieraloc calibrate` fits the quality on the split `val`; `heldout` has other objects.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from egohieraloc.localize import Localizer
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.degraded_queries import DEGRADED
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.training.segmenter_fit import segmented_queries

HEADINGS = ("true IoU", "below .6", "below .4", "quality", "level 0", "level 1", "level 2")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--split", default="heldout", choices=["val", "heldout"])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        localizer = Localizer.from_pretrained(
            options.model, settings=options.settings, device=options.device, cache=Path(scratch)
        )
    packs = read_packs(options.data, split=options.split, limit=PACK_LIMIT)
    found = list(segmented_queries(localizer.predictor, packs, options.queries))
    print(f"{options.queries} queries\n{'':16}" + "".join(f"{name:>10}" for name in HEADINGS))
    for name in DEGRADED:
        rows = [one for one in found if one.degradation == name]
        ious = np.array([one.iou for one in rows])
        shares = [(ious < 0.6).mean(), (ious < 0.4).mean()]
        levels = [np.mean([one.level == level for one in rows]) for level in range(3)]
        quality = np.mean([one.quality for one in rows])
        cells = [f"{ious.mean():.2f}", *(f"{100 * share:.0f} %" for share in shares)]
        cells += [f"{quality:.2f}", *(f"{100 * share:.0f} %" for share in levels)]
        print(f"{name:16}" + "".join(f"{cell:>10}" for cell in cells))
    ious, qualities = (np.array([getattr(one, key) for one in found]) for key in ("iou", "quality"))
    error = np.sqrt(np.mean((qualities - ious) ** 2))
    print(
        f"error of the quality {error:.3f}, rank correlation with the IoU {spearmanr(qualities, ious)[0]:.2f}"
    )


if __name__ == "__main__":
    main()
