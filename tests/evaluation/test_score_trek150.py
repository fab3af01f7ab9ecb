"""TREK-150 on toy sequences worked by hand: invisible frames, anchors both ways, missing boxes."""

import json
from pathlib import Path

import numpy as np
import pytest

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.trek150 import TrekSequence
from egohieraloc.errors import DataError
from egohieraloc.evaluation import trek150
from egohieraloc.evaluation.predictions import TrackAnswer, write_own

FULL, HALF, AWAY = (0, 0, 10, 10), (0, 0, 5, 10), (100, 100, 10, 10)
GONE = (-1, -1, -1, -1)
NOTHING = (np.nan,) * 4


def sequence(*truth, name="s", anchors=(), interactions=(), attributes=()):
    return TrekSequence(
        name, Path(name), np.array(truth, float), frozenset(attributes), tuple(anchors), tuple(interactions)
    )


def rows(*boxes):
    return np.array(boxes, float)


def only_run(*truth):
    return sequence(*truth).runs("ope")[0]


def test_a_perfect_run():
    found = trek150.score_run(only_run(FULL, FULL), rows(FULL, FULL))
    # The success curve is strict: at threshold 1 even a perfect box fails, so 20 of 21.
    assert found.success == pytest.approx(20 / 21)
    assert (found.normalized_precision, found.robustness, found.recall) == (1, 1, 1)


def test_the_first_box_is_given_and_invisible_frames_are_skipped():
    run = only_run(FULL, GONE, FULL, FULL)
    # Frame 0 is replaced by the truth; frame 1 does not count; frame 2 has IoU 0.5; frame 3 is lost.
    found = trek150.score_run(run, rows(AWAY, AWAY, HALF, AWAY))
    # IoUs 1, 0.5, 0. Above threshold t = 0, 0.05, ... 1: 20, 10 (0 to 0.45) and 0 of 21.
    assert found.success == pytest.approx((20 + 10 + 0) / (3 * 21))
    # HALF's centre is 2.5 px left: 0.25 of the width. At or below 0.25 ... 0.5 of 51 thresholds: 26.
    assert found.normalized_precision == pytest.approx((51 + 26 + 0) / (3 * 51))
    # First frame at or below t: below 0.5 the lost one, third of three (2/3); at 0.5 the second (1/3).
    assert found.robustness == pytest.approx((50 * 2 / 3 + 1 / 3) / 51)
    assert found.recall == pytest.approx(2 / 3)


def test_a_missing_box_is_a_lost_frame():
    run = only_run(FULL, FULL)
    found, lost = (trek150.score_run(run, rows(FULL, box)) for box in (NOTHING, AWAY))
    assert found == lost


def test_centre_errors_are_in_units_of_the_true_box():
    # Centres at 12 and 5 in x, both at 5 in y; the true box is 10 wide.
    assert trek150.normalized_center_error(rows((10, 3, 4, 4)), rows((0, 0, 10, 10)))[0] == pytest.approx(0.7)
    # Centres differ by (1, 1.75); the true sides are 2 and 0.5, which counts as 1.
    error = trek150.normalized_center_error(rows((0, 0, 4, 4)), rows((0, 0, 2, 0.5)))
    assert error[0] == pytest.approx(np.hypot(1 / 2, 1.75 / 1))


def test_iou_of_boxes_without_area_or_negative_ones():
    assert trek150.iou_xywh(rows((5, 5, 0, 0)), rows((5, 5, 0, 0)))[0] == 0
    assert trek150.iou_xywh(rows(GONE), rows(FULL))[0] == 0
    assert trek150.iou_xywh(rows(HALF), rows(FULL))[0] == 0.5


def boxes_for(sequences, protocol, box):
    """Every run of every sequence answered with this box."""
    return {
        r.key: np.tile(np.array(box, float), (len(r.frames), 1)) for s in sequences for r in s.runs(protocol)
    }


def test_ope_counts_every_sequence_alike():
    short, long = sequence(FULL, FULL, name="short"), sequence(*[FULL] * 10, name="long")
    boxes = boxes_for([short], "ope", FULL) | boxes_for([long], "ope", AWAY)
    found = trek150.score([short, long], "ope", boxes)
    assert found.recall == pytest.approx((1 + 1 / 10) / 2)


