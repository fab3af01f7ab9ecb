"""Real recordings of Project Aria (EGOHIERALOC_ARIA: the folder `data` of projectaria_tools' repository)."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.errors import MissingExtraError, VideoError
from egohieraloc.geometry.device_depth import depth_of_device
from egohieraloc.memory.wall_clock import start_of
from egohieraloc.recorded import cameras_for, frame_table, recorded_cameras
from egohieraloc.types import Box
from egohieraloc.video.reader import Video

DATA = Path(os.environ.get("EGOHIERALOC_ARIA", "absent"))
TWIN = DATA / "gen1" / "aria_digital_twin_test_data"
real = pytest.mark.skipif(not DATA.exists(), reason="needs EGOHIERALOC_ARIA")


def test_what_is_no_recording_says_so(tmp_path, monkeypatch):
    path = tmp_path / "walk.vrs"
    path.write_bytes(b"no recording")
    with pytest.raises((VideoError, MissingExtraError), match=r"not a recording of Project Aria|\[aria\]"):
        Video.open(path)
    monkeypatch.setitem(sys.modules, "projectaria_tools.core.data_provider", None)
    with pytest.raises(MissingExtraError, match=r"\[aria\]"):
        Video.open(path)


@real
@pytest.mark.parametrize(
    ("name", "size", "count", "start"),
    [
        ("gen1/aria_digital_twin_test_data/video.vrs", (1408, 1408), 3, None),
        (
            "gen1/aria_everyday_activities_test_data/recording.vrs",
            (1408, 1408),
            8,
            "2022-04-06T17:10:55+00:00",
        ),
        (
            "gen2/aria_gen2_unit_test_sequence_with_bluetooth.vrs",
            (2016, 1512),
            3,
            "2025-06-17T20:11:09+00:00",
        ),
    ],
)
def test_recordings_are_videos(name, size, count, start):
    video = Video.open(DATA / name)
    assert (video.info.width, video.info.height, video.info.num_frames) == (*size, count)
    frames = list(video.frames(range(count)))
    assert [frame.rgb.shape for frame in frames] == [(size[1], size[0], 3)] * count
    np.testing.assert_allclose(np.diff(video.times_s), np.diff(video.backend.device_ns) / 1e9)
    assert (video.backend.started_at and video.backend.started_at.isoformat()) == start
    assert start is None or start_of(video).time == video.backend.started_at  # as the memory knows it
    again = Video.reopen(video.source)
    assert again.content_hash == video.content_hash
    np.testing.assert_array_equal(again.frame(count - 1).rgb, frames[-1].rgb)


@real
def test_the_library_writes_nothing_to_the_terminal():
    path = str(TWIN / "video.vrs")
    code = f"from egohieraloc import Video; v = Video.open({path!r}); v.frame(2); v.content_hash"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


@real
def test_the_lens_is_the_one_of_the_library():
    """Its own projection of points in the world, of the sensor's image, turned upright."""
    from projectaria_tools.core.sophus import SE3

    from egohieraloc.vrs import open_vrs

    video = Video.open(TWIN / "video.vrs")
    found = recorded_cameras(video)
    lens = open_vrs(video.path).get_device_calibration().get_camera_calib("camera-rgb")
    with (TWIN / "aria_trajectory.csv").open() as stream:
        row = list(csv.DictReader(stream))[1]
    turn = Rotation.from_quat([float(row[f"q{a}_world_device"]) for a in "xyzw"]).as_matrix()
    world_from_device = np.eye(4)
    world_from_device[:3, :3] = turn
    world_from_device[:3, 3] = [float(row[f"t{a}_world_device"]) for a in "xyz"]
    moved_s = float(row["tracking_timestamp_us"]) / 1e6 - video.backend.device_ns[1] / 1e9
    assert abs(moved_s) < 1e-3
    cam_from_world = (SE3.from_matrix(world_from_device) @ lens.get_transform_device_camera()).inverse()
    points = found.poses[1].to_world(
        np.random.default_rng(0).uniform((-0.9, -0.9, 1), (0.9, 0.9, 3), (50, 3))
    )
    sensor = np.array([lens.project(cam_from_world @ point) for point in points]) + 0.5
    expected = np.column_stack([1408 - sensor[:, 1], sensor[:, 0]])
    ours = found.camera.project(found.poses[1].to_cam(points))
    assert np.abs(ours - expected).max() < 0.5  # the pose is some 90 microseconds older than the image


