"""Poses of other programs on the command line: found, told about, and refused where they cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_locate_3d import asked, clip, run  # noqa: F401

from egohieraloc import recorded
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction

LINE = "{time} {x} 0 0 0 0 0 1\n"


def write_walk(folder: Path, start_s: float) -> Path:
    lines = [LINE.format(time=start_s + i / 10, x=i / 10) for i in range(12)]
    (folder / "walk.txt").write_text("".join(lines))
    (folder / "lens.txt").write_text("128 96 120 120 64 48")
    return folder / "walk.txt"


def test_a_trajectory_with_its_lens_and_its_clock(clip, asked, tmp_path):  # noqa: F811
    walk = write_walk(tmp_path, 1000.0)
    done = run(clip, "--cameras", walk, "--intrinsics", tmp_path / "lens.txt", "--time-offset", 1000)
    assert done.exit_code == 0, done.output
    assert "could not be checked" in done.output  # the images are plain
    assert "6 of 6 frames have a camera pose" in done.output
    cameras = asked.space.cameras
    assert (cameras.unit, cameras.camera.width, cameras.camera.focal) == ("m", 64, (60.0, 60.0))
    np.testing.assert_allclose(cameras.poses[3].center_world, [0.6, 0, 0], atol=1e-9)
    assert cameras.frames[3].time_s == pytest.approx(0.6)  # the video's own time
    run(
        clip,
        "--cameras",
        walk,
        "--intrinsics",
        tmp_path / "lens.txt",
        "--time-offset",
        1000,
        "--cameras-unit",
        "sfm",
    )
    assert asked.space.cameras.unit == "sfm"


def test_gaps_of_poses_found_with_the_recording_are_told(clip, asked, monkeypatch):  # noqa: F811
    camera = Camera("PINHOLE", 64, 48, (60.0, 60.0, 32.0, 24.0))
    pose = CameraPose(np.eye(3, 4))
    frames = tuple(PosedFrame(i, i / 5, None if 2 <= i <= 4 else pose) for i in range(6))
    beside = Reconstruction(camera, frames, "m")
    monkeypatch.setattr(recorded, "recorded_cameras", lambda video: beside)
    done = run(clip)
    assert "found with clip: 3 of 6 frames have a camera pose; none for 0.4 s from 0.4 s on." in done.output
    assert asked.space.cameras is beside
    done = run(clip, "--camera-height", 1.6)  # the scale of a map of its own
    assert "found with" not in done.output
    assert asked.space.cameras is None


def test_another_clock_is_refused_with_the_remedy(clip, asked, tmp_path):  # noqa: F811
    walk = write_walk(tmp_path, 1000.0)
    done = run(clip, "--cameras", walk, "--intrinsics", tmp_path / "lens.txt")
    assert isinstance(done.exception, GeometryError)
    assert "--time-offset" in str(done.exception)
    assert not vars(asked)


def test_options_of_cameras_need_cameras(clip, asked):  # noqa: F811
    done = run(clip, "--time-offset", 3)
    assert done.exit_code == 2
    assert "are of --cameras" in done.output