def test_mse_weighs_runs_by_length_then_sequences_by_length():
    # Ten frames. Anchor 0 forwards: 10 frames, all right. Anchor 4 backwards: 5 frames, only the first right.
    first = sequence(*[FULL] * 10, name="first", anchors=[(0, False), (4, True)])
    # Two frames, one run, all right.
    second = sequence(FULL, FULL, name="second", anchors=[(0, False)])
    key = QueryKey("first", "mse", "anchor-4")
    boxes = boxes_for([first, second], "mse", FULL) | {key: np.tile(np.array(AWAY, float), (5, 1))}
    found = trek150.score([first, second], "mse", boxes)
    of_first = (10 * 1 + 5 * 1 / 5) / 15
    assert found.recall == pytest.approx((10 * of_first + 2 * 1) / 12)


def test_a_backward_run_is_compared_backwards():
    moving = sequence((0, 0, 10, 10), (50, 0, 10, 10), (100, 0, 10, 10), anchors=[(2, True)])
    (run,) = moving.runs("mse")
    assert trek150.score_run(run, run.truth_xywh).recall == 1
    assert trek150.score_run(run, run.truth_xywh[::-1].copy()).recall == pytest.approx(2 / 3)


def test_hoi_pools_all_runs_by_length():
    # Runs of 2 and 4 frames in a sequence of 12, 4 in another: the length of a sequence has no weight.
    first = sequence(*[FULL] * 12, name="first", interactions=[(0, 1, 0), (2, 5, 2)])
    second = sequence(*[FULL] * 4, name="second", interactions=[(0, 3, 1)])
    third = sequence(FULL, name="third")
    boxes = boxes_for([first, second], "hoi", FULL)
    boxes[QueryKey("second", "hoi", "hoi-0-3-1")] = np.tile(np.array(AWAY, float), (4, 1))
    found = trek150.score([first, second, third], "hoi", boxes)
    assert found.recall == pytest.approx((2 + 4 + 4 * 1 / 4) / 10)


def test_reports_by_attribute_and_missing_runs():
    good = sequence(FULL, FULL, name="good", attributes=["FM", "LR"])
    bad = sequence(FULL, FULL, name="bad", attributes=["LR"])
    found = trek150.report_trek150([good, bad], "ope", boxes_for([good], "ope", FULL))
    assert found.missing == 1
    assert found.overall.recall == pytest.approx((1 + 0.5) / 2)
    assert [(name, number, s.recall) for name, number, s in found.attributes] == [
        ("FM", 1, 1),
        ("LR", 2, 0.75),
    ]
    assert found.to_json()["attributes"]["LR"]["num_sequences"] == 2


def test_only_sequences_with_runs_of_the_protocol_are_counted():
    anchored = sequence(FULL, FULL, name="a", anchors=[(0, False)], attributes=["FM"])
    plain = sequence(FULL, FULL, name="b", attributes=["FM", "LR"])
    found = trek150.report_trek150([anchored, plain], "mse", boxes_for([anchored], "mse", FULL))
    assert found.num_sequences == 1
    assert [(name, number) for name, number, _ in found.attributes] == [("FM", 1)]


def test_runs_without_visible_frames_are_left_out():
    blind = sequence(GONE, GONE, name="blind", attributes=["X"])
    good = sequence(FULL, FULL, name="good")
    assert trek150.score_run(blind.runs("ope")[0], rows(FULL, FULL)) is None
    boxes = boxes_for([blind, good], "ope", FULL)
    found = trek150.report_trek150([blind, good], "ope", boxes)
    assert (found.overall.recall, found.num_sequences) == (1, 1)
    assert found.attributes == ()
    with pytest.raises(DataError, match="never visible"):
        trek150.report_trek150([blind], "ope", boxes)


