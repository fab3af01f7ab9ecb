"""Boxes, projections and floors: known answers; and the two figures drawn from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from figure_world import POINT, make_video, poses, result
from matplotlib.figure import Figure
from scipy.spatial.transform import Rotation

from egohieraloc.data.ego4d_3d import Box3D, world_from_annotation
from egohieraloc.errors import DataError
from egohieraloc.figures import space, style
from egohieraloc.figures.space import PlaceComparison, Projection
from egohieraloc.query import Query
from egohieraloc.types import Box, NotLocalized

TRUTH = Box3D(POINT, np.array([0.4, 0.2, 0.3]), np.zeros(3))
PATH = np.array([frame.pose.cam_from_world for frame in poses() if frame.pose is not None])


def test_a_cube_has_the_true_size_in_the_scan() -> None:
    corners = space.corners_world(TRUTH)
    assert corners.mean(0) == pytest.approx(POINT)
    assert np.ptp(corners, axis=0) == pytest.approx([0.2, 0.4, 0.3])  # the file's x is the scan's -y
    for a, b in space.EDGES:
        assert np.linalg.norm(corners[a] - corners[b]) in (pytest.approx(v) for v in (0.2, 0.3, 0.4))


def test_a_turned_cube_is_turned_about_x_then_y_then_z() -> None:
    angles = np.array([0.3, -0.5, 1.1])
    turned = space.corners_world(Box3D(POINT, TRUTH.size, angles)) - POINT
    flat = space.corners_world(Box3D(np.zeros(3), TRUTH.size, np.zeros(3)))
    in_file = np.stack([-flat[:, 1], flat[:, 0], flat[:, 2]], 1)
    expected = world_from_annotation(Rotation.from_euler("XYZ", angles).apply(in_file))
    assert turned == pytest.approx(expected)


def test_from_above_the_page_is_the_floor_and_up_is_never_seen() -> None:
    above = space.from_above(PlaceComparison("", None, (), PATH))
    start, east, north = above(np.array([[2.0, 5.0, 9.0], [3.0, 5.0, 1.0], [2.0, 6.0, 0.0]]))
    assert east - start == pytest.approx([1, 0])
    assert north - start == pytest.approx([0, 1])


@pytest.mark.parametrize("azimuth", [-62.0, 0.0, 130.0])
def test_a_projection_keeps_lengths_across_it_and_up_up(azimuth: float) -> None:
    project = Projection.over(PATH, elevation_deg=32, azimuth_deg=azimuth)
    assert project.page_from_world @ project.page_from_world.T == pytest.approx(np.eye(2))
    x, y = (project(np.array([0, 0, 1.0])) - project(np.zeros(3)))[0]
    assert (x, y) == pytest.approx((0, np.cos(np.radians(32))))


def test_the_floor_lies_under_everything_with_a_round_step() -> None:
    scene = PlaceComparison("", TRUTH, (("ours", POINT + np.array([4, 0, 0])),), PATH)
    lines, step = space._floor(scene)
    assert step == 1.0  # about 4.5 m are a few steps
    assert lines[..., 2].max() < 0.75
    shadow = space._dropped(POINT[None], scene, lines)[0]
    assert shadow == pytest.approx([*POINT[:2], lines[0, 0, 2]])
    assert lines[..., 0].min() <= 0 <= 4.5 <= lines[..., 0].max()
    with pytest.raises(DataError, match="nothing to draw in 3D"):
        space._floor(PlaceComparison("", None, (("ours", None),), np.zeros((0, 3, 4))))


def test_answers_are_cubes_of_the_true_size_or_dots_without_truth() -> None:
    axes, dots = Figure().subplots(1, 2)
    answers = (("ours", POINT + 0.1), ("other", None))
    space._show_scene(
        axes,
        PlaceComparison("", TRUTH, answers, PATH),
        space.from_above(PlaceComparison("", TRUTH, answers, PATH)),
    )
    ours = np.concatenate([line.get_xydata() for line in axes.lines if line.get_color() == style.colour(0)])
    assert len(ours) == 24
    assert ours.min(0) == pytest.approx(POINT[:2] + 0.1 - [0.1, 0.2])
    assert not [line for line in axes.lines if line.get_color() == style.colour(1)]
    assert axes.get_xlabel() == "grid 0.5 m"
    scene = PlaceComparison("", None, answers, PATH, unit="sfm")
    space._show_scene(dots, scene, space.from_above(scene), "from above, ")
    [dot] = [line for line in dots.lines if line.get_color() == style.colour(0)]
    assert dot.get_xydata()[0] == pytest.approx(POINT[:2] + 0.1)
    assert dots.get_xlabel() == "from above, grid 0.5 units"


def test_scenes_with_and_without_a_query(tmp_path: Path) -> None:
    scene = PlaceComparison("red object", TRUTH, (("ours", POINT),), PATH)
    space.draw_scenes(tmp_path / "a.svg", [scene])
    query = Query(np.zeros((40, 50, 3), np.uint8), Box(10, 8, 30, 28))
    space.draw_scenes(
        tmp_path / "b.svg", [PlaceComparison("red object", TRUTH, (("ours", POINT),), PATH, query), scene]
    )
    assert "red object" in (tmp_path / "b.svg").read_text()
    assert "red object" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(DataError, match="no query was chosen"):
        space.draw_scenes(tmp_path / "c.svg", [])


def test_rays_are_seen_from_their_side() -> None:
    answer = result(Path("unused"))
    azimuth = space._beside(answer.cameras, answer.place, PATH)
    project = Projection.over(PATH, elevation_deg=0, azimuth_deg=azimuth)
    middle = np.mean([answer.cameras.poses[view.frame_index].center_world for view in answer.place.views], 0)
    across = (project(answer.place.point_world) - project(middle))[0]
    assert abs(across[0]) == pytest.approx(np.linalg.norm((answer.place.point_world - middle)[:2]))


def test_from_2d_to_3d(tmp_path: Path) -> None:
    first = result(make_video(tmp_path))
    other = result(tmp_path / "room", place=NotLocalized("no pose"))
    space.draw_lift(tmp_path / "a.svg", [("ours", first), ("other", other)], TRUTH, frames=3)
    text = (tmp_path / "a.svg").read_text()
    assert [f"{t} s" in text for t in ("0.8", "1.2", "1.8")] == [True] * 3
    assert "ground truth" in text
    few = replace(first, place=replace(first.place, views=first.place.views[1:3]))
    space.draw_lift(tmp_path / "a.svg", [("ours", few)])
    text = (tmp_path / "a.svg").read_text()
    assert [f">{t} s<" in text for t in ("0.8", "1.0", "1.2", "1.4")] == [False, True, True, False]
    with pytest.raises(DataError, match=r"'other' has no 3D place\. Make it with `egohieraloc locate"):
        space.draw_lift(tmp_path / "b.svg", [("other", other)])
