"""The script that runs the official code, on stand-ins that have its modules, names and argument shapes.

What it was read from: VQ2D/vq2d and EgoTracks/tools of EGO4D/episodic-memory, and TREK-150-toolkit. The
stand-ins compute in their own slow way, so the script must come to "equal" with them.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "parity_official.py"
STRUCTURES = """
class BBox:
    def __init__(self, fno, x1, y1, x2, y2):
        self.fno, self.corners = fno, (x1, y1, x2, y2)

class ResponseTrack:
    def __init__(self, bboxes, score=None):
        self.bboxes, self.score = bboxes, score
"""
METRICS = """
from test_score_vq2d import slow_scores

def compute_visual_query_metrics(predicted, truths, crops, accessed=None, total=None):
    print("Encountered empty track")
    assert len(crops) == len(truths) and all(truth.score is None for truth in truths)
    tracks = [[{box.fno: box.corners for box in t.bboxes} for t in (truth, *found)]
              for truth, found in zip(truths, predicted, strict=True)]
    found = slow_scores([(*pair, one.score) for pair, (one,) in zip(tracks, predicted, strict=True)])
    names = {"tap": ("Temporal AP", "0.25:0.95"), "tap25": ("Temporal AP", "0.25"),
             "stap": ("SpatioTemporal AP", "0.25:0.95"), "stap25": ("SpatioTemporal AP", "0.25"),
             "success": ("Success (max scr)", "0.05"), "recovery": ("Tracking % recovery (max scr)", "0.50")}
    return {"all": {f"{title:30s} {'@ IoU=' + at:15s}": float(found[name]) + WRONG * (name == "tap")
                    for name, (title, at) in names.items()}}
"""
LONG_TERM = """
import os, pickle
import detectron2.utils.comm as comm
import numpy as np
from tracking.dataset.eval_datasets.ego4d_lt_tracking_dataset import EGO4DLTTrackingDataset
from tracking.tools.annotation.annotation_utils import seperate_occurrances
from tracking.utils.bbox_helper import iou
from tracking.utils.env import pathmgr
from test_score_egotracks import slow_curves, slow_thresholds
from egohieraloc.evaluation.egotracks import SequenceOverlaps

def calculate_ego4d_lt_tracking_metrics(cfg):
    chosen = cfg.EVAL.EGO4DLT
    folder = os.path.join(cfg.OUTPUT_DIR, "eval", "EGO4DLTTracking", chosen.TRACK_MODE, cfg.MODEL_TYPE)
    folder = os.path.join(folder, "intermediate_result")
    found = {}
    for file in pathmgr.ls(folder):
        found.update(pickle.load(pathmgr.open(os.path.join(folder, file), "rb")))
    sequences = []
    for seq in EGO4DLTTrackingDataset(chosen.DATA_DIR, chosen.ANNOTATION_PATH, ratio=chosen.EVAL_RATIO):
        rows = {row["frame_number"]: row for row in found[seq.name]["pred_bboxes"]}
        truth = {n: b for n, b in seq.gt_bbox_dict.items() if n not in seq.visual_crop}
        frames = range(len(seq.frames))
        overlap = [iou(truth[n], rows[n]["bbox"]) if n in rows and n in truth else 0.0 for n in frames]
        score = [rows[n]["score"] if n in rows else 0.0 for n in frames]
        seen = np.array([n in truth for n in frames])
        sequences.append(SequenceOverlaps(np.array(overlap), seen, np.array(score)))
    points = slow_curves(sequences, slow_thresholds(sequences))
    best = max((2 * p * r / (p + r), p, r) for p, r in points)
    overlaps = np.mean([s.iou[s.visible].mean() for s in sequences])
    return {"F1": best[0], "precision_score": best[1], "re_score": best[2], "AO": overlaps}
"""
PLACES = """
import argparse, json, math
from metrics import far

parser = argparse.ArgumentParser()
parser.add_argument("--vq3d_results")
(clip,) = json.load(open(parser.parse_args().vq3d_results))["videos"][0]["clips"]
sets = clip["annotations"][0]["query_sets"]
found = [q for q in sets.values() if "pred_3d_vec_world" in q]
seen = [q for q in found if "pred_3d_vec" in q]

def right(q):
    one, other = ([q[f"3d_annotation_{k}"]["position"][axis] for axis in "xyz"] for k in (1, 2))
    sizes = [math.hypot(*q[f"3d_annotation_{k}"]["dimension"].values()) for k in (1, 2)]
    middle = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
    turned = [middle[1], -middle[0], middle[2]]
    return far(turned, q["pred_3d_vec_world"]) < 6 * (far(one, other) + math.exp(-sum(sizes) / 2))

def angle(a, b):
    return math.acos(sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b))

print("total number of queries: ", len(sets))
print("L2: ", sum(far(q["pred_3d_vec_world"], q["gt_3d_vec_world_1"]) for q in found) / len(found))
print("angular: ", sum(angle(q["pred_3d_vec"], q["gt_3d_vec_1"]) for q in seen) / len(seen))
print("Success* : ", 100 * sum(map(right, found)) / len(found))
print("Success : ", 100 * sum(map(right, seen)) / len(sets))
print("QwP ratio : ", 100 * len(seen) / len(sets))
"""
BOX_HELPER = """
def iou(a, b):
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    common = max(width, 0) * max(height, 0)
    return common / (a[2] * a[3] + b[2] * b[3] - common)
