"""VQ3D's measures by hand, on a small file of our own, and on published predictions where they are."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.data.ego4d_3d import Box3D, PlaceQuery, read_vq3d
from egohieraloc.errors import DataError
from egohieraloc.evaluation import vq3d
from egohieraloc.evaluation.predictions import PlaceAnswer
from egohieraloc.types import Box

SMALL = Path(__file__).parent / "fixtures" / "vq3d_small.json"


def box(x, y, z, size=(0.0, 0.0, 0.0)):
    return Box3D(np.array([x, y, z], float), np.array(size, float), np.zeros(3))


def query(number, first, second, scan="scan"):
    return PlaceQuery(QueryKey("clip", "#0", str(number)), "vid", 0, scan, "cup", (first, second))


def answer(number, point, displacement=None, pose=None):
    def array(value):
        return None if value is None else np.array(value, float)

    return PlaceAnswer(QueryKey("clip", "#0", str(number)), array(point), array(displacement), array(pose))


def by_key(*answers):
    return {a.key: a for a in answers}


def test_the_radius_grows_when_boxes_shrink_and_annotators_differ():
    assert vq3d.success_radius_m(box(0, 0, 0), box(0, 0, 0)) == 6
    # Diagonals 5 and 1, mean 3; centres 2 apart.
    first, second = box(0, 0, 0, (3, 4, 0)), box(2, 0, 0, (1, 0, 0))
    assert vq3d.success_radius_m(first, second) == pytest.approx(6 * (2 + math.exp(-3)))


def test_success_is_strict_and_measured_from_the_middle_of_the_two_centres():
    # Centres at 0 and 2, no size: the radius is 6 * 3 = 18 around (1, 0, 0).
    asked = query(1, box(0, 0, 0), box(2, 0, 0))
    assert vq3d.score([asked], by_key(answer(1, (19, 0, 0)))).success_star == 0
    assert vq3d.score([asked], by_key(answer(1, (18.999, 0, 0)))).success_star == 100
    # The distance is to the first annotator.
    assert vq3d.score([asked], by_key(answer(1, (3, 4, 0)))).distance_m == 5


def test_coverage_success_and_means_have_their_own_denominators():
    pose = np.eye(4)
    queries = [query(i, box(0, 0, 2), box(0, 2, 2)) for i in range(4)]
    answers = by_key(
        answer(0, (0, 0, 2), (0, 0, 2), pose),  # right, seen straight ahead
        answer(1, (100, 0, 2), (1, 0, 0), pose),  # too far, at a right angle to the first annotator
        answer(2, (0, 0, 3), None, pose),  # right, but no vector
        answer(3, None),
    )
    found = vq3d.score(queries, answers)
    assert (found.num_queries, found.num_places, found.num_vectors) == (4, 3, 2)
    assert found.success == 25
    assert found.success_star == pytest.approx(200 / 3)
    assert found.coverage == 50
    assert found.distance_m == pytest.approx((0 + 100 + 1) / 3)
    assert found.angle_1_rad == pytest.approx((0 + math.pi / 2) / 2)
    # To annotator 2 at (0, 2, 2): 45 degrees from straight ahead, a right angle from x.
    assert found.angle_2_rad == pytest.approx((math.pi / 4 + math.pi / 2) / 2)
    # To the middle (0, 1, 2): 1 m, 100 m, sqrt(2) m. Strictly below 0.5, 1, 2 m: none, none, two of four.
    assert found.success_at == ((0.5, 0), (1.0, 0), (2.0, 50))


def test_the_truth_is_seen_with_the_answers_own_pose():
    turned = np.array([[0, 1, 0, 0.5], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    center = np.array([1.0, 2.0, 3.0])
    seen = (turned @ np.append(center, 1))[:3]
    asked = query(1, box(*center), box(*center))
    assert vq3d.score([asked], by_key(answer(1, center, seen, turned))).angle_1_rad == pytest.approx(
        0, abs=1e-7
    )
    # With the pose's inverse it would not be zero.
    wrong = (np.linalg.inv(turned) @ np.append(center, 1))[:3]
    assert vq3d.score([asked], by_key(answer(1, center, wrong, turned))).angle_1_rad > 0.3


def test_angles_never_become_nan():
    assert vq3d.angle_rad(np.array([1.0, 1, 1]) * 0.1, np.array([1.0, 1, 1]) * 0.3) == pytest.approx(
        0, abs=1e-7
    )
    assert vq3d.angle_rad(np.ones(3), -np.ones(3)) == pytest.approx(math.pi)
    assert vq3d.angle_rad(np.zeros(3), np.ones(3)) is None
    asked = query(1, box(0, 0, 2), box(0, 0, 2))
    assert vq3d.score([asked], by_key(answer(1, (0, 0, 0), (0, 0, 0), np.eye(4)))).angle_1_rad is None


def test_the_baseline_predicts_the_mean_of_each_scan():
    queries = [
        query(1, box(0, 0, 0), box(0, 0, 0), "a"),
        query(2, box(2, 0, 0), box(4, 0, 0), "a"),
        query(3, box(9, 9, 9), box(9, 9, 9), "b"),
    ]
    turned = np.array([[0, 1, 0, 0.5], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    found = vq3d.scan_centroids(queries, by_key(answer(2, None, None, turned), answer(3, (0, 0, 0))))
    assert found[queries[0].key].point_world.tolist() == [1.5, 0, 0]
    assert found[queries[2].key].point_world.tolist() == [9, 9, 9]
    # It is seen from where the answer says that the question was asked, if it says so.
    assert found[queries[1].key].displacement.tolist() == [0.5, -1.5, 0]
    assert found[queries[0].key].displacement is found[queries[2].key].displacement is None


def test_reports_and_what_they_refuse():
    queries = [query(1, box(0, 0, 0), box(0, 0, 0)), query(2, box(0, 0, 0), box(0, 0, 0))]
    found = vq3d.report_vq3d(queries, by_key(answer(1, (0, 0, 0)), answer(5, (0, 0, 0))))
    assert (found.missing, found.ignored) == (1, 1)
    assert found.scan_centroid.success_star == 100
    with pytest.raises(DataError, match="None of the 1 predictions"):
        vq3d.report_vq3d(queries, by_key(answer(5, (0, 0, 0))))
    hidden = PlaceQuery(queries[0].key, "vid", 0, "scan", "", None)
    with pytest.raises(DataError, match="no 3D boxes for clip clip"):
        vq3d.report_vq3d([hidden], by_key(answer(1, (0, 0, 0))))
    with pytest.raises(DataError, match="no VQ3D query"):
        vq3d.report_vq3d([], {})
    with pytest.raises(ValueError, match="needs that frame's pose"):
        answer(1, (0, 0, 0), (1, 1, 1))


def test_groups_come_from_the_2d_queries():
    queries = [query(i, box(0, 0, 0), box(0, 0, 0)) for i in range(3)]
    ends = (95, 40, None)  # asked at frame 100, 5 a second: 1 s, 12 s, not known

    def visual(end):
        track = Track.empty() if end is None else Track.from_boxes([end], [(0, 0, 40, 40)])
        key = QueryKey("c", "a", "1")
        return VisualQuery(key, 0, 100, 0, Box(0, 0, 5, 5), 5.0, 640, 480, "", track)

    answers = by_key(answer(0, (0, 0, 0)), answer(1, (100, 0, 0)))
    seen = {q.key: visual(end) for q, end in zip(queries, ends, strict=True)}
    found = vq3d.report_vq3d(queries, answers, seen)
    groups = {name: (s.num_queries, s.success_star) for name, s in found.groups}
    assert groups == {"medium size": (2, 50), "seen < 10 s ago": (1, 100), "seen 10 to 60 s ago": (1, 0)}
    assert found.to_json()["groups"]["medium size"]["num_places"] == 2
    assert vq3d.report_vq3d(queries, answers).groups == ()


def test_our_small_file_has_these_numbers():
    """Three queries, a camera at (0, 0, 1) that looks along x of the scan; see the file's own note."""
    found = vq3d.report_vq3d(list(read_vq3d(SMALL)), vq3d.read_vq3d_predictions(SMALL))
    scores = found.scores
    assert (scores.num_queries, scores.num_places, scores.num_vectors) == (3, 2, 1)
    assert scores.success == pytest.approx(100 / 3)
    assert scores.success_star == 50
    assert scores.coverage == pytest.approx(100 / 3)
    assert scores.distance_m == pytest.approx((1 + 10) / 2)
    assert scores.angle_1_rad == pytest.approx(math.atan2(1, 2))
    assert scores.angle_2_rad == pytest.approx(math.atan2(1, 2))


