"""What we write the validator accepts; every kind of damage it finds and names."""

import copy
import json

import numpy as np
import pytest
from fake_ego4d import make_tree

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.egotracks import TrackingQuery
from egohieraloc.data.trek150 import PROTOCOLS, TrekSequence
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks, submission, submission_check, trek150, vq3d
from egohieraloc.evaluation.predictions import PlaceAnswer, TrackAnswer, read_vq2d_predictions
from egohieraloc.types import Box


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    annotations, _ = make_tree(tmp_path_factory.mktemp("ego4d"), num_clips=2)
    return annotations, [q for clip in read_vq2d(annotations) for q in clip.queries]


@pytest.fixture
def written(tree, tmp_path):
    annotations, queries = tree
    answers = {}
    for query in queries[:-1]:
        moved = Track(query.response.frames, query.response.boxes_xyxy + np.array([-20.4, 0.6, 0, 0]))
        answers[query.key] = TrackAnswer(query.key, moved, 0.75)
    path = tmp_path / "submission.json"
    submission.write_vq2d_submission(path, annotations, answers)
    return annotations, path, answers


def test_a_vq2d_submission_has_the_order_of_the_annotations(written):
    annotations, path, _ = written
    assert submission_check.check_vq2d(annotations, path) == []
    content = json.loads(path.read_text())
    assert (content["version"], content["challenge"]) == ("1.0.5", "ego4d_vq2d_challenge")
    clips = content["results"]["videos"][0]["clips"]
    assert [c["clip_uid"] for c in clips] == ["clip-0", "clip-1"]
    assert content["results"]["videos"][1]["clips"][0]["clip_uid"] is None
    empty, full = clips[0]["predictions"]
    assert empty == {"query_sets": {}}
    assert list(full["query_sets"]) == ["1", "2", "3", "4"]
    assert full["query_sets"]["4"] == {"bboxes": [], "score": 0.0}
    assert full["annotation_uid"] == "annotation-0"


def test_boxes_are_whole_and_inside_and_read_back(written, tree):
    _, path, answers = written
    back = read_vq2d_predictions(path, tree[1])
    for key, answer in answers.items():
        assert back[key].track.frames.tolist() == answer.track.frames.tolist()
        wanted = np.rint(answer.track.clipped(96, 64).boxes_xyxy)
        assert back[key].track.boxes_xyxy.tolist() == wanted.tolist()
        assert back[key].score == 0.75


