"""Our measures against the benchmarks' own code, on the same random tracks.

    python benchmarks/parity_official.py --official DIR

DIR holds checkouts: of github.com/EGO4D/episodic-memory, for VQ2D, VQ3D and EgoTracks (whose evaluation is
only on its branch egotracks_eval: `git checkout 44b9510`), and of
github.com/matteo-dunnhofer/TREK-150-toolkit. The official code needs pandas, tqdm and Pillow; it was written
for an older NumPy, whose names `np.float` and `np.int` are put back while it runs. EgoTracks' evaluation is
run whole, from results to figures, over every frame of the clips; only what downloads, trains or reads videos
is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import pickle
import runpy
import sys
import tempfile
import types
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d_3d import read_vq3d, world_from_annotation
from egohieraloc.data.egotracks import TrackingQuery
from egohieraloc.data.trek150 import PROTOCOLS, read_trek150
from egohieraloc.evaluation import egotracks, trek150, vq2d, vq3d
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.types import Box

TOLERANCE = 1e-9
FLOAT32 = {"hoi recall": 1e-6}  # the toolkit averages it in single precision
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
    """F, precision, recall and average overlap of trackers that answer 5 frames a second of clips at 30.

    Some truth lies off that grid, some scores are negative, some frames have no prediction.
    """
    clips = [random_clip(random, number) for number in range(count)]
    queries = [query for query, _, _ in clips]
    answers = {answer.key: answer for _, answer, _ in clips}
    lengths = {query.key.clip: length for query, _, length in clips}
    theirs = official_egotracks(folder, clips)
    ours = egotracks.report_egotracks(queries, answers, lengths)
    return worst_of(
        {
            "F": (ours.by_sequence.f_score, theirs["F1"]),
            "precision": (ours.by_sequence.precision, theirs["precision_score"]),
            "recall": (ours.by_sequence.recall, theirs["re_score"]),
            "AO": (ours.average_overlap, theirs["AO"]),
        }
    )


def random_clip(random: np.random.Generator, number: int) -> tuple[TrackingQuery, TrackAnswer, int]:
    """A query, its answer and the number of frames of its clip."""
    length = int(random.integers(20, 400))
    crop = int(random.integers(0, length))
    others = np.delete(np.arange(length), crop)
    seen = np.sort(np.append(random.choice(others, random.integers(1, len(others) + 1), replace=False), crop))
    true = random.uniform(5, 50, (length, 4)).round(1)
    frames = np.arange(crop % 6, length, 6)
    frames = frames[(random.random(len(frames)) < 0.9) | (frames == crop)]
    noise = random.normal(0, random.choice([0.0, 2, 20]), (len(frames), 4)).round(1)
    moved = np.maximum(true[frames] + noise, 1)
    score = (random.random(len(frames)) - random.choice([0.0, 0.5])).round(3)
    key = QueryKey(f"clip-{number}", "#0", "1")
    track = Track(seen, corners(true[seen]))
    query = TrackingQuery(key, "cup", crop, Box.from_xywh(*true[crop].tolist()), track)
    return query, TrackAnswer(key, Track(frames, corners(moved)), 1.0, frame_scores=score), length


def official_egotracks(folder: Path, clips: list[tuple[TrackingQuery, TrackAnswer, int]]) -> dict[str, Any]:
    """What the official evaluation makes of these answers; it reads them from a file."""
    sequences, results = [], {}
    for query, answer, length in clips:
        assert query.truth is not None
        assert answer.frame_scores is not None
        boxes = dict(zip(query.truth.frames.tolist(), xywh(query.truth.boxes_xyxy).tolist(), strict=True))
        sequences.append(
            types.SimpleNamespace(
                name=query.sequence_name,
                frames=[""] * length,
                visual_crop={query.crop_frame: boxes[query.crop_frame]},
                gt_bbox_dict=boxes,
            )
        )
        found = zip(
            answer.track.frames.tolist(),
            xywh(answer.track.boxes_xyxy).tolist(),
            answer.frame_scores.tolist(),
            strict=True,
        )
        rows = [{"frame_number": n, "bbox": box, "score": score, "type": "pred"} for n, box, score in found]
        results[query.sequence_name] = {"pred_bboxes": rows}
    for name in ("tracking", "tracking.metrics", "tracking.utils", "tools", "tools.eval_datasets"):
        stub(name, folder / Path(*name.split(".")))
    stub("detectron2")
    stub("detectron2.utils", comm=None)
    stub("detectron2.utils.comm")
    for name in ("tracking.dataset", "tracking.dataset.eval_datasets", "tracking.tools"):
        stub(name)
    stub("tracking.tools.annotation")
    stub("tracking.tools.annotation.annotation_utils", seperate_occurrances=None)
    stub("tracking.utils.meters", AverageMeter=None, ProgressMeter=None)
    stub("tracking.utils.utils", opencv_loader=None)
    dataset = "tracking.dataset.eval_datasets.ego4d_lt_tracking_dataset"
    stub(dataset, EGO4DLTTrackingDataset=lambda *_, **__: sequences)
    stub("tracking.utils.env", pathmgr=types.SimpleNamespace(ls=os.listdir, open=open))
    official = importlib.import_module("tools.eval_datasets.eval_ego4d_lt_tracking")
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stderr(io.StringIO()):
        settings = {"TRACK_MODE": "m", "USE_VISUAL_CLIP": False, "ANNOTATION_PATH": "", "DATA_DIR": ""}
        ego4d = types.SimpleNamespace(**settings, EVAL_RATIO=1.0)
        config = types.SimpleNamespace(
            OUTPUT_DIR=temporary,
            MODEL_TYPE="m",
            EVAL=types.SimpleNamespace(EGO4DLT=ego4d),
            MODEL=types.SimpleNamespace(WEIGHTS=""),
        )
        written = Path(temporary, "eval", "EGO4DLTTracking", "m", "m", "intermediate_result", "all.pkl")
        written.parent.mkdir(parents=True)
        written.write_bytes(pickle.dumps(results))
        figures: dict[str, Any] = official.calculate_ego4d_lt_tracking_metrics(config)
    return figures


def compare_vq3d(folder: Path, random: np.random.Generator, count: int) -> float:
    """The evaluation script as it is, on a file like that of the official baseline: vectors without poses."""
    queries = [random_place(random) for _ in range(count)]
    clip = {"clip_uid": "clip", "annotations": [{"query_sets": {str(n): q for n, q in enumerate(queries)}}]}
    content = {"videos": [{"video_uid": "v", "split": "val", "scan_uid": "room", "clips": [clip]}]}
    sys.path[:0] = [str(folder / "VQ3D" / "API"), str(folder / "annotation_API" / "API")]
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(io.StringIO()) as shown:
        path = Path(temporary, "results.json")
        path.write_text(json.dumps(content))
        words, sys.argv = sys.argv, ["eval.py", "--vq3d_results", str(path)]
        runpy.run_path(str(folder / "VQ3D" / "scripts" / "eval.py"), run_name="__main__")
        sys.argv = words
        ours = vq3d.score(list(read_vq3d(path)), vq3d.read_vq3d_predictions(path))
    lines = [line.rpartition(":") for line in shown.getvalue().splitlines() if ":" in line]
    theirs = {name.strip(): float(value) for name, _, value in lines}
    pairs = {
        "L2": (ours.distance_m, theirs["L2"]),
        "angle": (ours.angle_1_rad, theirs["angular"]),
        "Succ*": (ours.success_star, theirs["Success*"]),
        "Succ": (ours.success, theirs["Success"]),
        "QwP": (ours.coverage, theirs["QwP ratio"]),
    }
    return worst_of({name: (float(a or 0), b) for name, (a, b) in pairs.items()})


def random_place(random: np.random.Generator) -> dict[str, Any]:
    """A query set with two boxes; some have a predicted point, and of these some a vector."""
    centers = random.normal(0, 2, 3) + random.normal(0, 0.3, (2, 3))
    boxes = [
        {
            "position": dict(zip("xyz", center.tolist(), strict=True)),
            "dimension": dict(zip("xyz", random.uniform(0.1, 1.5, 3).tolist(), strict=True)),
            "rotation": dict.fromkeys("xyz", 0.0),
        }
        for center in centers
    ]
    truth = world_from_annotation(centers)
    query: dict[str, Any] = {"3d_annotation_1": boxes[0], "3d_annotation_2": boxes[1]}
    query |= {f"gt_3d_vec_world_{k + 1}": truth[k].tolist() for k in range(2)}
    if random.random() < 0.9:
        query["pred_3d_vec_world"] = (truth[0] + random.normal(0, 3, 3)).tolist()
        if random.random() < 0.8:
            query["pred_3d_vec"] = random.normal(0, 2, 3).tolist()
            query |= {f"gt_3d_vec_{k + 1}": random.normal(0, 2, 3).tolist() for k in range(2)}
    return query


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
    module = importlib.import_module("toolkit.experiments.trek150")
    experiment = module.ExperimentTREK150.__new__(module.ExperimentTREK150)  # its __init__ would download
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
            # It writes NumPy's numbers, which JSON refuses since NumPy 2 no longer makes them Python's.
            vars(module)["json"] = types.SimpleNamespace(dump=partial(json.dump, default=float))
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


def xywh(boxes_xyxy: Any) -> Any:
    return np.concatenate([boxes_xyxy[:, :2], boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]], 1)


def stub(name: str, *paths: Path, **attributes: Any) -> None:
    """Put an empty module, or a package whose __init__ is not run, in the place of a real one."""
    module = types.ModuleType(name)
    module.__path__ = [str(path) for path in paths]
    vars(module).update(attributes)
    sys.modules[name] = module


def worst_of(pairs: Mapping[str, tuple[float, float]]) -> float:
    """Print both values of each measure; the largest difference, relative to the measure's own tolerance."""
    for name, (ours, theirs) in pairs.items():
        print(f"  {name:24s} ours {ours:.12f}   official {theirs:.12f}")
    scale = {name: TOLERANCE / FLOAT32.get(name, TOLERANCE) for name in pairs}
    return max(scale[name] * abs(ours - float(theirs)) for name, (ours, theirs) in pairs.items())


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
        "VQ3D": (compare_vq3d, "VQ3D", "VQ3D/scripts/eval.py"),
        "EgoTracks": (compare_egotracks, "EgoTracks", "tools/eval_datasets/eval_ego4d_lt_tracking.py"),
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