def test_published_files_are_read_in_the_scans_frame(tmp_path):
    content = json.loads(SMALL.read_text())
    asked = content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]["1"]
    plain = {k.removeprefix("mp_"): v for k, v in asked.items() if k.startswith("mp_")}
    for key in [k for k in asked if "pred" in k]:
        del asked[key]
    asked.update(plain)
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(content))
    key = QueryKey("clip", "#1", "1")
    first, second = vq3d.read_vq3d_predictions(SMALL)[key], vq3d.read_vq3d_predictions(path)[key]
    assert first.point_world.tolist() == second.point_world.tolist()
    # The benchmark's own evaluation calls the vector `pred_3d_vec`; a pose may have three rows.
    asked["pred_3d_vec"] = asked.pop("pred_3d_vec_query_frame")
    asked["query_frame_pose"] = asked["query_frame_pose"][:3]
    path.write_text(json.dumps({"results": content}))
    third = vq3d.read_vq3d_predictions(path)[key]
    assert third.displacement.tolist() == first.displacement.tolist()
    assert third.query_from_world.tolist() == first.query_from_world.tolist()


def test_the_official_baselines_file_has_vectors_without_a_pose(tmp_path):
    """Its script takes the angle to the truth that the file gives in the query camera."""
    content = json.loads(SMALL.read_text())
    asked = content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]["1"]
    for key in [k for k in asked if "pred" in k or k == "query_frame_pose"]:
        del asked[key]
    asked |= {"pred_3d_vec_world": [1, 2, 3], "pred_3d_vec": [0, 0, 2]}
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="needs that frame's pose"):
        vq3d.read_vq3d_predictions(path)
    asked |= {"gt_3d_vec_1": [1, 0, 1], "gt_3d_vec_2": [0, 3, 0]}
    path.write_text(json.dumps(content))
    found = vq3d.read_vq3d_predictions(path)[QueryKey("clip", "#1", "1")]
    scores = vq3d.score([q for q in read_vq3d(path) if q.key == found.key], {found.key: found})
    assert (scores.angle_1_rad, scores.angle_2_rad) == pytest.approx((math.pi / 4, math.pi / 2))
    assert scores.coverage == 100
    again = PlaceAnswer.from_json(found.to_json())
    assert again.truth_seen.tolist() == [[1, 0, 1], [0, 3, 0]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mp_pred_3d_vec_world", [1, 2]),
        ("mp_pred_3d_vec_world", [1, 2, "x"]),
        ("query_frame_pose", [[1, 2], [3, 4]]),
    ],
)
def test_a_bad_vector_is_named(tmp_path, field, value):
    content = json.loads(SMALL.read_text())
    content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]["1"][field] = value
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"bad\.json: clip clip, annotation #1, query 1"):
        vq3d.read_vq3d_predictions(path)
    path.write_text("[]")
    with pytest.raises(DataError, match=r"bad\.json should be an object, a submission"):
        vq3d.read_vq3d_predictions(path)
    path.write_text("{}")
    with pytest.raises(DataError, match="'videos' is missing"):
        vq3d.read_vq3d_predictions(path)


