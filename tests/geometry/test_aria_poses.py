"""Trajectories of Project Aria: read, found beside a recording, and put onto the lens. Values stand in for
the library: we cannot write a recording. `video/test_aria.py` reads real ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.formats import aria
from egohieraloc.geometry.formats.aria import (
    aria_cameras,
    find_trajectory,
    is_mps_trajectory,
    read_mps_trajectory,
    read_points,
)
from egohieraloc.geometry.given import FrameTable, matched

HEADER = (
    "graph_uid,tracking_timestamp_us,utc_timestamp_ns,tx_world_device,ty_world_device,tz_world_device,"
    "qx_world_device,qy_world_device,qz_world_device,qw_world_device,quality_score\n"
)
START_US = 149_202_610
LENS = (600.0, 700.0, 710.0, 0.4, -0.5, 0.2, 1.1, -1.7, 0.6, 6e-4, 2e-5, -1e-5, 2.6e-4, -6.5e-4, 3.7e-5)


def write_trajectory(path: Path, *, step_us: int = 1000, count: int = 400, frame: str = "world") -> Path:
    """A device that moves along x at one metre a second and turns about z by one radian a second."""
    lines = [HEADER.replace("world", frame)]
    for i in range(count):
        x, y, z, w = Rotation.from_rotvec([0, 0, i * step_us / 1e6]).as_quat()
        time = f"uid,{START_US + i * step_us},-1"
        lines.append(f"{time},{i * step_us / 1e6},0,1.5,{x},{y},{z},{w},{0.05 if i == 200 else 0.9}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return path


def provider(generation: str = "Gen1", poses=()) -> SimpleNamespace:
    """What the library gives for a recording: a lens that looks along the device's z, one metre before it."""
    mount = np.eye(4)
    mount[2, 3] = 1.0
    lens = SimpleNamespace(
        get_model_name=lambda: SimpleNamespace(name="FISHEYE624"),
        get_image_size=lambda: (1408, 1400),
        get_projection_params=lambda: LENS,
        get_valid_radius=lambda: 690.0,
        get_transform_device_camera=lambda: SimpleNamespace(to_matrix=lambda: mount),
    )
    return SimpleNamespace(
        get_device_calibration=lambda: SimpleNamespace(get_camera_calib=lambda label: lens),
        get_device_version=lambda: SimpleNamespace(name=generation),
        get_stream_id_from_label=lambda label: "371-3" if poses else None,
        check_stream_is_active=lambda stream: True,
        get_num_data=lambda stream: len(poses),
        get_vio_high_freq_data_by_index=lambda stream, i: poses[i],
    )


@pytest.mark.parametrize("frame", ["world", "odometry"])
def test_a_trajectory_is_read_at_two_hundred_poses_a_second(tmp_path, frame):
    path = write_trajectory(tmp_path / "closed_loop_trajectory.csv", frame=frame)
    assert is_mps_trajectory(path.read_text()[:4096])
    found = read_mps_trajectory(path)
    assert len(found.times_s) == 400 / 5 - 1  # the one of low quality is left out
    matrices, known = found.at(np.array([START_US / 1e6 + 0.2037]))
    assert known.all()
    np.testing.assert_allclose(matrices[0, :3, 3], [0.2037, 0, 1.5], atol=1e-6)
    turned = Rotation.from_matrix(matrices[0, :3, :3]).as_rotvec()
    np.testing.assert_allclose(turned, [0, 0, 0.2037], atol=1e-6)


def test_files_are_found_by_convention_the_closed_loop_first(tmp_path):
    recording = tmp_path / "walk.vrs"
    assert find_trajectory(recording) is None
    for path in (
        "open_loop_trajectory.csv",
        "mps/slam/open_loop_trajectory.csv",
        "aria_trajectory.csv",
        "mps_walk_vrs/slam/closed_loop_trajectory.csv",
        "mps/slam/closed_loop_trajectory.csv",
    ):
        written = write_trajectory(tmp_path / path, count=2)
        if "open_loop" not in path:
            assert find_trajectory(recording) == written


