"""Our measures beside the benchmarks' own code, on the same random tracks.

    python benchmarks/parity_official.py --official DIR

DIR holds checkouts: of github.com/EGO4D/episodic-memory (for VQ2D) and, where there, of
github.com/matteo-dunnhofer/TREK-150-toolkit (for TREK-150). The VQ2D code needs pandas; it was written for
an older NumPy, whose name `np.float` is put back while it runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import Track
from egohieraloc.data.trek150 import TrekSequence
from egohieraloc.evaluation import trek150, vq2d

TOLERANCE = 1e-9
NAMES = {
    "tap": "Temporal AP                    @ IoU=0.25:0.95",
    "tap25": "Temporal AP                    @ IoU=0.25     ",
    "stap": "SpatioTemporal AP              @ IoU=0.25:0.95",
    "stap25": "SpatioTemporal AP              @ IoU=0.25     ",
    "success": "Success (max scr)              @ IoU=0.05     ",
    "recovery": "Tracking % recovery (max scr)  @ IoU=0.50     ",
}


def random_queries(random: np.random.Generator, count: int) -> list[tuple[Track, Track, float]]:
    """Tracks near each other, far apart, and empty ones; every score is different."""
    found = []
    scores = random.permutation(count) / count
    for number in range(count):
        start, length = int(random.integers(0, 80)), int(random.integers(1, 40))
        x, y, w, h = random.uniform(5, 200, 4)
        truth = Track.from_boxes(
            range(start, start + length), [(x + i, y, x + i + w, y + h) for i in range(length)]
        )
        keep = int(random.integers(0, length + 1))
        shift = np.repeat(random.normal(0, 15, 2)[None], 2, 0).ravel()
        moved = Track(truth.frames[:keep] + int(random.integers(-5, 6)), truth.boxes_xyxy[:keep] + shift)
        found.append((truth, moved, float(scores[number])))
    return found


def compare_vq2d(folder: Path, random: np.random.Generator, count: int) -> float:
    """The largest difference of any measure."""
    sys.path.insert(0, str(folder))
    vars(np)["float"] = float
    metrics = importlib.import_module("vq2d.metrics.metrics")
    structures = importlib.import_module("vq2d.structures")

    def track(ours: Track, score: float | None) -> Any:
        rows = zip(ours.frames.tolist(), ours.boxes_xyxy.tolist(), strict=True)
        return structures.ResponseTrack([structures.BBox(frame, *box) for frame, box in rows], score)

    queries = random_queries(random, count)
    crops = [structures.BBox(0, 0, 0, 10, 10)] * count
    theirs = metrics.compute_visual_query_metrics(
        [[track(answer, score)] for _, answer, score in queries],
        [track(truth, None) for truth, _, _ in queries],
        crops,
    )["all"]
    ours = vq2d.score(vq2d.measure(queries))
    worst = 0.0
    for name, title in NAMES.items():
        value = getattr(ours, name)
        worst = max(worst, abs(value - theirs[title]))
        print(f"  {name:10s} ours {value:.12f}   official {theirs[title]:.12f}")
    return worst


def stub(name: str, path: Path | None = None, **attributes: Any) -> None:
    """Put an empty module, or a package whose __init__ is not run, in the place of a real one."""
    module = types.ModuleType(name)
    module.__path__ = [] if path is None else [str(path)]
    vars(module).update(attributes)
    sys.modules[name] = module


def compare_trek150(folder: Path, random: np.random.Generator, count: int) -> float:
    """Measures of single runs; the parts of the toolkit that download and draw are left out."""
    stub("toolkit", folder / "toolkit")
    stub("toolkit.utils", folder / "toolkit" / "utils")
    stub("toolkit.experiments", folder / "toolkit" / "experiments")
    stub("toolkit.datasets", TREK150=None)
    stub("toolkit.utils.viz", show_frame=None)
    stub("toolkit.utils.ioutils", compress_file=None)
    stub("shapely.geometry", box=None, Polygon=None)
    stub("shapely")
    experiment_class = importlib.import_module("toolkit.experiments.trek150").ExperimentTREK150
    experiment = experiment_class.__new__(experiment_class)
    experiment.nbins_iou, experiment.nbins_ce, experiment.nbins_nce, experiment.nbins_gsr = 21, 51, 51, 51
    worst = 0.0
    for _ in range(count):
        length = int(random.integers(2, 60))
        truth = np.concatenate(
            [random.uniform(0, 300, (length, 2)), random.uniform(0, 80, (length, 2))], 1
        ).round(1)
        boxes = truth + random.normal(0, random.choice([0, 1, 10]), truth.shape).round(1)
        boxes[:, 2:] = np.abs(boxes[:, 2:])
        truth[1:][random.random(length - 1) < 0.2] = -1
        (run,) = TrekSequence("s", folder, truth, frozenset(), (), ()).runs("ope")
        ours = trek150.score_run(run, boxes)
        assert ours is not None
        given = boxes.copy()
        given[0] = truth[0]
        ious, errors = experiment._calc_metrics(given, truth)
        success, precision = experiment._calc_curves(ious, errors)
        theirs = (success.mean(), precision.mean(), experiment._calc_curves_robustness(ious).mean())
        mine = (ours.success, ours.normalized_precision, ours.robustness)
        worst = max(worst, float(np.abs(np.subtract(mine, theirs)).max()))
    print(f"  {count} runs, largest difference of SS, NPS, GSR: {worst:.3g}")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--official", type=Path, required=True, metavar="DIR")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    roots = [options.official, *sorted(p for p in options.official.iterdir() if p.is_dir())]
    found = {
        "VQ2D": (compare_vq2d, "VQ2D", "vq2d/metrics/metrics.py"),
        "TREK-150": (compare_trek150, ".", "toolkit/experiments/trek150.py"),
    }
    compared = 0
    for title, (compare, inside, file) in found.items():
        folder = next((root / inside for root in roots if (root / inside / file).exists()), None)
        if folder is None:
            print(f"{title}: no checkout under {options.official}")
            continue
        print(f"{title}: {folder}")
        worst = compare(folder.resolve(), random, options.queries)
        compared += 1
        if worst > TOLERANCE:
            raise SystemExit(f"{title} differs by {worst:.3g}")
    if not compared:
        raise SystemExit("Nothing to compare: give a folder with a checkout, see --help.")
    print("equal")


if __name__ == "__main__":
    main()