@pytest.mark.skipif("EGOHIERALOC_DATA" not in os.environ, reason="needs the published predictions")
def test_published_predictions_have_their_published_figures():
    path = Path(os.environ["EGOHIERALOC_DATA"]) / "fixtures" / "vq3d_val_published_predictions.json"
    queries = list(read_vq3d(path))
    found = vq3d.report_vq3d(queries, vq3d.read_vq3d_predictions(path))
    scores = found.scores
    assert (scores.num_queries, scores.num_places, scores.num_vectors) == (164, 161, 135)
    assert scores.distance_m == pytest.approx(1.44914, abs=5e-6)
    assert scores.success_star == pytest.approx(98.13665, abs=1e-5)
    assert scores.success == pytest.approx(80.48780, abs=5e-6)
    assert scores.coverage == pytest.approx(82.31707, abs=5e-6)
    assert scores.angle_2_rad == pytest.approx(0.60703, abs=5e-6)
    assert scores.angle_1_rad == pytest.approx(0.60099, abs=5e-6)
    # One point per scan, without looking at any video, does almost as well.
    assert found.scan_centroid.success_star == pytest.approx(96.34146, abs=1e-5)
    assert found.scan_centroid.success == pytest.approx(79.87805, abs=1e-5)
    radii = [vq3d.success_radius_m(*q.boxes) for q in queries]
    assert np.median(radii) == pytest.approx(5.05, abs=0.01)