def damage(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def first_answer(content):
    return content["results"]["videos"][0]["clips"][0]["predictions"][1]["query_sets"]["1"]


def first_clip(content):
    return content["results"]["videos"][0]["clips"][0]


VQ2D_DAMAGE = {
    "version should be '1.0.5', not '1.0'": lambda c: c.update(version="1.0"),
    "challenge should be": lambda c: c.update(challenge="x"),
    "videos should be a list of 2 objects": lambda c: c["results"]["videos"].pop(),
    "video video-0 should come here, not video-1": lambda c: c["results"]["videos"].reverse(),
    "video video-0: clips should be a list of 2 objects": lambda c: c["results"]["videos"][0]["clips"].pop(),
    "video video-0, clip clip-0: should come here, not clip-1": lambda c: c["results"]["videos"][0][
        "clips"
    ].reverse(),
    "clip clip-0: predictions should be a list of 2 objects": lambda c: first_clip(c)["predictions"].pop(),
    "annotation 1: query 1 is missing": lambda c: first_clip(c)["predictions"][1]["query_sets"].pop("1"),
    "annotation 1: query 7 is not in the annotation file": lambda c: first_clip(c)["predictions"][1][
        "query_sets"
    ].update({"7": {}}),
    "query_sets should be an object": lambda c: first_clip(c)["predictions"][1].update(query_sets=[]),
    "annotation_uid should be 'annotation-0', not 'x'": lambda c: first_clip(c)["predictions"][1].update(
        annotation_uid="x"
    ),
    "should have bboxes (a list)": lambda c: first_answer(c).update(bboxes={}),
    "query 1: should have": lambda c: first_clip(c)["predictions"][1]["query_sets"].update({"1": [1]}),
    "should have bboxes": lambda c: first_answer(c).pop("score"),
    "score should be a finite number": lambda c: first_answer(c).update(score="1"),
    "score should be a finite number, not nan": lambda c: first_answer(c).update(score=float("nan")),
    "whole numbers": lambda c: first_answer(c)["bboxes"][0].update(x1=0.5),
    "whole numbers fno": lambda c: first_answer(c)["bboxes"][0].pop("fno"),
    "one box for every frame from 5 to 10": lambda c: first_answer(c)["bboxes"].pop(2),
    "frames 18 to 23 should lie in 0 to 23 - 1": lambda c: [
        b.update(fno=b["fno"] + 13) for b in first_answer(c)["bboxes"]
    ],
    "frames -1 to 4 should": lambda c: [b.update(fno=b["fno"] - 6) for b in first_answer(c)["bboxes"]],
    "the box at frame 5 should lie in the 96x64 image": lambda c: first_answer(c)["bboxes"][0].update(x2=97),
    "the box at frame 6 should lie": lambda c: first_answer(c)["bboxes"][1].update(x1=50, x2=40),
}


@pytest.mark.parametrize("message", VQ2D_DAMAGE)
def test_damage_to_a_vq2d_submission_is_named(written, message):
    annotations, path, _ = written
    damage(path, VQ2D_DAMAGE[message])
    problems = submission_check.check_vq2d(annotations, path)
    assert any(message in p for p in problems), problems


def test_the_whole_image_and_an_empty_box_at_the_first_and_last_frame_are_good(written):
    annotations, path, _ = written
    for box in ({"x1": 0, "y1": 0, "x2": 96, "y2": 64}, {"x1": 0, "y1": 0, "x2": 0, "y2": 0}):
        for frame in (0, 22):
            damage(path, lambda c, b=box, f=frame: first_answer(c).update(bboxes=[{"fno": f, **b}]))
            assert submission_check.check_vq2d(annotations, path) == []


def test_files_of_another_kind_are_refused(written):
    annotations, path, _ = written
    for text in ("[]", '{"version": "1.0.5"}'):
        path.write_text(text)
        assert len(submission_check.check_vq2d(annotations, path)) == 1
    path.write_text('{"version": "1.0.5", "results": {"videos": [1, 2]}}')
    assert "videos should be a list of 2 objects" in submission_check.check_vq2d(annotations, path)
    path.write_text('{"version": "1.0.5", ')
    with pytest.raises(DataError, match=r"submission\.json is broken or ends too early"):
        submission_check.check_vq2d(annotations, path)
    path.write_text('{"videos": [1]}')
    with pytest.raises(DataError, match=r"submission\.json"):
        submission.write_vq3d_submission(path, path, {})
    path.write_text("[]")
    assert submission_check.check_vq3d(annotations, path) == ["the file should be an object"]
    assert len(submission_check.check_egotracks([], {}, path)) == 1
    assert len(submission_check.check_trek150([], path)) == 1


# ---- VQ3D

POSE = np.array([[0, -1, 0, 0.2], [0, 0, -1, 1.0], [1, 0, 0, 0.3], [0, 0, 0, 1]])
POINT = np.array([2.0, 1.0, 0.5])


@pytest.fixture
def filled(tmp_path):
    template = tmp_path / "template.json"
    sets = {"query_sets": {"1": {}, "2": {}}, "annotation_uid": "a"}
    clip = {"clip_uid": "c", "annotations": [{}, sets]}
    template.write_text(
        json.dumps({"version": "x", "videos": [{"video_uid": "v", "scan_uid": "s", "clips": [clip]}]})
    )
    key = QueryKey("c", "a", "1")
    seen = (POSE @ np.append(POINT, 1))[:3]
    path = tmp_path / "vq3d.json"
    submission.write_vq3d_submission(path, template, {key: PlaceAnswer(key, POINT, seen, POSE)})
    return template, path


def test_a_vq3d_submission_is_the_template_filled(filled):
    template, path = filled
    assert submission_check.check_vq3d(template, path) == []
    content = json.loads(path.read_text())
    assert (content["version"], content["challenge"]) == ("1.0", "ego4d_vq3d_challenge")
    sets = content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]
    assert sets["1"]["pred_3d_vec_world"] == POINT.tolist()
    assert sets["2"] == {"pred_3d_vec_world": None, "pred_3d_vec_query_frame": None, "query_frame_pose": None}
    back = vq3d.read_vq3d_predictions(path)[QueryKey("c", "a", "1")]
    assert (back.query_from_world == POSE).all()


def place(content):
    return content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]["1"]


