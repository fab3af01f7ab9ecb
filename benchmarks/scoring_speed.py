"""How long it takes to score 10,000 VQ2D queries of 60 boxes on one core, in memory and from files.

OMP_NUM_THREADS=1 python benchmarks/scoring_speed.py
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.predictions import read_vq2d_predictions

LIMIT_S = 5.0


def make_files(folder: Path, queries: int, boxes: int) -> tuple[Path, Path]:
    """Annotations and a challenge file with tracks near the true ones."""
    random = np.random.default_rng(0)
    annotated, predicted = [], []
    for number in range(queries):
        start, (x, y, w, h) = int(random.integers(0, 500)), random.uniform(20, 300, 4)
        shift, dx = int(random.integers(-20, 20)), float(random.normal(0, 20))
        track = [_box(start + i, x + i, y, w, h) for i in range(boxes)]
        found = [
            {"fno": start + shift + i, "x1": x + i + dx, "y1": y, "x2": x + i + dx + w, "y2": y + h}
            for i in range(boxes)
        ]
        crop = _box(start, x, y, w, h)
        query = {"is_valid": True, "query_frame": 600, "response_track": track, "visual_crop": crop}
        uid = f"a{number}"
        annotated.append({"query_sets": {"1": query}, "annotation_uid": uid})
        answer = {"bboxes": found, "score": float(random.random())}
        predicted.append({"query_sets": {"1": answer}, "annotation_uid": uid})
    parts = [slice(first, first + 100) for first in range(0, queries, 100)]
    videos = [
        {"video_uid": f"v{p.start}", "clips": [{"clip_uid": f"c{p.start}", "annotations": annotated[p]}]}
        for p in parts
    ]
    answers = [
        {"video_uid": f"v{p.start}", "clips": [{"clip_uid": f"c{p.start}", "predictions": predicted[p]}]}
        for p in parts
    ]
    annotations, predictions = folder / "vq.json", folder / "predictions.json"
    annotations.write_text(json.dumps({"version": "1", "videos": videos}))
    predictions.write_text(json.dumps({"version": "1", "results": {"videos": answers}}))
    return annotations, predictions


def _box(frame: int, x: float, y: float, w: float, h: float) -> dict[str, Any]:
    size = {"original_width": 1440, "original_height": 1080}
    return {"frame_number": frame, "x": x, "y": y, "width": w, "height": h, **size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--boxes", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        annotations, predictions = make_files(Path(folder), options.queries, options.boxes)
        begin = time.perf_counter()
        queries = [query for clip in read_vq2d(annotations) for query in clip.queries]
        answers = read_vq2d_predictions(predictions, queries)
        middle = time.perf_counter()
        found = vq2d.report_vq2d(queries, answers)
        end = time.perf_counter()
    print(f"{options.queries} queries of {options.boxes} boxes: success {found.own_score.success:.2f} %")
    print(f"read {middle - begin:.2f} s, score {end - middle:.2f} s (limit {LIMIT_S:.0f} s)")
    if end - middle > LIMIT_S:
        raise SystemExit("too slow")


if __name__ == "__main__":
    main()
