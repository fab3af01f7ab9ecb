"""EgoTracks on toy sequences worked by hand, and against a slow reimplementation."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.egotracks import TrackingQuery
from egohieraloc.errors import DataError
from egohieraloc.evaluation import egotracks
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.types import Box

FULL, HALF, AWAY = (0, 0, 10, 10), (0, 0, 5, 10), (50, 50, 60, 60)


def query(truth, crop_frame=6, name="1"):
    track = None if truth is None else Track.from_boxes(list(truth), list(truth.values()))
    return TrackingQuery(QueryKey("clip", "#0", name), "cup", crop_frame, Box(0, 0, 10, 10), track)


def answer(boxes, scores=None, name="1"):
    track = Track.from_boxes(list(boxes), list(boxes.values()))
    return TrackAnswer(
        QueryKey("clip", "#0", name),
        track,
        1.0,
        frame_scores=None if scores is None else np.array(scores, float),
    )


# Scored frames 0, 6, 12, 18, 24 of a clip of 30. The crop is at 6, the object is away at 18.
TRUTH = {0: FULL, 6: FULL, 12: FULL, 24: FULL}
# Right at 0, half at 12, a false alarm at 18, nothing at 24.
FOUND = answer({0: FULL, 6: FULL, 12: HALF, 18: FULL}, [0.9, 1.0, 0.6, 0.3])


def test_overlaps_frame_by_frame():
    measured = egotracks.measure(query(TRUTH), FOUND, 30)
    assert measured.iou.tolist() == [1, 0, 0.5, 0, 0]
    assert measured.visible.tolist() == [True, False, True, False, True]
    assert measured.score[:4].tolist() == [0.9, 1.0, 0.6, 0.3]
    assert np.isnan(measured.score[4])


def test_average_overlap_counts_missing_as_zero_and_leaves_the_crop_out():
    # Frames 0, 12 and 24: (1 + 0.5 + 0) / 3.
    assert egotracks.average_overlap([egotracks.measure(query(TRUTH), FOUND, 30)]) == pytest.approx(0.5)


def test_precision_recall_and_f_by_hand():
    # At tau 0.6 frames 0, 6 and 12 are reported: precision (1 + 0 + 0.5) / 3, recall 1.5 / 3. F = 0.5.
    # At tau 0.9: precision 1 / 2, recall 1 / 3. At 0.3: 1.5 / 4 and 1.5 / 3. So 0.6 is best.
    found = egotracks.long_term_scores([egotracks.measure(query(TRUTH), FOUND, 30)])
    assert (found.precision, found.recall, found.f_score, found.threshold) == (0.5, 0.5, 0.5, 0.6)


def test_the_two_averages_differ_when_sequences_do():
    long = egotracks.SequenceOverlaps(np.array([1.0, 1, 1, 1]), np.ones(4, bool), np.full(4, 0.5))
    short = egotracks.SequenceOverlaps(np.array([0.0, 0]), np.ones(2, bool), np.full(2, 0.5))
    assert egotracks.long_term_scores([long, short]).precision == pytest.approx(0.5)
    assert egotracks.long_term_scores([long, short], pooled=True).precision == pytest.approx(4 / 6)
    # A sequence that reports nothing at this threshold has precision 1 and recall 0.
    quiet = egotracks.SequenceOverlaps(np.array([0.0, 0]), np.ones(2, bool), np.full(2, 0.1))
    found = egotracks.long_term_scores([long, quiet])
    assert (found.precision, found.recall, found.threshold) == (1.0, 0.5, 0.5)


def test_every_frame_of_the_clip_counts_as_its_authors_count():
    """Truth off the grid is to be found too; the 26 frames without a prediction are reported with score 0."""
    measured = egotracks.measure(query({**TRUTH, 7: FULL}), FOUND, 30)
    assert measured.visible.sum() == 4
    assert measured.silent == 26
    assert egotracks.average_overlap([measured]) == pytest.approx(1.5 / 4)
    # All of 30 scores are thresholds; at 0 every frame is reported: precision 1.5 / 30.
    taus = egotracks.thresholds([measured])
    assert taus[1:-1].tolist() == [1.0, 0.9, 0.6, 0.3] + [0.0] * 26
    unsure = answer({0: FULL, 6: FULL, 12: HALF, 18: FULL}, [-0.9, -0.1, -0.6, -3])
    below = egotracks.measure(query(TRUTH), unsure, 30)
    # Silent frames outrank negative scores: at any threshold they are reported first.
    found = egotracks.long_term_scores([below])
    assert (found.precision, found.recall) == pytest.approx((1.5 / 29, 1.5 / 3))
    alone = egotracks.long_term_scores([egotracks.measure(query(TRUTH), unsure, 30, grid=True)])
    assert (alone.precision, alone.recall) == pytest.approx((0.5, 0.5))


def test_on_the_grid_frames_off_it_and_behind_the_end_are_not_scored():
    truth = {**TRUTH, 7: FULL, 36: FULL}
    assert egotracks.measure(query(truth), FOUND, 30, grid=True).visible.sum() == 3
    # Without the clip's length it reaches to the last box known: frame 36.
    assert len(egotracks.measure(query(truth), FOUND, None, grid=True).iou) == 7
    assert len(egotracks.measure(query(truth), None, None, grid=True).iou) == 7
    assert egotracks.measure(query(truth), None, None).silent == 37
    report = egotracks.report_egotracks([query(truth)], {FOUND.key: FOUND}, {"clip": 30}, grid=True)
    assert report.average_overlap == pytest.approx(0.5)


def test_without_frame_scores_every_box_counts_alike():
    measured = egotracks.measure(query(TRUTH), answer({0: FULL, 24: AWAY}), 30)
    assert measured.score[[0, 3]].tolist() == [1, 1]
    assert measured.iou.tolist() == [1, 0, 0, 0]


def test_a_sequence_without_anything_to_find_is_left_out():
    queries = [query(TRUTH), query({6: FULL}, name="2")]
    found = egotracks.report_egotracks(queries, {FOUND.key: FOUND}, {"clip": 30})
    assert (found.num_sequences, found.left_out, found.missing) == (1, 1, 1)
    assert found.by_sequence.f_score == found.pooled.f_score == 0.5
    assert found.to_json()["average_overlap"] == pytest.approx(0.5)


def test_sequences_that_are_not_annotated_are_left_out_when_others_are():
    queries = [query(TRUTH), query(None, name="2")]
    unknown = answer({0: FULL}, name="9")
    found = egotracks.report_egotracks(queries, {FOUND.key: FOUND, unknown.key: unknown}, {"clip": 30})
    assert (found.num_sequences, found.left_out, found.ignored) == (1, 1, 1)
    assert found.average_overlap == pytest.approx(0.5)


def test_groups_by_size_absence_and_blur():
    large = (0, 0, 96, 96)
    sequences = {
        "1": {0: FULL, 6: FULL, 12: FULL},  # small, never away
        "2": {0: FULL, 12: large},  # large, away for one scored frame: 0.2 s
        "3": {0: FULL, 306: FULL},  # away from 6 to 300: 10 s
        "4": {0: FULL, 1806: FULL},  # 60 s
    }
    queries = [query(truth, crop_frame=0, name=name) for name, truth in sequences.items()]
    answers = {
        q.key: TrackAnswer(q.key, q.truth, 1.0, crop_sharpness=float(q.key.query_set)) for q in queries
    }
    found = egotracks.report_egotracks(queries, answers)
    assert {name: s.num_sequences for name, s in found.groups} == {
        "small (< 32² px)": 3,
        "large (≥ 96² px)": 1,
        "away < 10 s at a time": 2,
        "away 10 to 60 s at a time": 1,
        "away ≥ 60 s at a time": 1,
        "most blurred third": 1,
        "middle third by blur": 1,
        "sharpest third": 2,
    }
    assert found.to_json()["groups"]["large (≥ 96² px)"]["average_overlap"] == 1
    assert [q.longest_absence_s for q in queries] == pytest.approx([0, 0.2, 10, 60])
    assert query(None).longest_absence_s is None


def test_a_sequence_without_prediction_counts_as_lost():
    queries = [query(TRUTH), query(TRUTH, name="2")]
    found = egotracks.report_egotracks(queries, {FOUND.key: FOUND}, {"clip": 30})
    assert found.average_overlap == pytest.approx(0.25)
    assert found.missing == 1 + 4
    assert found.by_sequence.recall == pytest.approx(0.25)


def test_what_cannot_be_scored():
    with pytest.raises(
        DataError, match="no EgoTracks sequence to score: the annotations have no ground truth"
    ):
        egotracks.report_egotracks([query(None)], {FOUND.key: FOUND})
    with pytest.raises(DataError, match="no track for clip clip"):
        egotracks.measure(query(None), FOUND, 30)
    with pytest.raises(DataError, match="None of the 1 predictions"):
        egotracks.report_egotracks([query(TRUTH, name="3")], {FOUND.key: FOUND})
    with pytest.raises(DataError, match="no EgoTracks sequence"):
        egotracks.report_egotracks([query({6: FULL})], {FOUND.key: FOUND}, {"clip": 30})


def slow_curves(sequences, taus):
    """Precision and recall averaged over sequences, as the definition says."""
    points = []
    for tau in taus:
        rows = []
        for s in sequences:
            reported = [i for i, score in enumerate(s.score) if not np.isnan(score) and score >= tau]
            total = sum(s.iou[i] for i in reported)
            rows.append((total / len(reported) if reported else 1.0, total / s.visible.sum()))
        points.append(np.mean(rows, axis=0))
    return points


def slow_thresholds(sequences):
    scores = sorted((v for s in sequences for v in s.score if not np.isnan(v)), reverse=True)
    if len(scores) > 98:
        delta = len(scores) // 98
        scores = [scores[round(delta + i * (len(scores) - 2 * delta) / 97)] for i in range(98)]
    return [np.inf, *scores, -np.inf]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_silent_frames_are_frames_with_score_0(seed, lengths):
    """Counted, not written down: the same as sequences that have them all."""
    random = np.random.default_rng(seed)
    short, whole = [], []
    for sequence in random_sequences(seed, lengths):
        score = sequence.score - random.choice([0.0, 0.5])
        silent = int(random.integers(0, 200))
        unreported = int(np.isnan(score).sum())
        short.append(egotracks.SequenceOverlaps(sequence.iou, sequence.visible, score, silent + unreported))
        whole.append(
            egotracks.SequenceOverlaps(
                np.append(sequence.iou, np.zeros(silent)),
                np.append(sequence.visible, np.zeros(silent, bool)),
                np.append(np.nan_to_num(score), np.zeros(silent)),
            )
        )
    assert egotracks.thresholds(short).tolist() == slow_thresholds(whole)
    for pooled in (False, True):
        one, other = (egotracks.long_term_scores(s, pooled=pooled) for s in (short, whole))
        assert (one.f_score, one.precision, one.recall) == pytest.approx(
            (other.f_score, other.precision, other.recall), abs=1e-12
        )


def random_sequences(seed, lengths):
    random = np.random.default_rng(seed)
    for length in lengths:
        visible = random.random(length) < 0.7
        visible[0] = True
        score = np.round(random.random(length), 1)
        score[random.random(length) < 0.1] = np.nan
        yield egotracks.SequenceOverlaps(
            np.where(visible & ~np.isnan(score), random.random(length), 0), visible, score
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_random_sequences_agree_with_the_slow_way(seed, lengths):
    sequences = list(random_sequences(seed, lengths))
    taus = slow_thresholds(sequences)
    assert egotracks.thresholds(sequences).tolist() == taus
    points = slow_curves(sequences, taus)
    scores = [2 * p * r / (p + r) if p + r else 0.0 for p, r in points]
    found = egotracks.long_term_scores(sequences)
    assert found.f_score == pytest.approx(max(scores), abs=1e-9)
    assert any(np.allclose((found.precision, found.recall), point, atol=1e-9) for point in points)
    joined = egotracks.SequenceOverlaps(
        *(np.concatenate([getattr(s, n) for s in sequences]) for n in ("iou", "visible", "score"))
    )
    pooled = [2 * p * r / (p + r) if p + r else 0.0 for p, r in slow_curves([joined], taus)]
    assert egotracks.long_term_scores(sequences, pooled=True).f_score == pytest.approx(max(pooled), abs=1e-9)


@pytest.mark.parametrize(("number", "kept"), [(98, 98), (99, 98), (500, 98), (0, 0)])
def test_many_scores_are_thinned(number, kept):
    scores = np.linspace(0, 1, number)
    found = egotracks.thresholds([egotracks.SequenceOverlaps(scores, np.ones(number, bool), scores)])
    assert len(found) == kept + 2
    assert (found[0], found[-1]) == (np.inf, -np.inf)
    if number <= 98:
        assert found[1:-1].tolist() == sorted(scores, reverse=True)


def test_challenge_files(tmp_path):
    path = tmp_path / "submission.json"
    path.write_text(
        json.dumps({"clip_1_cup": {"12": [0, 0, 5, 10, 0.6], "0": [0, 0, 10, 10, 0.9]}, "other": {}})
    )
    answers = egotracks.read_egotracks_predictions(path, [query(TRUTH)])
    found = answers[QueryKey("clip", "#0", "1")]
    assert found.track.frames.tolist() == [0, 12]
    assert found.track.boxes_xyxy[1].tolist() == [0, 0, 5, 10]
    assert found.frame_scores.tolist() == [0.9, 0.6]
    assert found.score == 0.9
    for row in ([0, 0, 5, 10], [0, 0, -5, 10, 1], [0, 0, 5, 10, "x"]):
        path.write_text(json.dumps({"clip_1_cup": {"0": row}}))
        with pytest.raises(DataError, match=r"submission\.json: sequence clip_1_cup"):
            egotracks.read_egotracks_predictions(path, [query(TRUTH)])
    path.write_text('{"clip_1_cup": {"0": [0, 0, 5, 5, NaN]}}')
    with pytest.raises(DataError, match="not finite"):
        egotracks.read_egotracks_predictions(path, [query(TRUTH)])
