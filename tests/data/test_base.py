import numpy as np
import pytest

from egohieraloc.data.base import ClipQueries, QueryKey, Track, group_by_clip, reading
from egohieraloc.errors import DataError


def track(*frames):
    return Track.from_boxes(frames, [(f, 0, f + 2, 3) for f in frames])


def test_a_track_sorts_its_frames_with_their_boxes():
    unsorted = track(5, 3, 4)
    assert unsorted.frames.tolist() == [3, 4, 5]
    assert unsorted.boxes_xyxy[:, 0].tolist() == [3, 4, 5]
    assert unsorted.areas.tolist() == [6, 6, 6]
    assert unsorted.is_contiguous
    assert len(unsorted) == 3


def test_a_box_may_be_empty():
    assert Track.from_boxes([0], [(5, 5, 5, 5)]).areas.tolist() == [0]


def test_contiguous_means_no_frame_left_out():
    assert not track(3, 5).is_contiguous
    assert Track.empty().is_contiguous
    assert track(7).is_contiguous


def test_boxes_at_chosen_frames():
    boxes, there = track(3, 5).at(np.array([2, 3, 4, 5, 6]))
    assert there.tolist() == [False, True, False, True, False]
    assert boxes[1].tolist() == [3, 0, 5, 3]
    assert not boxes[~there].any()
    boxes, there = Track.empty().at(np.array([0, 1]))
    assert boxes.shape == (2, 4)
    assert not there.any()


def test_clipping_keeps_the_inside():
    clipped = Track.from_boxes([0], [(-0.15, -5, 30, 20)]).clipped(20, 10)
    assert clipped.boxes_xyxy.tolist() == [[0, 0, 20, 10]]


@pytest.mark.parametrize(
    ("frames", "boxes", "message"),
    [
        ([1, 1], [(0, 0, 1, 1)] * 2, "frame 1 comes twice"),
        ([1], [(2, 0, 1, 1)], "frame 1 has a negative width"),
        ([1], [(0, 2, 1, 1)], "negative width or height"),
        ([1], [(0, 0, float("nan"), 1)], "not finite"),
        ([1, 2.5], [(0, 0, 1, 1)] * 2, "not whole"),
    ],
)
def test_a_bad_track_is_refused(frames, boxes, message):
    with pytest.raises(ValueError, match=message):
        Track.from_boxes(frames, boxes)


def test_a_track_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"frames \(N,\) and boxes \(N, 4\)"):
        Track(np.arange(3), np.zeros((2, 4)))


def test_queries_are_grouped_by_clip_in_order():
    class Query:
        def __init__(self, clip, number):
            self.key = QueryKey(clip, "a", str(number))

    queries = [Query("x", 1), Query("y", 2), Query("x", 3)]
    clips = group_by_clip((ClipQueries(q.key.clip, "v", q.key.clip, 5.0, ()), q) for q in queries)
    assert [(c.name, [q.key.query_set for q in c.queries]) for c in clips] == [
        ("x", ["1", "3"]),
        ("y", ["2"]),
    ]


def test_reading_says_where():
    with pytest.raises(DataError, match="here: the field 'x' is missing"), reading("here"):
        raise KeyError("x")
    with pytest.raises(DataError, match="here: odd"), reading("here"):
        raise ValueError("odd")
    assert str(QueryKey("c", "a", "1")) == "clip c, annotation a, query 1"
