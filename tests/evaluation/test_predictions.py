"""Prediction files: ours, the challenge's and VQLoC's, whole, cut off or wrong."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from fake_ego4d import make_tree

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import (
    PlaceAnswer,
    PredictionLog,
    TrackAnswer,
    read_own,
    read_places,
    read_tracks,
    read_vq2d_predictions,
    require_common,
    write_own,
)

KEY = QueryKey("clip", "a", "1")
ABOUT = {"benchmark": "vq2d", "config": {"sizes": (1, 2)}}


def answer(number=1, **extra):
    track = Track.from_boxes([3, 4], [(0.1, 0, 1 / 3, 1), (0, 0, 2, 2)])
    return TrackAnswer(QueryKey("clip", "a", str(number)), track, 0.7, **extra)


def test_an_answer_comes_back_exactly(tmp_path):
    full = answer(reason="", frame_scores=np.array([0.1, 1 / 3]), crop_sharpness=12.5, mask_quality=0.61)
    empty = TrackAnswer(QueryKey("clip", "a", "2"), Track.empty(), 0.0, reason="never above the threshold")
    write_own(tmp_path / "p.jsonl", ABOUT, [full, empty])
    first, second = read_tracks(tmp_path / "p.jsonl").values()
    assert first.key == KEY
    assert first.track.frames.tolist() == [3, 4]
    assert (first.track.boxes_xyxy == full.track.boxes_xyxy).all()
    assert first.frame_scores.tolist() == [0.1, 1 / 3]
    assert (first.score, first.crop_sharpness, first.mask_quality, first.reason) == (0.7, 12.5, 0.61, "")
    assert (len(second.track), second.reason, second.frame_scores) == (0, "never above the threshold", None)


def test_places_come_back_exactly(tmp_path):
    place = PlaceAnswer(KEY, np.array([1.0, 2, 3]), np.array([0.0, 0, 1]), np.eye(4))
    nowhere = PlaceAnswer(QueryKey("clip", "a", "2"), None, reason="no frame has a pose")
    write_own(tmp_path / "p.jsonl", {"benchmark": "vq3d"}, [place, nowhere])
    first, second = read_places(tmp_path / "p.jsonl").values()
    assert first.point_world.tolist() == [1, 2, 3]
    assert (first.query_from_world == np.eye(4)).all()
    assert (second.point_world, second.displacement, second.reason) == (None, None, "no frame has a pose")
    with pytest.raises(DataError, match="holds predictions for vq3d"):
        read_tracks(tmp_path / "p.jsonl")


def test_a_log_is_on_disk_at_once_and_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "log.jsonl"
    with PredictionLog(path, ABOUT) as log:
        log.add(answer(1))
        assert len(read_own(path)[1]) == 1
        log.add(answer(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with PredictionLog(path, ABOUT) as log:
        assert [key.query_set for key in log.answers] == ["1"]
        log.add(answer(2))
    assert path.read_bytes() == whole


def test_an_empty_log_is_started_anew_and_a_foreign_one_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    path.touch()
    PredictionLog(path, ABOUT).close()
    assert read_own(path) == (
        {"egohieraloc_predictions": 1, "benchmark": "vq2d", "config": {"sizes": [1, 2]}},
        {},
    )
    with pytest.raises(DataError, match="config differ"):
        PredictionLog(path, {"benchmark": "vq2d", "config": {}})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is not an object"),
        ('{"clip": "c"}', "line 2: the field 'annotation' is missing|the field 'frames' is missing"),
        (json.dumps({**answer().to_json(), "score": float("nan")}), "finite"),
        (json.dumps({**answer().to_json(), "frame_scores": [1]}), "1 frame scores for 2 frames"),
        (json.dumps({**answer().to_json(), "boxes_xyxy": [[0, 0, 1, 1], [5, 0, 1, 1]]}), "negative width"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "p.jsonl"
    write_own(path, ABOUT, [])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=message):
        read_tracks(path)


def test_a_second_answer_and_a_foreign_format_are_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    write_own(path, ABOUT, [answer(), answer()])
    with pytest.raises(DataError, match="line 3: a second answer for clip clip"):
        read_tracks(path)
    path.write_text('{"egohieraloc_predictions": 9}\n')
    with pytest.raises(DataError, match="not a prediction file of format 1"):
        read_tracks(path)
    path.write_text("{}")
    with pytest.raises(DataError, match="not one of our prediction files"):
        read_tracks(path)
    with pytest.raises(DataError, match="Cannot read"):
        read_tracks(tmp_path / "absent.jsonl")


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    annotations, _ = make_tree(tmp_path_factory.mktemp("ego4d"), num_clips=1)
    return [q for clip in read_vq2d(annotations) for q in clip.queries]


def prediction(uid=None, sets=("1",)):
    item = {"bboxes": [{"fno": 5, "x1": 1, "y1": 2, "x2": 3, "y2": 4}], "score": 0.5}
    return {"query_sets": dict.fromkeys(sets, item), **({"annotation_uid": uid} if uid else {})}


def test_challenge_files_match_by_annotation_id_or_by_place(tmp_path, queries):
    path = tmp_path / "c.json"
    for uid in ("annotation-0", None):
        clip = {"clip_uid": "clip-0", "predictions": [prediction(sets=()), prediction(uid, ("1", "4"))]}
        lost = {"clip_uid": None, "predictions": [prediction(uid and "annotation-lost")]}
        videos = [{"video_uid": "video-0", "clips": [clip]}, {"video_uid": "video-1", "clips": [lost]}]
        path.write_text(json.dumps({"version": "1.0.5", "results": {"videos": videos}}))
        answers = read_vq2d_predictions(path, queries)
        found = answers[QueryKey("clip-0", "annotation-0", "1")]
        assert found.track.frames.tolist() == [5]
        assert found.track.boxes_xyxy.tolist() == [[1, 2, 3, 4]]
        assert found.score == 0.5
        assert QueryKey("video-1#0", "annotation-lost", "1") in answers
        assert len(answers) == 3


def test_vqloc_files_are_keyed_by_clip(tmp_path, queries):
    path = tmp_path / "vqloc.json"
    path.write_text(json.dumps({"clip-0": {"predictions": [prediction(sets=()), prediction()]}}))
    assert read_vq2d_predictions(path, queries).keys() == {QueryKey("clip-0", "annotation-0", "1")}


def test_our_own_file_is_recognised(tmp_path, queries):
    write_own(tmp_path / "p.json", ABOUT, [answer()])
    assert read_vq2d_predictions(tmp_path / "p.json", queries).keys() == {KEY}


def test_errors_in_challenge_files_are_named(tmp_path, queries):
    path = tmp_path / "c.json"
    bad = prediction("annotation-0")
    bad["query_sets"]["1"] = {"bboxes": [{"fno": 5}], "score": 0.5}
    path.write_text(json.dumps({"clip-0": {"predictions": [bad]}}))
    with pytest.raises(
        DataError, match=r"c\.json: clip clip-0, annotation annotation-0, query 1: the field 'x1'"
    ):
        read_vq2d_predictions(path, queries)
    path.write_text(json.dumps({"results": {}}))
    with pytest.raises(DataError, match="the field 'videos' is missing"):
        read_vq2d_predictions(path, queries)
    path.write_text(json.dumps({"clip-0": {"predictions": [{}]}}))
    with pytest.raises(DataError, match=r"c\.json: the field 'query_sets' is missing"):
        read_vq2d_predictions(path, queries)
    path.write_text("[]")
    with pytest.raises(DataError, match=r"c\.json should be an object, a challenge file .*, not a list"):
        read_vq2d_predictions(path, queries)
    path.write_text(json.dumps({"version": "1", "videos": []}))  # annotations are no predictions
    with pytest.raises(DataError, match=r"c\.json: it has neither `results`"):
        read_vq2d_predictions(path, queries)


def test_predictions_for_almost_none_of_the_queries_are_refused():
    def asked(count):
        return [SimpleNamespace(key=QueryKey("c", "a", str(n)), problem="") for n in range(count)]

    def given(*numbers):
        return {QueryKey("c", "a", str(n)): None for n in numbers}

    require_common(asked(100), given(1, 2, 3))  # a part of the queries
    require_common(asked(3), given(*range(100)))  # a part of the predictions
    require_common([], given(1))
    for answers in (given(), given(*range(99, 150)), given(*range(100, 200))):
        with pytest.raises(DataError, match="Do the predictions belong to this annotation file"):
            require_common(asked(100), answers)


def test_an_answer_without_a_finite_score_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match="finite number, got nan"):
        TrackAnswer(KEY, Track.empty(), float("nan"))
    with pytest.raises(ValueError, match="1 frame scores for 0 frames"):
        TrackAnswer(KEY, Track.empty(), 0.0, frame_scores=np.ones(1))


@pytest.mark.parametrize("point", [[1, 2], [1, 2, float("nan")], [[1, 2, 3]], "far"])
def test_a_bad_point_is_named(tmp_path, point):
    path = tmp_path / "p.jsonl"
    write_own(path, {"benchmark": "vq3d"}, [])
    record = {**PlaceAnswer(KEY, None).to_json(), "point_world": point}
    path.write_text(path.read_text() + json.dumps(record) + "\n")
    with pytest.raises(DataError, match=r"p\.jsonl: line 2"):
        read_places(path)
