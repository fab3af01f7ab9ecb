import json

import numpy as np
import pytest

from egohieraloc.data.base import QueryKey
from egohieraloc.data.ego4d_3d import (
    read_clip_poses,
    read_intrinsics,
    read_mapping,
    read_vq3d,
    visual_queries_of_places,
    world_from_annotation,
)
from egohieraloc.errors import DataError


def box3d(x, y, z, size=(0.3, 0.4, 0.0)):
    return {
        "position": dict(zip("xyz", (x, y, z), strict=True)),
        "rotation": {"x": 0.1, "y": 0.2, "z": 0.3},
        "dimension": dict(zip("xyz", size, strict=True)),
    }


def write(path, annotations, clip_uid="c1"):
    video = {
        "video_uid": "vid",
        "split": "val",
        "scan_uid": "scan",
        "clips": [{"clip_uid": clip_uid, "annotations": annotations}],
    }
    path.write_text(json.dumps({"version": "1", "videos": [video]}))
    return path


def test_positions_are_turned_into_the_scans_frame():
    assert world_from_annotation(np.array([1.0, 2.0, 3.0])).tolist() == [2, -1, 3]
    turn = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]])  # rotation by -90 degrees about z
    points = np.random.default_rng(0).normal(size=(5, 3))
    assert np.allclose(world_from_annotation(points), points @ turn.T)


def test_queries_keep_the_place_of_empty_annotations(tmp_path):
    asked = {"object_title": "drill", "3d_annotation_1": box3d(1, 2, 3), "3d_annotation_2": box3d(1, 2, 4)}
    (found,) = read_vq3d(write(tmp_path / "vq3d.json", [{}, {"query_sets": {"3": asked}}]))
    assert found.key == QueryKey("c1", "#1", "3")
    assert len(list(read_vq3d(tmp_path / "vq3d.json", split="val"))) == 1
    assert list(read_vq3d(tmp_path / "vq3d.json", split="train")) == []
    assert (found.annotation_index, found.scan_uid, found.object_title) == (1, "scan", "drill")
    first, second = found.boxes
    assert first.center_world.tolist() == [2, -1, 3]
    assert second.center_world.tolist() == [2, -1, 4]
    assert first.diagonal == pytest.approx(0.5)
    assert first.rotation_xyz_rad.tolist() == [0.1, 0.2, 0.3]


def test_a_template_has_no_boxes_and_half_an_annotation_is_a_problem(tmp_path):
    (found,) = read_vq3d(
        write(tmp_path / "t.json", [{"query_sets": {"1": {}}, "annotation_uid": "a"}], clip_uid=None)
    )
    assert found.boxes is None
    assert found.key == QueryKey("vid#0", "a", "1")
    half = {"3d_annotation_1": box3d(0, 0, 0)}
    (found,) = read_vq3d(write(tmp_path / "h.json", [{"query_sets": {"1": half}}]))
    assert found.boxes is None
    assert "h.json: video vid, clip c1, annotation #0, query 1" in found.problem
    assert "3d_annotation_2" in found.problem


def test_the_mapping_leads_to_the_2d_query(tmp_path):
    class Visual:
        def __init__(self, place, query_set):
            self.key, self.annotation_index = QueryKey("c1", f"a{place}", query_set), place

    path = tmp_path / "mapping.json"
    path.write_text(json.dumps({"vid": {"c1": {"1": {"3": {"ai": 0, "qset_id": "2"}}}}}))
    mapping = read_mapping(path)
    assert mapping == {("vid", "c1", 1, "3"): (0, "2")}
    (place,) = read_vq3d(write(tmp_path / "vq3d.json", [{}, {"query_sets": {"3": {}}}]))
    queries = [Visual(0, "1"), Visual(0, "2"), Visual(1, "3")]
    assert visual_queries_of_places([place], queries, mapping) == {place.key: queries[1]}
    with pytest.raises(DataError, match="has no 2D query"):
        visual_queries_of_places([place], queries, {})
    with pytest.raises(DataError, match="has no 2D query"):
        visual_queries_of_places([place], queries[:1], mapping)
    path.write_text(json.dumps({"vid": {"c1": {"1": {"3": {"ai": 0}}}}}))
    with pytest.raises(DataError, match="clip c1, annotation 1, query 3: the field 'qset_id'"):
        read_mapping(path)


def test_poses_and_intrinsics(tmp_path):
    path = tmp_path / "poses.json"
    path.write_text(
        json.dumps({"c1": {"good_poses": [True, False], "camera_poses": [np.eye(3, 4).tolist()] * 2}})
    )
    poses = read_clip_poses(path)["c1"]
    assert poses.cam_from_world.shape == (2, 3, 4)
    assert poses.is_good.tolist() == [True, False]
    path.write_text(json.dumps({"c1": {"good_poses": [True], "camera_poses": [np.eye(3, 4).tolist()] * 2}}))
    assert "clip c1: 1 flags for 2 poses" in read_clip_poses(path)["c1"].problem
    matrices = [np.eye(3, 4).tolist(), None, [[1, 2]], [[None] * 4] * 3]
    path.write_text(json.dumps({"c1": {"good_poses": [True] * 4, "camera_poses": matrices}}))
    assert read_clip_poses(path)["c1"].is_good.tolist() == [True, False, False, False]
    camera = {"f": 1000.5, "cx": 960.0, "cy": 540.0, "k1": 0.3, "k2": 0.2}
    path.write_text(json.dumps({"scan": {"('1920', '1080')": camera}}))
    (found,) = read_intrinsics(path)["scan"]
    assert (found.width, found.height, found.focal, found.center_x, found.k2) == (
        1920,
        1080,
        1000.5,
        960.0,
        0.2,
    )
    path.write_text(json.dumps({"scan": {"1920": camera}}))
    with pytest.raises(DataError, match="scan scan"):
        read_intrinsics(path)
