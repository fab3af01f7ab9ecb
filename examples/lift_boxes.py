"""Boxes of a tracker of your own, lifted to 3D: camera poses and boxes in, a point with its covariance out.

    python examples/lift_boxes.py [CAMERAS.json BOXES.csv]

BOXES.csv has the columns frame, time_s, x1, y1, x2, y2 and one appearance: a gap in the samples, which are
its rows here, would end it. Without arguments: the demo's true boxes and poses.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from egohieraloc import Box, FramePrediction, NotLocalized, demo
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import read_cameras

truth = demo.load_truth()
if len(sys.argv) > 2:
    cameras = read_cameras(sys.argv[1])
    with Path(sys.argv[2]).open(newline="") as file:
        rows = [
            (int(r["frame"]), *(float(r[k]) for k in ("time_s", "x1", "y1", "x2", "y2")))
            for r in csv.DictReader(file)
        ]
else:
    cameras = read_cameras(demo.FOLDER / "truth.json")
    first, last = truth.appearances[-1]
    samples = zip(truth.sample_frames[first : last + 1], truth.boxes[first : last + 1], strict=True)
    rows = [(frame, cameras.frames[frame].time_s, *box) for frame, box in samples if box]

predictions = [
    FramePrediction(frame, sample, time_s, 1.0, Box(*corners))
    for sample, (frame, time_s, *corners) in enumerate(rows)
]
found = place(predictions, cameras, query_time_s=cameras.frames[-1].time_s)
if isinstance(found, NotLocalized):
    raise SystemExit(f"No place: {found.reason}")
print(f"In the world: {np.round(found.point_world, 3)} {found.unit}, from {len(found.views)} views")
print(f"Seen from the last camera: {np.round(found.displacement, 3)}, {found.distance:.2f} {found.unit} away")
if len(sys.argv) < 3:
    print(f"The truth is {100 * np.linalg.norm(found.point_world - truth.target_center_world):.1f} cm away.")
