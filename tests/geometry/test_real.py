"""Seven labelled objects of a real walk with true poses and sensor depth (needs EGOHIERALOC_DATA)."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.depth import read_depth_folder
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.types import Box, FramePrediction, Localization3D

DATA = Path(os.environ.get("EGOHIERALOC_DATA", "absent")) / "data" / "hololens"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs EGOHIERALOC_DATA")


def true_walk() -> Reconstruction:
    lens = json.loads((DATA / "intrinsics.json").read_text())
    params = (lens["fx"], lens["fy"], lens["cx"] + 0.5, lens["cy"] + 0.5)  # its pixel centres are integers
    rows = np.loadtxt(DATA / "poses.txt")
    frames = tuple(
        PosedFrame(
            int(row[0]),
            row[0] / 5,
            CameraPose.from_rotation(Rotation.from_quat(row[4:]).as_matrix(), row[1:4]),
        )
        for row in rows
    )
    return Reconstruction(Camera("PINHOLE", lens["width"], lens["height"], params), frames, "m")


@pytest.mark.parametrize(("with_depth", "limit_m"), [(True, 0.08), (False, 0.15)])
def test_objects_are_where_they_are(with_depth, limit_m):
    walk, errors = true_walk(), []
    for target in json.loads((DATA / "objects.json").read_text())["objects"]:
        boxes = {
            int(i): Box(*(v + 0.5 for v in box)) for i, box in target["last_appearance"]["boxes"].items()
        }
        track = [FramePrediction(i, i, i / 5, 1.0, box) for i, box in boxes.items()]
        depth = read_depth_folder(DATA / "depth", boxes) if with_depth else None
        answer = place(track, walk, query_time_s=372 / 5, depth=depth)
        found = isinstance(answer, Localization3D)
        errors.append(np.linalg.norm(answer.point_world - target["center_world"]) if found else np.inf)
    assert np.median(errors) < limit_m, errors
