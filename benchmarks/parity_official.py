"""Our measures against the benchmarks' own code, on the same random tracks.

    python benchmarks/parity_official.py --official DIR

DIR holds checkouts: of github.com/EGO4D/episodic-memory, for VQ2D and EgoTracks (whose metric file is only in
its history: `git checkout 9df957b -- EgoTracks/build`), and of github.com/matteo-dunnhofer/TREK-150-toolkit.
The official code needs pandas, tqdm and Pillow; it was written for an older NumPy, whose names `np.float` and
`np.int` are put back while it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.egotracks import TrackingQuery
from egohieraloc.data.trek150 import PROTOCOLS, read_trek150
from egohieraloc.evaluation import egotracks, trek150, vq2d
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.types import Box

TOLERANCE = 1e-9
NAMES = {
    "tap": "Temporal AP                    @ IoU=0.25:0.95",
    "tap25": "Temporal AP                    @ IoU=0.25     ",
    "stap": "SpatioTemporal AP              @ IoU=0.25:0.95",
    "stap25": "SpatioTemporal AP              @ IoU=0.25     ",
    "success": "Success (max scr)              @ IoU=0.05     ",
    "recovery": "Tracking % recovery (max scr)  @ IoU=0.50     ",
}
TREK_NAMES = {
    "success": "success_score",
    "normalized_precision": "normalized_precision_score",
    "robustness": "generalized_success_robustness_score",
    "recall": "recall_score",
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
    metrics = importlib.import_module("vq2d.metrics.metrics")
    structures = importlib.import_module("vq2d.structures")

    def track(ours: Track, score: float | None) -> Any:
        rows = zip(ours.frames.tolist(), ours.boxes_xyxy.tolist(), strict=True)
        return structures.ResponseTrack([structures.BBox(frame, *box) for frame, box in rows], score)

    queries = random_queries(random, count)
    crops = [structures.BBox(0, 0, 0, 10, 10)] * count
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a line for every empty track
        theirs = metrics.compute_visual_query_metrics(
            [[track(answer, score)] for _, answer, score in queries],
            [track(truth, None) for truth, _, _ in queries],
            crops,
        )["all"]
    ours = vq2d.score(vq2d.measure(queries))
    return worst_of({name: (getattr(ours, name), theirs[title]) for name, title in NAMES.items()})


def compare_egotracks(folder: Path, random: np.random.Generator, count: int) -> float:
    """F, precision, recall and average overlap of sequences with a prediction in every frame."""
    for name in ("tracking", "tracking.metrics", "tracking.utils"):
        inside = Path(*name.split("."))
        stub(name, folder / inside, folder.parents[1] / inside)
    official = importlib.import_module("tracking.metrics.lt_tracking_metrics")
    queries, answers, lengths = [], {}, {}
    scores, boxes, truths, overlaps = [], [], [], []
    for number in range(count):
        length, crop = int(random.integers(2, 60)), int(random.integers(0, 6))
        frames = crop + 6 * np.arange(length)
        seen = np.unique(np.append(random.permutation(length)[: random.integers(1, length + 1)], [0, 1]))
        true = random.uniform(5, 50, (length, 4)).round(1)
        noise = random.normal(0, random.choice([0.0, 2, 20]), true.shape).round(1)
        moved = np.maximum(true + noise, 1)
        score = random.random(length).round(3)
        key = QueryKey(f"clip-{number}", "#0", "1")
        track = Track(frames[seen], corners(true[seen]))
        queries.append(TrackingQuery(key, "", int(frames[0]), Box.from_xywh(*true[0].tolist()), track))
        answers[key] = TrackAnswer(key, Track(frames, corners(moved)), 1.0, frame_scores=score)
        lengths[key.clip] = int(frames[-1]) + 1
        given = [true[i].tolist() if i in seen and i > 0 else None for i in range(length)]
        scores.append(score.tolist())
        boxes.append(moved.tolist())
        truths.append(given)
        pairs = [(p, t) for p, t in zip(moved.tolist(), given, strict=True) if t is not None]
        overlaps.append(np.mean(official.compute_overlaps(*zip(*pairs, strict=True))))
    with contextlib.redirect_stderr(io.StringIO()):
        curves = official.compute_precision_and_recall(scores, boxes, truths)
    f_score, precision, recall = official.compute_f_score(*curves)
    ours = egotracks.report_egotracks(queries, answers, lengths)
    return worst_of(
        {
            "F": (ours.by_sequence.f_score, f_score),
            "precision": (ours.by_sequence.precision, precision),
            "recall": (ours.by_sequence.recall, recall),
            "AO": (ours.average_overlap, float(np.mean(overlaps))),
        }
    )


def compare_trek150(folder: Path, random: np.random.Generator, count: int) -> float:
    """All three protocols, from files; the parts of the toolkit that download and draw are left out."""
    stub("toolkit", folder / "toolkit")
    stub("toolkit.utils", folder / "toolkit" / "utils")
    stub("toolkit.experiments", folder / "toolkit" / "experiments")
    stub("toolkit.datasets", TREK150=None)
    stub("toolkit.utils.viz", show_frame=None)
    stub("toolkit.utils.ioutils", compress_file=None)
    stub("shapely", geometry=None)
    stub("shapely.geometry", box=None, Polygon=None)
    experiment_class = importlib.import_module("toolkit.experiments.trek150").ExperimentTREK150
    experiment = experiment_class.__new__(experiment_class)  # its __init__ would download
    experiment.nbins_iou, experiment.nbins_ce, experiment.nbins_nce, experiment.nbins_gsr = 21, 51, 51, 51
    experiment.plot_curves = lambda names: None
    with tempfile.TemporaryDirectory() as temporary:
        root, results = Path(temporary) / "data", Path(temporary) / "results"
        write_trek150(root, results / "ours", random, max(count // 20, 2))
        sequences = list(read_trek150(root))
        experiment.dataset = TrekDataset([s.name for s in sequences], [s.truth_xywh for s in sequences])
        experiment.root_dir, experiment.result_dir = str(root), str(results)
        experiment.report_dir = str(Path(temporary) / "reports")
        worst = 0.0
        for protocol in PROTOCOLS:
            boxes = trek150.read_trek150_predictions(results / "ours", sequences, protocol)
            ours = trek150.report_trek150(sequences, protocol, boxes).overall
            with contextlib.redirect_stdout(io.StringIO()):
                theirs = getattr(experiment, f"report_{protocol}")(["ours"])["ours"]["overall"]
            pairs = {
                f"{protocol} {name}": (getattr(ours, name), theirs[title])
                for name, title in TREK_NAMES.items()
                if title in theirs
            }
            worst = max(worst, worst_of(pairs))
    return worst


class TrekDataset:
    """What the toolkit's report needs of its dataset."""

    def __init__(self, names: list[str], truths: list[Any]) -> None:
        self.seq_names, self.truths = names, truths

    def __len__(self) -> int:
        return len(self.truths)

    def __getitem__(self, index: int) -> tuple[None, Any]:
        return None, self.truths[index]