@pytest.mark.parametrize(("protocol", "wanted"), [("ope", 1 / 2), ("mse", 3 / 4), ("hoi", 2 / 3)])
def test_a_broken_sequence_counts_as_not_answered(tmp_path, protocol, wanted):
    """One frame of images against three of truth, two of them in an interaction."""
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "0.jpg").write_bytes(b"")
    sound = sequence(FULL, FULL, FULL, anchors=[(0, False)], interactions=[(0, 1, 0)])
    broken = TrekSequence("b", tmp_path, np.zeros((0, 4)), frozenset(), (), (), problem="torn")
    boxes = boxes_for([sound], protocol, FULL)
    found = trek150.report_trek150([sound, broken], protocol, boxes)
    assert found.overall.robustness == pytest.approx(wanted)
    assert (found.num_sequences, found.missing) == (2, 1)


def test_what_cannot_be_scored():
    with pytest.raises(DataError, match="1 boxes for 2 frames in clip s, annotation ope"):
        trek150.score_run(only_run(FULL, FULL), rows(FULL))
    with pytest.raises(DataError, match="None of the 0 predictions is for one of the 1 ope runs"):
        trek150.report_trek150([sequence(FULL)], "ope", {})


def test_predictions_from_a_folder_a_challenge_file_and_our_own(tmp_path):
    one = sequence(FULL, FULL, name="one", anchors=[(1, True)])
    two = sequence(FULL, FULL, name="two")
    (tmp_path / "mse").mkdir()
    (tmp_path / "mse" / "one-anchor-1.txt").write_text(
        "0.000,0.000,10.000,10.000\n0.000,0.000,5.000,10.000\n"
    )
    (tmp_path / "ope").mkdir()
    (tmp_path / "ope" / "two.txt").write_text("1,1,1,1\n2,2,2,2\n")
    folder = trek150.read_trek150_predictions(tmp_path, [one, two], "mse")
    key = QueryKey("one", "mse", "anchor-1")
    assert folder.keys() == {key}
    assert folder[key].tolist() == [list(FULL), list(HALF)]
    assert trek150.read_trek150_predictions(tmp_path, [one, two], "ope").keys() == {
        QueryKey("two", "ope", "")
    }
    challenge = tmp_path / "challenge.json"
    results = {
        "ope": {"two": [[1, 1, 1, 1], [2, 2, 2, 2]]},
        "mse": {"one": {"anchor-1": [list(FULL), list(HALF)]}},
    }
    challenge.write_text(json.dumps({"results": results}))
    assert (
        trek150.read_trek150_predictions(challenge, [one, two], "mse")[key].tolist() == folder[key].tolist()
    )
    assert (
        trek150.read_trek150_predictions(challenge, [one, two], "ope")[QueryKey("two", "ope", "")][1, 0] == 2
    )
    assert trek150.read_trek150_predictions(challenge, [one], "hoi") == {}
    assert trek150.read_all_protocols(challenge, [one, two]).keys() == {key, QueryKey("two", "ope", "")}
    results["mse"]["one"]["anchor-1"] = [[1, 2, 3]]
    challenge.write_text(json.dumps({"results": results}))
    with pytest.raises(DataError, match=r"challenge\.json: one-anchor-1"):
        trek150.read_trek150_predictions(challenge, [one], "mse")
    for results in ({"mse": [1]}, {"mse": {"one": [1]}}):
        challenge.write_text(json.dumps({"results": results}))
        with pytest.raises(DataError, match=r"challenge\.json"):
            trek150.read_trek150_predictions(challenge, [one], "mse")
    challenge.write_text("[]")
    with pytest.raises(DataError, match=r"challenge\.json should be an object, a challenge file"):
        trek150.read_trek150_predictions(challenge, [one], "mse")
    challenge.write_text("{}")
    with pytest.raises(DataError, match=r"challenge\.json: the field 'results' is missing"):
        trek150.read_trek150_predictions(challenge, [one], "mse")
    own = tmp_path / "own.jsonl"
    # The run goes backwards: frame 1 first. Frame 0 has no box.
    write_own(own, {"benchmark": "trek150"}, [TrackAnswer(key, Track.from_boxes([1], [(3, 4, 13, 24)]), 1.0)])
    found = trek150.read_trek150_predictions(own, [one, two], "mse")[key]
    assert found[0].tolist() == [3, 4, 10, 20]
    assert np.isnan(found[1]).all()
