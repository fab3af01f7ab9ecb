import json
import os
from pathlib import Path

import numpy as np
import pytest

from egohieraloc.errors import DataError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.ego4d import read_clip_poses, read_scan_camera, submission_entry
from egohieraloc.types import Localization3D, NotLocalized

CAMERA = Camera("RADIAL_FISHEYE", 1920, 1080, (1000.0, 960.0, 540.0, 0.0, 0.0))


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_official_poses_are_cam_from_world(tmp_path):
    turned = np.array([[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3]])
    broken = np.zeros((3, 4))
    clips = {
        "clip": {
            "good_poses": [True, False, True],
            "camera_poses": [turned.tolist(), turned.tolist(), broken.tolist()],
        }
    }
    found = read_clip_poses(write(tmp_path / "poses.json", clips), "clip", CAMERA)
    assert (found.unit, found.num_posed, len(found.frames)) == ("m", 1, 3)
    assert found.frames[2].time_s == pytest.approx(0.4)
    np.testing.assert_allclose(found.poses[0].to_cam([1.0, 0, 0]), [1, 3, 3])


@pytest.mark.parametrize(
    "value",
    [{}, [], {"clip": {"good_poses": [True]}}, {"clip": {"good_poses": [True], "camera_poses": []}}],
)
def test_missing_poses_say_what_is_wanted(tmp_path, value):
    with pytest.raises(DataError, match="has no poses for clip clip"):
        read_clip_poses(write(tmp_path / "poses.json", value), "clip", CAMERA)
    with pytest.raises(DataError, match="Cannot read"):
        read_clip_poses(tmp_path / "absent.json", "clip", CAMERA)


def test_scan_intrinsics(tmp_path):
    value = {"scan": {"('1920', '1080')": {"f": 900, "cx": 960, "cy": 540, "k1": 0.1, "k2": -0.01}}}
    path = write(tmp_path / "intrinsics.json", value)
    camera = read_scan_camera(path, "scan", width=1920, height=1080)
    assert camera == Camera("RADIAL_FISHEYE", 1920, 1080, (900.0, 960.0, 540.0, 0.1, -0.01))
    with pytest.raises(DataError, match="at 640x480; it knows"):
        read_scan_camera(path, "scan", width=640, height=480)


def test_submission_entry_holds_together(tmp_path):
    matrix = [[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3]]
    path = write(tmp_path / "poses.json", {"clip": {"good_poses": [True], "camera_poses": [matrix]}})
    poses = read_clip_poses(path, "clip", CAMERA)
    point = np.array([0.5, -1, 2.0])
    answer = Localization3D(point, poses.poses[0].to_cam(point), np.eye(3), "m", 1, 1, 0)
    entry = json.loads(json.dumps(submission_entry(answer, poses)))
    product = np.array(entry["query_frame_pose"]) @ [*entry["pred_3d_vec_world"], 1]
    np.testing.assert_allclose(product[:3], entry["pred_3d_vec_query_frame"])
    assert set(submission_entry(NotLocalized("why"), poses).values()) == {None}


@pytest.mark.skipif("EGOHIERALOC_DATA" not in os.environ, reason="needs EGOHIERALOC_DATA")
def test_published_predictions_use_the_same_direction():
    """In the accepted EgoLoc file the vector in the query camera is pose @ world, not its inverse."""
    path = Path(os.environ["EGOHIERALOC_DATA"]) / "fixtures" / "vq3d_val_published_predictions.json"
    videos = json.loads(path.read_text())["videos"]
    annotations = [a for video in videos for clip in video["clips"] for a in clip["annotations"]]
    checked = 0
    for query in (query for annotation in annotations for query in annotation.get("query_sets", {}).values()):
        if query.get("query_frame_pose") and query.get("mp_pred_3d_vec_query_frame"):
            pose = CameraPose(np.array(query["query_frame_pose"])[:3])
            seen = pose.to_cam(query["mp_pred_3d_vec_world"])
            np.testing.assert_allclose(seen, query["mp_pred_3d_vec_query_frame"], atol=1e-6)
            checked += 1
    assert checked > 100
