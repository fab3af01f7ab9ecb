"""VQ2D's measures against an independent slow reimplementation and against cases worked by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import VisualQuery
from egohieraloc.errors import DataError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.types import Box

# ---- the slow way: dictionaries of frames, exact fractions, one definition after the other


def area(box):
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def common_area(a, b):
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def ratio(a, b):
    return Fraction(a) / Fraction(b) if b else Fraction(0)


def slow_overlap(truth, answer):
    """Both are {frame: box} with whole coordinates."""
    union = len(truth.keys() | answer.keys())
    temporal = ratio(len(truth.keys() & answer.keys()), union)
    common = sum(common_area(truth[f], answer[f]) for f in truth if f in answer)
    tube = ratio(common, sum(map(area, truth.values())) + sum(map(area, answer.values())) - common)
    recovered = 0
    for frame, box in truth.items():
        if frame in answer:
            inter = common_area(box, answer[frame])
            recovered += ratio(inter, area(box) + area(answer[frame]) - inter) >= Fraction(1, 2)
    return temporal, tube, recovered


def slow_average_precision(hits, scores):
    ranked = sorted(range(len(hits)), key=lambda i: (scores[i], i), reverse=True)
    points, found = [], 0
    for rank, i in enumerate(ranked, start=1):
        found += hits[i]
        points.append((Fraction(found, len(hits)), Fraction(found, rank)))
    total, last = Fraction(0), Fraction(0)
    for recall, _ in points:
        if recall > last:
            best = max(precision for r, precision in points if r >= recall)
            total += (recall - last) * best
            last = recall
    return total


def slow_scores(cases):
    rows = [(*slow_overlap(t, a), len(t), s) for t, a, s in cases]
    thresholds = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(19, 20)]
    scores = [row[4] for row in rows]
    ap = [
        [slow_average_precision([row[k] >= thr for row in rows], scores) for thr in thresholds]
        for k in (0, 1)
    ]
    return {
        "tap": sum(ap[0]) / 4,
        "tap25": ap[0][0],
        "stap": sum(ap[1]) / 4,
        "stap25": ap[1][0],
        "recovery": 100 * ratio(sum(r[2] for r in rows), sum(r[3] for r in rows)),
        "success": 100 * Fraction(sum(r[1] >= Fraction(1, 20) for r in rows), len(rows)),
    }


def as_track(boxes):
    return Track.from_boxes(list(boxes), list(boxes.values())) if boxes else Track.empty()


def fast_scores(cases):
    return vq2d.score(vq2d.measure((as_track(t), as_track(a), s) for t, a, s in cases))


def assert_equal(cases):
    fast, slow = fast_scores(cases), slow_scores(cases)
    for name, value in slow.items():
        assert getattr(fast, name) == pytest.approx(float(value), abs=1e-9), name


corner = st.integers(0, 12)
boxes = st.tuples(corner, corner, corner, corner).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)


def tracks(minimum):
    lengths = st.tuples(st.integers(0, 8), st.lists(boxes, min_size=minimum, max_size=7))
    return lengths.map(lambda t: {t[0] + i: b for i, b in enumerate(t[1])})


few_scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])
cases = st.lists(st.tuples(tracks(1), tracks(0), few_scores | st.floats(0, 1)), min_size=1, max_size=14)


@settings(max_examples=200, deadline=None)
@given(cases)
def test_random_tracks_agree_with_the_slow_way(cases):
    assert_equal(cases)


def near(random, truth):
    """A track around the true one, so that overlaps near every threshold occur."""
    shift = random.integers(-2, 3)
    moved = {
        f + int(shift): tuple(np.array(b) + np.repeat(random.integers(-4, 5), 4)) for f, b in truth.items()
    }
    return {f: tuple(int(v) for v in b) for f, b in list(moved.items())[: random.integers(0, len(moved) + 1)]}


def test_thousands_of_tracks_near_the_truth_agree_with_the_slow_way():
    random = np.random.default_rng(7)
    cases = []
    for _ in range(3000):
        start, length = random.integers(0, 50), random.integers(1, 12)
        x, y, w, h = (int(v) for v in random.integers(1, 60, 4))
        truth = {int(start) + i: (x + i, y, x + i + w, y + h) for i in range(length)}
        cases.append((truth, near(random, truth), float(random.choice([0.1, 0.5, random.random()]))))
    for first in range(0, 3000, 100):
        assert_equal(cases[first : first + 100])
    assert_equal(cases[:400])


def test_areas_are_added_in_order_as_the_benchmark_does():
    """`v += area` for each box; NumPy's pairwise sum would end a few units in the last place away."""
    random = np.random.default_rng(3)
    pairwise_differs = 0
    for _ in range(200):
        corners = np.sort(random.uniform(0, 300, (60, 2, 2)), 1).reshape(60, 4)
        truth, moved = (Track(np.arange(60), boxes) for boxes in (corners, corners + 3.7))
        volumes, common = [0.0, 0.0], 0.0
        for a, b in zip(truth.boxes_xyxy.tolist(), moved.boxes_xyxy.tolist(), strict=True):
            volumes[0] += area(a)
            volumes[1] += area(b)
            common += common_area(a, b)
        assert vq2d.overlap(truth, moved)[1] == common / (volumes[0] + volumes[1] - common)
        pairwise_differs += truth.areas.sum() != volumes[0]
    assert pairwise_differs > 50


