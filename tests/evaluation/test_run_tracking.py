"""Tracking benchmarks through the same run: a tracker that is told the truth, and scored."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from egohieraloc.data import egotracks as egotracks_data
from egohieraloc.data.base import ClipQueries, QueryKey, Track, TrackingPass
from egohieraloc.data.egotracks import TrackingQuery
from egohieraloc.data.trek150 import TrekSequence
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.evaluation import egotracks, trek150
from egohieraloc.evaluation.run_tracking import answer_by_tracking
from egohieraloc.evaluation.runner import run_benchmark
from egohieraloc.types import Box

TRUTH = np.array([[10.0 * i, 5, 10, 10] for i in range(8)])  # x, y, w, h


def corners(frames):
    rows = TRUTH[frames]
    return np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:]], 1)


@contextmanager
def perfect_on_trek150(clip):
    def follow(way):
        assert way.start.xywh == tuple(TRUTH[way.frames[0]])
        return corners(way.frames), np.ones(len(way.frames))

    yield lambda asked: answer_by_tracking(asked.key, asked.passes, follow)


@pytest.mark.parametrize("protocol", ["ope", "mse", "hoi"])
def test_trek150(tmp_path, protocol):
    anchors = ((0, False), (4, False), (4, True))
    sequence = TrekSequence("s", Path("s"), TRUTH, frozenset(), anchors, ((1, 5, 0),))
    path = tmp_path / "trek.jsonl"
    run_benchmark([sequence.clip(protocol)], perfect_on_trek150, path, about={"benchmark": "trek150"})
    boxes = trek150.read_trek150_predictions(path, [sequence], protocol)
    assert len(boxes) == {"ope": 1, "mse": 3, "hoi": 1}[protocol]
    found = trek150.report_trek150([sequence], protocol, boxes)
    assert (found.overall.success, found.overall.robustness, found.missing) == (pytest.approx(20 / 21), 1, 0)


@pytest.mark.parametrize(("protocol", "starts"), [("vct-vs", [None]), ("vct-vc", ["box", "box"])])
def test_egotracks(tmp_path, protocol, starts):
    frames = egotracks_data.scored_frames(26, 45)
    assert len(frames) == len(TRUTH)
    truth = Track(frames, corners(np.arange(len(TRUTH))))
    place = int(np.flatnonzero(frames == 26)[0])
    query = TrackingQuery(QueryKey("e", "#0", "1"), "cup", 26, Box.from_xywh(*TRUTH[place]), truth)
    seen = []

    @contextmanager
    def perfect(clip):
        def follow(way):
            seen.append(None if way.start is None else "box")
            assert way.template == query.crop
            return truth.at(way.frames)[0], np.full(len(way.frames), 0.8)

        yield lambda asked: answer_by_tracking(asked.key, egotracks_data.passes(asked, 45, protocol), follow)

    path = tmp_path / "egotracks.jsonl"
    run_benchmark(
        [ClipQueries("e", "v", "e", 30.0, (query,))], perfect, path, about={"benchmark": "egotracks"}
    )
    found = egotracks.report_egotracks(
        [query], egotracks.read_egotracks_predictions(path, [query]), {"e": 45}
    )
    assert seen == starts
    assert (found.average_overlap, found.by_sequence.recall, found.missing) == (1, 1, 0)
    # The box at the crop's own frame is one of eight reported, with nothing to find there.
    assert found.by_sequence.precision == pytest.approx(7 / 8)


def test_two_passes_over_a_clip_become_one_track():
    def follow(one):
        boxes = np.stack([[f, 0, f + 1, 1] for f in one.frames]).astype(float)
        return boxes, one.frames / 100 + (0.5 if one.frames[0] < one.frames[-1] else 0)

    start = Box(0, 0, 1, 1)
    passes = [TrackingPass(np.array(f), start, 12, start) for f in ([12, 18, 24], [12, 6, 0])]
    found = answer_by_tracking(QueryKey("c", "a", "1"), passes, follow)
    assert found.track.frames.tolist() == [0, 6, 12, 18, 24]
    assert found.track.boxes_xyxy[:, 0].tolist() == [0, 6, 12, 18, 24]
    assert found.frame_scores == pytest.approx([0, 0.06, 0.62, 0.68, 0.74])
    assert found.score == pytest.approx(0.74)
    with pytest.raises(EgoHieraLocError, match="for 3 frames"):
        answer_by_tracking(QueryKey("c", "a", "1"), passes, lambda one: (np.zeros((2, 4)), np.zeros(2)))
