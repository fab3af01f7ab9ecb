"""What leaves for other programs is what is known here."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.errors import DataError
from egohieraloc.export import Form, export
from egohieraloc.geometry.cameras_from import read_given
from egohieraloc.geometry.given import FrameTable, matched
from egohieraloc.result import Result
from egohieraloc.types import NotLocalized
from made_up import SAMPLES, place, result

FRAMES = FrameTable(np.arange(3 * SAMPLES) / 15)


def read_ply(path) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Header, positions, colours and triangles."""
    header, _, body = path.read_bytes().partition(b"end_header\n")
    lines = header.decode().splitlines()
    count = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("element")}
    vertices, faces = count["vertex"], count["face"]
    point = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)])
    corner = np.dtype([("count", "u1"), ("corners", "<i4", 3)])
    assert len(body) == vertices * point.itemsize + faces * corner.itemsize
    cloud = np.frombuffer(body, point, vertices)
    triangles = np.frombuffer(body, corner, faces, vertices * point.itemsize)
    assert (triangles["count"] == 3).all()
    return lines, cloud["xyz"], cloud["rgb"], triangles["corners"]


@pytest.mark.parametrize("form", [Form.COLMAP, Form.NERFSTUDIO])
def test_cameras_come_back_and_the_object_lies_beside(tmp_path, form):
    export(result(), form, tmp_path / "out", name="keys")
    found = matched(read_given(tmp_path / "out"), FRAMES)
    expected = result().cameras
    assert list(found.poses) == list(expected.poses)
    for index, pose in expected.poses.items():
        np.testing.assert_allclose(found.poses[index].cam_from_world, pose.cam_from_world, atol=1e-9)
    stored = json.loads((tmp_path / "out" / "objects.json").read_text())
    assert (stored["unit"], stored["objects"][0]["name"]) == ("m", "keys")


def test_a_trajectory_comes_back(tmp_path):
    export(result(), Form.TUM, tmp_path / "t.txt")
    (tmp_path / "intrinsics.txt").write_text("160 120 150 150 80 60")
    found = matched(read_given(tmp_path / "t.txt"), FRAMES)
    for index, pose in result().cameras.poses.items():
        np.testing.assert_allclose(found.poses[index].cam_from_world, pose.cam_from_world, atol=1e-6)
    assert "unit: m" in (tmp_path / "t.txt").read_text()


def test_json_holds_unit_frame_and_covariance(tmp_path):
    export(result(), Form.JSON, tmp_path / "space.json")
    value = json.loads((tmp_path / "space.json").read_text())
    found = value["objects"][0]
    np.testing.assert_allclose(found["position_world"], place().point_world)
    axes = np.array(found["ellipsoid_half_axes_world"])
    shape = axes.T @ axes  # of the ellipsoid: the covariance up to the square of its width
    np.testing.assert_allclose(shape / shape[0, 0], place().covariance / place().covariance[0, 0], atol=1e-9)
    distance = np.linalg.norm(place().point_world - [0.9, 0, 1.6])
    assert found["box"]["size"] == pytest.approx([40 / 150 * distance] * 3, rel=0.03)
    np.testing.assert_allclose(np.array(found["box"]["axes_world"])[2], [0, 0, 1], atol=1e-9)  # up
    assert (value["unit"], len(value["frames"]), len(value["points_world"])) == ("m", SAMPLES, 7)
    assert "camera from world" in value["frame_of_reference"]


def test_ply_has_points_path_and_the_ellipsoid(tmp_path):
    export(result(), Form.PLY, tmp_path / "space.ply", name="keys\nend_header")
    lines, xyz, rgb, triangles = read_ply(tmp_path / "space.ply")
    assert "comment unit m" in lines
    ball = xyz[7 + SAMPLES :]
    assert triangles.min() == 7 + SAMPLES
    assert triangles.max() == len(xyz) - 1
    off = ball - place().point_world
    length = np.einsum("ni,ij,nj->n", off, np.linalg.inv(place().covariance), off)
    np.testing.assert_allclose(length, length[0], rtol=1e-4)  # all on one level of the normal distribution
    assert (rgb[7 + SAMPLES :] == (21, 128, 61)).all()
    np.testing.assert_allclose(xyz[7], result().cameras.frames[0].pose.center_world, atol=1e-6)


def test_an_answer_without_a_path_is_refused_and_one_without_a_place_is_not(tmp_path):
    with pytest.raises(DataError, match="--3d"):
        export(replace(result(), cameras=None, place=None), Form.JSON, tmp_path / "space.json")
    export(replace(result(), place=NotLocalized("too dark")), Form.JSON, tmp_path / "space.json")
    value = json.loads((tmp_path / "space.json").read_text())
    assert value["objects"] == []
    assert "too dark" in value["without_place"][0]["reason"]


def test_the_command_writes_beside_the_answer(tmp_path):
    result().save(tmp_path / "keys")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "keys"), "--to", "ply"])
    assert done.exit_code == 0, done.output
    assert read_ply(tmp_path / "keys" / "space.ply")[1].shape[1] == 3
    assert Result.load(tmp_path / "keys").found
    done = CliRunner().invoke(app, ["export", str(tmp_path / "keys"), "--to", "tum", "--out", str(tmp_path)])
    assert done.exit_code != 0