@pytest.mark.parametrize(("generation", "size"), [("Gen1", (1400, 1408)), ("Gen2", (1408, 1400))])
def test_the_lens_sits_on_the_device_and_sees_upright(tmp_path, monkeypatch, generation, size):
    write_trajectory(tmp_path / "mps" / "slam" / "closed_loop_trajectory.csv")
    monkeypatch.setattr(aria, "open_vrs", lambda path: provider(generation))
    device_ns = np.array([0, START_US * 1000, START_US * 1000 + 100_000_000])
    given = aria_cameras(tmp_path / "walk.vrs", device_ns)
    found = matched(given, FrameTable(np.arange(3) / 10))
    assert list(found.poses) == [1, 2]
    assert (found.camera.width, found.camera.height) == size
    assert found.camera.valid_radius_px == 690
    np.testing.assert_allclose(found.poses[1].center_world, [0, 0, 2.5], atol=1e-9)
    np.testing.assert_allclose(found.poses[1].rays_world([0, 0, 1.0]), [0, 0, 1], atol=1e-9)
    # In Gen 1 the device's x, which is down in an upright image, is right in the image of the sensor.
    down = found.poses[1].rays_world([0, 1.0, 0] if generation == "Gen1" else [1.0, 0, 0])
    np.testing.assert_allclose(down, [1, 0, 0], atol=1e-9)
    sensor = aria.Camera("RAD_TAN_THIN_PRISM_FISHEYE", 1408, 1400, (600.0, 600.0, 700.5, 710.5, *LENS[3:]))
    x, y = sensor.project([[0.2, 0.1, 1.0]])[0]
    seen = found.camera.project(found.poses[1].to_cam([[0.2, 0.1, 3.5]]))[0]
    np.testing.assert_allclose(seen, (1400 - y, x) if generation == "Gen1" else (x, y), atol=1e-6)


def test_without_a_file_the_glasses_own_odometry_is_taken(tmp_path, monkeypatch):
    poses = [
        SimpleNamespace(
            tracking_timestamp=SimpleNamespace(total_seconds=lambda i=i: 10 + i / 100),
            transform_odometry_device=SimpleNamespace(to_matrix=lambda i=i: np.eye(4) + np.eye(4, k=3) * i),
        )
        for i in range(5)
    ]
    monkeypatch.setattr(aria, "open_vrs", lambda path: provider("Gen2", poses))
    given = aria_cameras(tmp_path / "walk.vrs", np.array([10_025_000_000]))
    assert "own odometry" in given.source
    np.testing.assert_allclose(given.views[0].matrix[:3, 3], [2.5, 0, 1], atol=1e-9)
    monkeypatch.setattr(aria, "open_vrs", lambda path: provider("Gen1"))
    assert aria_cameras(tmp_path / "walk.vrs", np.array([10_025_000_000])) is None


def test_a_trajectory_of_another_recording_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(aria, "open_vrs", lambda path: provider())
    path = write_trajectory(tmp_path / "closed_loop_trajectory.csv")
    with pytest.raises(GeometryError, match="Do they belong together"):
        aria_cameras(tmp_path / "walk.vrs", np.array([5]), path)
    path.write_text(HEADER + "uid,1,2,three\n")
    with pytest.raises(GeometryError, match="tracking_timestamp_us"):
        read_mps_trajectory(path)


def test_only_points_that_are_sure_are_taken(tmp_path):
    assert len(read_points(tmp_path).xyz_world) == 0
    rows = "uid,graph_uid,px_world,py_world,pz_world,inv_dist_std,dist_std\n"
    rows += "1,g,1,2,3,0.004,0.009\n2,g,4,5,6,0.004,0.5\n"
    with gzip.open(tmp_path / "semidense_points.csv.gz", "wt") as stream:
        stream.write(rows + "3,g,7,8,9,0.5,0.001\n")
    np.testing.assert_allclose(read_points(tmp_path).xyz_world, [[1, 2, 3]])
    (tmp_path / "semidense_points.csv.gz").write_bytes(b"damaged")
    with pytest.raises(GeometryError, match="Delete the file"):
        read_points(tmp_path)