@real
@pytest.mark.parametrize("name", ["video.vrs", "../../gen2/aria_gen2_unit_test_sequence_with_bluetooth.vrs"])
def test_pixels_have_a_ray_where_the_library_gives_one(name):
    """Beyond the valid radius, in the dark corners, there is none."""
    from egohieraloc.vrs import open_vrs

    video = Video.open(TWIN / name)
    camera = recorded_cameras(video).camera
    lens = open_vrs(video.path).get_device_calibration().get_camera_calib("camera-rgb")
    width, height = lens.get_image_size()
    sensor = np.random.default_rng(0).uniform(0, (width - 1, height - 1), (2000, 2))
    visible = np.array([lens.is_visible(pixel) for pixel in sensor])
    x, y = (sensor + 0.5).T
    upright = np.column_stack([height - y, x] if video.backend.turns else [x, y])
    assert 0.6 < visible.mean() < 0.99
    np.testing.assert_array_equal(np.isfinite(camera.rays(upright)).all(1), visible)


@real
def test_true_boxes_in_space_lie_on_the_true_boxes_in_the_image():
    video = Video.open(TWIN / "video.vrs")
    found = recorded_cameras(video)
    kinds = json.loads((TWIN / "instances.json").read_text())
    door = next(key for key, each in kinds.items() if each["instance_name"] == "Apartment_CabinetDoorF")
    with (TWIN / "3d_bounding_box.csv").open() as stream:
        extent = next(row for row in csv.DictReader(stream) if row["object_uid"] == door)
    with (TWIN / "scene_objects.csv").open() as stream:
        pose = next(row for row in csv.DictReader(stream) if row["object_uid"] == door)
    with (TWIN / "2d_bounding_box.csv").open() as stream:
        label = next(
            r for r in csv.DictReader(stream) if r["object_uid"] == door and r["stream_id"] == "214-1"
        )
    sides = [[float(extent[f"p_local_obj_{a}{end}[m]"]) for end in ("min", "max")] for a in "xyz"]
    steps = [np.linspace(*side, 9) for side in sides]
    local = np.stack(np.meshgrid(*steps), -1).reshape(-1, 3)
    turn = Rotation.from_quat([float(pose[f"q_wo_{a}"]) for a in "xyzw"]).as_matrix()
    world = local @ turn.T + [float(pose[f"t_wo_{a}[m]"]) for a in "xyz"]
    pixels = found.camera.project(found.poses[0].to_cam(world))
    x1, x2, y1, y2 = (float(label[f"{k}[pixel]"]) for k in ("x_min", "x_max", "y_min", "y_max"))
    truth = Box(1408 - y2 - 1, x1, 1408 - y1, x2 + 1)
    np.testing.assert_allclose([*pixels.min(0), *pixels.max(0)], truth.xyxy, atol=6)


@real
def test_depth_of_the_twin_is_of_the_frame_it_belongs_to():
    video = Video.open(TWIN / "video.vrs")
    maps = depth_of_device(TWIN / "depth_images.vrs", frame_table(video), video.backend.device_ns)([0, 1, 2])
    assert sorted(maps) == [0, 1]
    assert maps[0].values.shape == (1408, 1408)
    assert 1.5 < np.median(maps[0].values) < 2.5  # the kitchen is two metres away


@real
def test_a_trajectory_is_given_as_any_other():
    video = Video.open(TWIN / "video.vrs")
    found, words = cameras_for(video, TWIN / "aria_trajectory.csv")
    for index, pose in recorded_cameras(video).poses.items():
        np.testing.assert_allclose(found.poses[index].cam_from_world, pose.cam_from_world)
    assert words[1] == "3 of 3 frames have a camera pose"