"""
TOOLKIT = """
import json
import os
import numpy as np
from ..datasets import TREK150
from ..utils.viz import show_frame
from ..utils.ioutils import compress_file
from egohieraloc.data.base import QueryKey
from egohieraloc.data.trek150 import TrekRun
from egohieraloc.evaluation.trek150 import score_run

class ExperimentTREK150:
    def __init__(self):
        raise RuntimeError("this would download")

    def run_score(self, name, truth):
        boxes = np.loadtxt(os.path.join(self.result_dir, "ours", name), delimiter=",")
        run = TrekRun(QueryKey("s", "", ""), np.arange(len(truth)), truth, (truth >= 0).any(1))
        found = score_run(run, boxes)
        return np.array([found.success, found.normalized_precision, found.robustness, found.recall])

    def rows(self, name, file):
        return np.loadtxt(os.path.join(self.root_dir, name, file), delimiter=",", ndmin=2).astype(int)

    def overall(self, values, recall=False):
        names = ("success", "normalized_precision", "generalized_success_robustness", "recall")
        pairs = zip(names, values, strict=True)
        found = {f"{n}_score": float(v) for n, v in pairs if recall or n != "recall"}
        return {"ours": {"overall": found}}

    def report_ope(self, names):
        self.plot_curves(names)
        sequences = enumerate(self.dataset)
        return self.overall(np.mean([
            self.run_score(f"ope/{self.dataset.seq_names[s]}.txt", truth) for s, (_, truth) in sequences
        ], axis=0))

    def report_mse(self, names):
        total = weight = 0
        for s, (_, truth) in enumerate(self.dataset):
            name, own, frames = self.dataset.seq_names[s], 0, 0
            for anchor, backwards in self.rows(name, "anchors.txt"):
                part = truth[: anchor + 1][::-1] if backwards else truth[anchor:]
                own = own + len(part) * self.run_score(f"mse/{name}-anchor-{anchor}.txt", part)
                frames += len(part)
            total, weight = total + len(truth) * own / frames, weight + len(truth)
        return self.overall(total / weight)

    def report_hoi(self, names):
        total = weight = 0
        for s, (_, truth) in enumerate(self.dataset):
            name = self.dataset.seq_names[s]
            for first, last, hand in self.rows(name, "anchors_hoi.txt"):
                part = truth[first : last + 1]
                total = total + len(part) * self.run_score(f"hoi/{name}-hoi-{first}-{last}-{hand}.txt", part)
                weight += len(part)
        found = self.overall(total / weight, recall=True)
        found["ours"]["overall"]["recall_score"] = np.float32(found["ours"]["overall"]["recall_score"])
        with open(os.path.join(self.root_dir, "performance-hoi.json"), "w") as file:
            json.dump(found, file)
        return found
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Stand-ins for both repositories; what importing them leaves behind is taken away again."""
    files = {
        "episodic-memory/VQ2D/vq2d/structures.py": STRUCTURES,
        "episodic-memory/VQ2D/vq2d/metrics/metrics.py": "WRONG = 0.0\n" + METRICS,
        "episodic-memory/VQ3D/VQ3D/scripts/eval.py": PLACES,
        "episodic-memory/VQ3D/VQ3D/API/metrics.py": "from math import dist as far",
        "episodic-memory/EgoTracks/tools/eval_datasets/eval_ego4d_lt_tracking.py": LONG_TERM,
        "episodic-memory/EgoTracks/tracking/utils/bbox_helper.py": BOX_HELPER,
        "TREK-150-toolkit/toolkit/experiments/trek150.py": TOOLKIT,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("float", "int"):
        monkeypatch.setitem(vars(np), name, None)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("vq2d", "metrics", "tracking", "tools", "detectron2", "toolkit", "shapely"):
            del sys.modules[name]


def run(monkeypatch, *words):
    spec = importlib.util.spec_from_file_location("parity_official", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["parity_official.py", *map(str, words)])
    script.main()


def test_every_benchmark_is_compared(checkout, monkeypatch, capsys):
    run(monkeypatch, "--official", checkout, "--queries", 40)
    shown = capsys.readouterr().out
    assert [line.split(":")[0] for line in shown.splitlines() if line[0] != " "] == [
        "VQ2D",
        "VQ3D",
        "EgoTracks",
        "TREK-150",
        "equal",
    ]
    for measure in ("stap25", "AO", "ope success", "mse robustness", "hoi recall"):
        assert measure in shown
    assert "Encountered" not in shown


def test_a_difference_is_told(checkout, monkeypatch):
    path = checkout / "episodic-memory/VQ2D/vq2d/metrics/metrics.py"
    path.write_text(path.read_text().replace("WRONG = 0.0", "WRONG = 1e-6"))
    with pytest.raises(SystemExit, match="VQ2D differs by 1e-06"):
        run(monkeypatch, "--official", checkout, "--queries", 10)


def test_nothing_to_compare(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="Nothing to compare"):
        run(monkeypatch, "--official", tmp_path)
    with pytest.raises(SystemExit, match="There is no folder"):
        run(monkeypatch, "--official", tmp_path / "no")