VQ3D_DAMAGE = {
    "version should be '1.0'": lambda c: c.update(version="1"),
    "challenge should be": lambda c: c.pop("challenge"),
    "videos should be a list of 1": lambda c: c["videos"].clear(),
    "annotation 1: query 2 is missing": lambda c: c["videos"][0]["clips"][0]["annotations"][1][
        "query_sets"
    ].pop("2"),
    "query 9 is not in the annotation file": lambda c: c["videos"][0]["clips"][0]["annotations"][1][
        "query_sets"
    ].update({"9": {}}),
    "annotation 1: query_sets should be an object": lambda c: c["videos"][0]["clips"][0]["annotations"][
        1
    ].update(query_sets=[]),
    "query 1: should be an object, not [1]": lambda c: c["videos"][0]["clips"][0]["annotations"][1][
        "query_sets"
    ].update({"1": [1]}),
    "annotations should be a list of 2 objects": lambda c: c["videos"][0]["clips"][0]["annotations"].append(
        {}
    ),
    "query 1: pred_3d_vec_world is missing": lambda c: place(c).pop("pred_3d_vec_world"),
    "pred_3d_vec_world should be null or finite numbers of shape (3,)": lambda c: place(c).update(
        pred_3d_vec_world=[1, 2]
    ),
    "query_frame_pose should be null or finite numbers of shape (4, 4)": lambda c: place(c).update(
        query_frame_pose="x"
    ),
    "needs pred_3d_vec_world and query_frame_pose": lambda c: place(c).update(query_frame_pose=None),
    "not a rotation": lambda c: place(c)["query_frame_pose"][0].__setitem__(0, 0.5),
    "the wrong way round": lambda c: place(c).update(query_frame_pose=np.linalg.inv(POSE).tolist()),
    "is not query_frame_pose applied to": lambda c: place(c).update(pred_3d_vec_query_frame=[-0.8, 0.5, 9.0]),
}


@pytest.mark.parametrize("message", VQ3D_DAMAGE)
def test_damage_to_a_vq3d_submission_is_named(filled, message):
    template, path = filled
    damage(path, VQ3D_DAMAGE[message])
    problems = submission_check.check_vq3d(template, path)
    assert any(message in p for p in problems), problems


def test_a_mirrored_pose_is_not_a_rotation(filled):
    template, path = filled
    mirrored = POSE * [[-1], [1], [1], [1]]
    seen = (mirrored @ np.append(POINT, 1))[:3].tolist()
    damage(path, lambda c: place(c).update(query_frame_pose=mirrored.tolist(), pred_3d_vec_query_frame=seen))
    assert submission_check.check_vq3d(template, path) == [
        "video v, clip c, annotation 1, query 1: query_frame_pose is not a rotation and a translation"
    ]


# ---- EgoTracks


def tracking_query(name):
    truth = Track.from_boxes([0, 6, 12], [(0, 0, 10, 10)] * 3)
    return TrackingQuery(QueryKey("e", "#0", name), "cup", 6, Box(0, 0, 10, 10), truth)


@pytest.fixture
def tracked(tmp_path):
    queries = [tracking_query("1"), tracking_query("2")]
    track = Track.from_boxes([0, 6], [(0, 0, 10, 10), (1, 2, 5, 8)])
    answer = TrackAnswer(queries[0].key, track, 1.0, frame_scores=np.array([0.5, -2.0]))
    path = tmp_path / "egotracks.json"
    submission.write_egotracks_submission(path, queries, {answer.key: answer}, {"e": 20})
    return queries, path


def test_an_egotracks_submission_has_every_frame(tracked):
    queries, path = tracked
    assert submission_check.check_egotracks(queries, {"e": 20}, path) == []
    content = json.loads(path.read_text())
    # Frames without an answer get an empty box and no more than the lowest score.
    assert content["e_1_cup"] == {
        "0": [0, 0, 10, 10, 0.5],
        "6": [1, 2, 4, 6, -2],
        "12": [0, 0, 0, 0, -2],
        "18": [0, 0, 0, 0, -2],
    }
    assert content["e_2_cup"]["0"] == [0, 0, 0, 0, 0]
    back = egotracks.read_egotracks_predictions(path, queries)
    assert back[queries[0].key].track.boxes_xyxy[1].tolist() == [1, 2, 5, 8]


def test_damage_to_an_egotracks_submission_is_named(tracked):
    queries, path = tracked
    good = json.loads(path.read_text())

    def problems(change):
        content = copy.deepcopy(good)
        change(content)
        path.write_text(json.dumps(content))
        return submission_check.check_egotracks(queries, {"e": 20}, path)

    assert problems(lambda c: c.pop("e_2_cup")) == ["sequence e_2_cup is missing"]
    assert problems(lambda c: c.update(x={})) == ["sequence x is not in the annotation file"]
    assert problems(lambda c: c["e_1_cup"].pop("12")) == [
        "sequence e_1_cup: 1 frames are missing, the first is 12"
    ]
    assert problems(lambda c: c["e_1_cup"].update({"7": [0, 0, 1, 1, 1]})) == [
        "sequence e_1_cup: 1 frames are not scored frames, the first is 7"
    ]
    assert problems(lambda c: c.update(e_1_cup=[1])) == [
        "sequence e_1_cup: should be an object: frame -> [x, y, w, h, score]"
    ]
    for row in ([0, 0, 1, 1], [0, 0, -1, 1, 1], [0, 0, 1, -1, 1], [0, 0, 1, 1, None], [0, 0, 1, "1", 1]):
        assert (
            "frame 6: should be [x, y, w, h, score]"
            in problems(lambda c, r=row: c["e_1_cup"].update({"6": r}))[0]
        )
    assert "length of its clip is not known" in submission_check.check_egotracks(queries, {}, path)[0]
    with pytest.raises(DataError, match="length of clip e is not known"):
        submission.write_egotracks_submission(path, queries, {}, {})