# ---- by hand

SQUARE = (0, 0, 10, 10)


def straight(first, last, box=SQUARE):
    return Track.from_boxes(range(first, last + 1), [box] * (last - first + 1))


def test_frames_are_counted_inclusively():
    # Truth 10..19 (10 frames), answer 15..24 (10): five shared of fifteen.
    temporal, tube, recovered = vq2d.overlap(straight(10, 19), straight(15, 24))
    assert (temporal, recovered) == (5 / 15, 5)
    # Each frame has volume 100: 500 / (1000 + 1000 - 500).
    assert tube == 5 / 15
    # They only touch: frame 19 is the last of one and the first of the other.
    assert vq2d.overlap(straight(10, 19), straight(19, 19))[0] == 1 / 10
    assert vq2d.overlap(straight(10, 19), straight(20, 25)) == (0.0, 0.0, 0)


def test_a_box_has_no_extra_pixel():
    # Half the width: 50 of 100, so the IoU is exactly one half and that is enough to be recovered.
    temporal, tube, recovered = vq2d.overlap(straight(0, 3), straight(0, 3, (0, 0, 5, 10)))
    assert (temporal, tube, recovered) == (1.0, 0.5, 4)
    assert vq2d.overlap(straight(0, 3), straight(0, 3, (0, 0, 4.99, 10)))[2] == 0
    # Side by side boxes share nothing.
    assert vq2d.overlap(straight(0, 3), straight(0, 3, (10, 0, 20, 10)))[1] == 0


def test_tracks_without_frames_or_area_are_misses():
    assert vq2d.overlap(straight(0, 3), Track.empty()) == (0.0, 0.0, 0)
    assert vq2d.overlap(Track.empty(), straight(0, 3)) == (0.0, 0.0, 0)
    flat = straight(0, 3, (5, 5, 5, 5))
    assert vq2d.overlap(flat, flat) == (1.0, 0.0, 0)


def test_average_precision_by_hand():
    # Ranked: hit, miss, hit, miss. Precision 1, 1/2, 2/3, 2/4; recall 1/4, 1/4, 2/4, 2/4.
    hits, scores = np.array([True, False, True, False]), np.array([0.9, 0.8, 0.7, 0.6])
    assert vq2d.average_precision(hits, scores) == pytest.approx(1 / 4 + 2 / 3 / 4)
    # The miss first: precision 0, 1/2, 1/3, 2/4; the envelope is 1/2 at both hits.
    assert vq2d.average_precision(hits[[1, 0, 3, 2]], scores) == pytest.approx(1 / 4)
    assert vq2d.average_precision(~np.zeros(5, bool), np.ones(5)) == 1
    assert vq2d.average_precision(np.zeros(5, bool), np.ones(5)) == 0


def test_among_equal_scores_the_last_query_comes_first():
    hits = np.array([True, False])
    assert vq2d.average_precision(hits, np.array([0.5, 0.5])) == pytest.approx(1 / 2 * 1 / 2)
    assert vq2d.average_precision(hits[::-1], np.array([0.5, 0.5])) == pytest.approx(1 / 2 * 1)


def test_a_constant_score_makes_precision_about_the_square_of_the_hit_rate():
    random = np.random.default_rng(0)
    hits = random.random(4000) < 0.55
    assert vq2d.average_precision(hits, np.ones(4000)) == pytest.approx(0.55**2, abs=0.03)
    assert vq2d.average_precision(hits, hits + 0.0) == pytest.approx(hits.mean())


def overlaps(temporal, tube, score, recovered=None, frames=None):
    count = len(temporal)
    return vq2d.Overlaps(
        *(
            np.array(v, float)
            for v in (temporal, tube, recovered or [0] * count, frames or [1] * count, score)
        )
    )


def test_a_threshold_is_reached_by_equality():
    found = vq2d.score(overlaps([0.25, 0.95], [0.05, 0.0499], [1, 2]))
    assert found.tap25 == 1
    assert found.tap == pytest.approx((1 + 3 * 0.5) / 4)
    assert found.success == 50
    assert (found.stap, found.stap25) == (0, 0)