def write_trek150(root: Path, results: Path, random: np.random.Generator, count: int) -> None:
    """Sequences with invisible frames, anchors both ways and interactions, and a tracker's files for them."""
    for number in range(count):
        folder = root / f"P{number:03d}"
        folder.mkdir(parents=True)
        length = int(random.integers(8, 60))
        sizes = random.uniform(0, 80, (length, 2))
        truth = np.concatenate([random.uniform(0, 300, (length, 2)), sizes], 1).round(1)
        starts = random.choice(np.arange(1, length - 1), 3, replace=False).tolist()
        hidden = random.random(length) < 0.2
        hidden[[0, *starts]] = False
        truth[hidden] = -1
        np.savetxt(folder / "groundtruth_rect.txt", truth, "%.1f", ",")
        anchors = [(0, 0), (starts[0], 1), (starts[1], 0)]
        np.savetxt(folder / "anchors.txt", anchors, "%d", ",")
        np.savetxt(folder / "anchors_hoi.txt", [(starts[2], length - 1, number % 3)], "%d", ",")
    for sequence in read_trek150(root):
        for protocol in PROTOCOLS:
            (results / protocol).mkdir(parents=True, exist_ok=True)
            for run in sequence.runs(protocol):
                boxes = run.truth_xywh + random.normal(0, random.choice([0.0, 1, 10]), run.truth_xywh.shape)
                boxes[:, 2:] = np.abs(boxes[:, 2:])
                np.savetxt(results / protocol / f"{trek150.result_name(run.key)}.txt", boxes, "%.3f", ",")


def corners(boxes_xywh: Any) -> Any:
    return np.concatenate([boxes_xywh[:, :2], boxes_xywh[:, :2] + boxes_xywh[:, 2:]], 1)


def stub(name: str, *paths: Path, **attributes: Any) -> None:
    """Put an empty module, or a package whose __init__ is not run, in the place of a real one."""
    module = types.ModuleType(name)
    module.__path__ = [str(path) for path in paths]
    vars(module).update(attributes)
    sys.modules[name] = module


def worst_of(pairs: Mapping[str, tuple[float, float]]) -> float:
    """Print both values of each measure; the largest difference."""
    for name, (ours, theirs) in pairs.items():
        print(f"  {name:24s} ours {ours:.12f}   official {theirs:.12f}")
    return max(abs(ours - theirs) for ours, theirs in pairs.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--official", type=Path, required=True, metavar="DIR")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.official.is_dir():
        raise SystemExit(f"There is no folder {options.official}.")
    vars(np).update({"float": float, "int": int})
    roots = [options.official, *sorted(p for p in options.official.iterdir() if p.is_dir())]
    found = {
        "VQ2D": (compare_vq2d, "VQ2D", "vq2d/metrics/metrics.py"),
        "EgoTracks": (compare_egotracks, "EgoTracks/build/lib", "tracking/metrics/lt_tracking_metrics.py"),
        "TREK-150": (compare_trek150, ".", "toolkit/experiments/trek150.py"),
    }
    compared = 0
    for title, (compare, inside, file) in found.items():
        folder = next((root / inside for root in roots if (root / inside / file).exists()), None)
        if folder is None:
            print(f"{title}: no {inside}/{file} under {options.official}")
            continue
        print(f"{title}: {folder}")
        worst = compare(folder.resolve(), np.random.default_rng(options.seed), options.queries)
        compared += 1
        if not worst <= TOLERANCE:
            raise SystemExit(f"{title} differs by {worst:.3g}")
    if not compared:
        raise SystemExit("Nothing to compare: give a folder with a checkout, see --help.")
    print("equal")


if __name__ == "__main__":
    main()