# ---- TREK-150


def trek(anchors=((1, True),)):
    truth = np.tile([0.0, 0, 10, 10], (3, 1))
    return TrekSequence("s", None, truth, frozenset(), tuple(anchors), ((0, 1, 2),))


def test_a_trek150_submission(tmp_path):
    sequence, path = trek(), tmp_path / "trek.json"
    runs = [run for protocol in PROTOCOLS for run in sequence.runs(protocol)]
    boxes = {run.key: run.truth_xywh + 0.12345 for run in runs}
    boxes[runs[0].key][1] = np.nan
    submission.write_trek150_submission(path, [sequence], boxes, tracker_name="ours")
    assert submission_check.check_trek150([sequence], path) == []
    content = json.loads(path.read_text())
    assert (content["challenge"], content["version"], content["tracker_name"]) == (
        "object_tracking",
        "0.1",
        "ours",
    )
    assert (content["sls_pt"], content["sls_tl"], content["sls_td"]) == (-1, -1, -1)
    assert content["results"]["ope"]["s"][:2] == [[0.123, 0.123, 10.123, 10.123], [0, 0, 0, 0]]
    assert list(content["results"]["mse"]["s"]) == ["anchor-1"]
    assert list(content["results"]["hoi"]["s"]) == ["hoi-0-1-2"]
    assert trek150.read_trek150_predictions(path, [sequence], "mse")[runs[1].key].shape == (2, 4)
    content["results"]["mse"]["s"]["anchor-1"].pop()
    del content["results"]["hoi"], content["sls_pt"]
    content["results"]["ope"]["s"][0] = [1, 2, 3]
    path.write_text(json.dumps(content))
    assert submission_check.check_trek150([sequence], path) == [
        "sls_pt is missing",
        "ope, s: should be 3 boxes of four finite numbers",
        "mse, s anchor-1: should be 2 boxes of four finite numbers",
        "results should have hoi: an object of sequences",
    ]
    with pytest.raises(DataError, match=r"no OPE prediction for s; .* all three with --predictions"):
        submission.write_trek150_submission(path, [sequence], {}, tracker_name="ours")
    del boxes[runs[1].key]
    with pytest.raises(DataError, match="no MSE prediction for s anchor-1"):
        submission.write_trek150_submission(path, [sequence], boxes, tracker_name="ours")
    both = trek(((1, False), (1, True)))
    with pytest.raises(DataError, match="both directions"):
        submission.write_trek150_submission(path, [both], boxes, tracker_name="ours")


TREK_DAMAGE = {
    "ope, t: not in the annotations": lambda r: r["ope"].update(t=[]),
    "mse, t: not in the annotations": lambda r: r["mse"].update(t={}),
    "mse, s anchor-9: not in the annotations": lambda r: r["mse"]["s"].update({"anchor-9": []}),
    "mse, s: should be an object of anchors": lambda r: r["mse"].update(s=[1]),
    "results should have mse: an object of sequences": lambda r: r.update(mse=[]),
    "hoi, s hoi-0-1-2: missing": lambda r: r["hoi"]["s"].pop("hoi-0-1-2"),
    "ope, s: missing": lambda r: r["ope"].pop("s"),
    "ope, s: should be 3 boxes of four finite numbers": lambda r: r["ope"]["s"][0].__setitem__(0, "1"),
    "hoi, s hoi-0-1-2: should be 2 boxes of four finite numbers": lambda r: r["hoi"]["s"]["hoi-0-1-2"].pop(),
    "ope, s: a box has a negative width or height": lambda r: r["ope"]["s"][2].__setitem__(3, -1),
}


@pytest.mark.parametrize("message", TREK_DAMAGE)
def test_damage_to_a_trek150_submission_is_named(tmp_path, message):
    sequence, path = trek(), tmp_path / "trek.json"
    boxes = {run.key: run.truth_xywh for protocol in PROTOCOLS for run in sequence.runs(protocol)}
    submission.write_trek150_submission(path, [sequence], boxes, tracker_name="ours")
    damage(path, lambda content: TREK_DAMAGE[message](content["results"]))
    assert submission_check.check_trek150([sequence], path) == [message]