def test_recovery_weighs_frames_not_queries():
    # 10 of 10 frames in one query and 0 of 90 in the other: 10 %, not 50 %.
    assert vq2d.score(overlaps([1, 1], [1, 0], [1, 1], recovered=[10, 0], frames=[10, 90])).recovery == 10


def test_a_constant_score_replaces_the_own():
    data = overlaps([1, 0, 1], [1, 0, 1], [0.9, 0.1, 0.8])
    assert vq2d.score(data).tap == pytest.approx(2 / 3)
    # In the order 3, 2, 1: hit, miss, hit.
    assert vq2d.score(data, constant_score=True).tap == pytest.approx((1 + 2 / 3) / 3)


# ---- files and groups


def visual_query(number, response, *, query_frame=100):
    return VisualQuery(
        QueryKey("clip", "a", str(number)),
        0,
        query_frame,
        200,
        Box(0, 0, 5, 5),
        5.0,
        640,
        480,
        "cup",
        response,
    )


def answer(number, track, score=1.0, **extra):
    return TrackAnswer(QueryKey("clip", "a", str(number)), track, score, **extra)


def test_missing_predictions_are_misses_and_foreign_ones_are_counted():
    large = straight(10, 19, (0, 0, 100, 100))
    queries = [visual_query(1, straight(10, 19)), visual_query(2, straight(10, 19)), visual_query(3, large)]
    answers = {a.key: a for a in (answer(1, straight(10, 19)), answer(3, large), answer(9, large))}
    found = vq2d.report_vq2d(queries, answers)
    assert (found.missing, found.ignored) == (1, 1)
    assert found.own_score.success == pytest.approx(200 / 3)
    assert found.own_score.recovery == pytest.approx(200 / 3)
    groups = found.to_json()["groups"]
    assert (groups["small (< 32² px)"]["num_queries"], groups["small (< 32² px)"]["success"]) == (2, 50)
    assert (groups["large (≥ 96² px)"]["num_queries"], groups["large (≥ 96² px)"]["success"]) == (1, 100)
    assert "medium size" not in groups


def test_groups_by_size_time_and_blur():
    sides = (31.9, 32, 95.9, 96)
    ends = (99, 50.0, 49, -200)  # query at 100, 5 fps: 0.2 s, 10 s, 10.2 s, 60 s
    queries = [
        # Small at first: the largest box counts.
        visual_query(i, Track.from_boxes([int(end) - 1, int(end)], [(0, 0, 1, 1), (0, 0, side, side)]))
        for i, (side, end) in enumerate(zip(sides, ends, strict=True))
    ]
    sharpness = [float(i) for i in range(4)]
    members = {n: np.flatnonzero(which).tolist() for n, which in vq2d.groups(queries, sharpness).items()}
    assert list(members.values()) == [[0], [1, 2], [3], [0], [1, 2], [3], [0], [1], [2, 3]]
    assert list(members)[-1] == "sharpest third"
    assert len(vq2d.groups(queries)) == 6
    answers = {q.key: answer(i, q.response, crop_sharpness=float(i)) for i, q in enumerate(queries)}
    found = dict(vq2d.report_vq2d(queries, answers).groups)
    assert [found[name].num_queries for name in ("most blurred third", "sharpest third")] == [1, 2]


def test_queries_of_unknown_kind_are_in_no_group():
    found = vq2d.groups([visual_query(1, None), visual_query(2, Track.empty())], [None, 5.0])
    assert len(found) == 6
    assert not any(which.any() for which in found.values())
    # Two known values make no thirds, three do.
    three = [visual_query(i, straight(0, 1)) for i in range(4)]
    assert len(vq2d.groups(three, [1.0, None, 2.0, None])) == 6
    thirds = list(vq2d.groups(three, [1.0, None, 2.0, 3.0]).values())[-3:]
    assert [np.flatnonzero(which).tolist() for which in thirds] == [[0], [2], [3]]


def test_predictions_that_cannot_be_scored():
    queries = [visual_query(1, straight(10, 19))]
    gap = answer(1, Track.from_boxes([1, 3], [SQUARE] * 2))
    with pytest.raises(DataError, match="clip clip, annotation a, query 1 has gaps"):
        vq2d.report_vq2d(queries, {gap.key: gap})
    with pytest.raises(DataError, match="None of the 1 predictions is for one of the 1 queries"):
        vq2d.report_vq2d(queries, {answer(7, straight(0, 1)).key: answer(7, straight(0, 1))})
    hidden = [visual_query(1, None)]
    with pytest.raises(DataError, match="no response track for clip clip"):
        vq2d.report_vq2d(hidden, {gap.key: gap})
    with pytest.raises(DataError, match="no query to score"):
        vq2d.report_vq2d([], {})
