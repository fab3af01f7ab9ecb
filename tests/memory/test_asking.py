"""Which videos are asked, in which order, and that the answer is the latest of theirs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import made_up
from egohieraloc.memory.asking import OTHERS, SHARE, MemoryAnswer, VideoAnswer, ask_all
from egohieraloc.memory.values import Sighting, VideoEntry
from egohieraloc.memory.wall_clock import Start
from egohieraloc.result import Result
from egohieraloc.types import Box, FramePrediction, NotFound, ResponseTrack, VideoInfo, VideoSource

NOON = datetime(2026, 3, 12, 12, tzinfo=UTC)


def entry(number: int, start_s: float, duration_s: float) -> VideoEntry:
    start = Start(NOON + timedelta(seconds=start_s), "given")
    info = VideoInfo(160, 120, Fraction(30), 300)
    source = VideoSource(f"/gone/{number}.mp4")
    return VideoEntry(str(number), str(number), source, info, duration_s, start, ready=True)


def result(start_s: float, end_s: float, score: float, *, found: bool = True) -> Result:
    ends = [
        FramePrediction(30 * i, i, time_s, score, Box(10, 20, 30, 60))
        for i, time_s in enumerate((start_s, end_s))
    ]
    track = ResponseTrack(tuple(ends), score)
    empty = made_up.result(alternatives=(), place=None, cameras=None)
    if found:
        return replace(empty, track=track)
    return replace(empty, track=NotFound("Too low.", score), alternatives=(track,))


@dataclass
class Shelf:
    """Videos with known answers, and a record of who was asked."""

    answers: dict[VideoEntry, VideoAnswer]
    asked: list[tuple[str, float | None]] = field(default_factory=list)

    def ask(self, entry: VideoEntry, until_s: float | None) -> VideoAnswer:
        self.asked.append((entry.id, until_s))
        return self.answers[entry]

    def answer(self, until: datetime | None = None, others: int = OTHERS) -> MemoryAnswer:
        return ask_all(list(self.answers), self.ask, until=until, others=others)


@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 100), st.floats(0, 1), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, OTHERS),
)
@settings(deadline=None, max_examples=60)
def test_the_answer_is_the_latest_of_the_sure_answers_one_by_one(
    videos: list[tuple[int, int, float, bool]], others: int
) -> None:
    answers = {
        entry(i, start_s, length): result(0.2 * share * length, share * length, share, found=found)
        for i, (start_s, length, share, found) in enumerate(videos)
    }
    given = Shelf(dict(answers)).answer(others=others)
    one_by_one = [Shelf({e: r}).answer() for e, r in answers.items()]
    found = [a.sightings[0] for a in one_by_one if a.found]
    assert given.found == bool(found)
    if found:
        bar = SHARE * max(s.score for s in found)
        assert given.sightings[0].seen_until == max(s.seen_until for s in found if s.score >= bar)
        latest = [s.seen_until for s in given.sightings if s.score >= bar]
        assert latest == sorted(latest, reverse=True)
        assert given.result is answers[given.sightings[0].video]
    else:
        assert given.sightings[0].score == max(a.sightings[0].score for a in one_by_one)


def test_videos_that_end_too_early_are_not_asked() -> None:
    """Ten days, one video each; the object is in all of them: the last and a few before it are enough."""
    days = {entry(day, 86400 * day, 60.0): result(10, 20, 0.9) for day in range(10)}
    shelf = Shelf(dict(days))
    answer = shelf.answer()
    assert [number for number, _ in shelf.asked] == ["9", "8", "7", "6"]
    assert [s.video.id for s in answer.sightings] == ["9", "8", "7", "6"]
    assert len(answer.sightings) == 1 + OTHERS


@pytest.mark.parametrize(("last_seen", "others", "asked"), [(9, 0, 1), (9, OTHERS, 1 + OTHERS), (6, 0, 4)])
def test_asking_ends_when_the_answer_is_settled(last_seen: int, others: int, asked: int) -> None:
    """Ten days, of which one shows the object: those after it are asked, and `others` before it."""
    days = {entry(d, 86400 * d, 60.0): result(1, 2, 0.9, found=d == last_seen) for d in range(10)}
    shelf = Shelf(dict(days))
    assert shelf.answer(others=others).sightings[0].video.id == str(last_seen)
    assert len(shelf.asked) == asked


def test_an_absent_object_is_looked_for_everywhere() -> None:
    shelf = Shelf({entry(d, 86400 * d, 60.0): result(1, 2, 0.1, found=False) for d in range(10)})
    assert not shelf.answer(others=0).found
    assert len(shelf.asked) == 10


@pytest.mark.parametrize("others", [0, OTHERS])
def test_a_video_that_began_earlier_may_end_later(others: int) -> None:
    """A long recording goes on while two short ones begin and end."""
    long, short, shorter = entry(0, 0, 1000), entry(1, 500, 100), entry(2, 400, 10)
    answers = {long: result(900, 950, 0.6), short: result(50, 90, 0.9), shorter: result(1, 2, 0.9)}
    answer = Shelf(dict(answers)).answer(others=others)
    assert answer.sightings[0].video is long
    assert answer.sightings[0].seen_until == NOON + timedelta(seconds=950)


def test_a_later_sighting_in_a_video_that_ended_earlier_than_the_first_one_asked() -> None:
    """The first video ends last but shows the object early; the second one shows it late."""
    first, second = entry(0, 0, 3600), entry(1, 1000, 600)
    answer = Shelf({first: result(10, 20, 0.9), second: result(100, 200, 0.9)}).answer(others=0)
    assert answer.sightings[0].video is second


@pytest.mark.parametrize(("score", "answered"), [(0.44, "0"), (0.46, "1")])
def test_a_sighting_half_as_sure_as_another_is_not_the_answer(score: float, answered: str) -> None:
    """The latest of many videos holds some look-alike: a sure sighting before it counts for more."""
    videos = {entry(0, 0, 100): result(1, 2, 0.9), entry(1, 1000, 100): result(1, 2, score)}
    answer = Shelf(dict(videos)).answer(others=0)
    assert answer.sightings[0].video.id == answered
    assert answer.result is videos[answer.sightings[0].video]


def test_a_weak_answer_is_not_settled_by_a_sure_one_before_it() -> None:
    """The surest is yet to come: beside it the weak one, the latest, is not sure enough."""
    weak, sure, surest = entry(2, 2000, 100), entry(1, 1000, 100), entry(0, 0, 100)
    shelf = Shelf({weak: result(1, 2, 0.3), sure: result(1, 2, 0.55), surest: result(1, 2, 0.9)})
    assert shelf.answer(others=0).sightings[0].video is sure


def test_only_what_was_before_the_query_time() -> None:
    early, cut, late = entry(0, 0, 100), entry(1, 200, 100), entry(2, 400, 100)
    shelf = Shelf({early: result(1, 2, 0.9), cut: result(3, 4, 0.9), late: result(5, 6, 0.9)})
    shelf.answer(NOON + timedelta(seconds=250))
    assert shelf.asked == [("1", 50.0), ("0", 250.0)]


def test_nothing_to_ask() -> None:
    answer = Shelf({}).answer()
    assert (answer.found, answer.result, answer.sightings) == (False, None, ())
    assert answer.nothing_asked
    assert answer.summary.startswith("The memory holds no video to ask: add some")
    late = Shelf({entry(0, 100, 10): result(1, 2, 0.9)}).answer(NOON)
    assert late.summary == "No video of the memory began before 2026-03-12 12:00:00."


def test_what_cannot_be_asked_is_told() -> None:
    gone, there = entry(0, 500, 10), entry(1, 0, 100)
    answer = Shelf({gone: (), there: result(1, 2, 0.75)}).answer()
    assert answer.unanswered == (gone,)
    assert "on Thursday, 12 March 2026 from 12:00:01 to 12:00:02 in 1.mp4" in answer.summary
    assert "10,20,20,40 (x,y,w,h), confidence 0.75" in answer.summary
    assert "/gone/1.mp4 is no longer there; this is from memory" in answer.summary
    assert "another network remembers it: 0.mp4" in answer.summary


def test_what_is_only_remembered_is_told_and_is_not_the_answer() -> None:
    gone, there = entry(0, 500, 10), entry(1, 0, 100)
    glimpse = Sighting(gone, 3.0, 6.0, 0.81, None)
    answer = Shelf({gone: (glimpse,), there: result(1, 2, 0.75)}).answer()
    assert answer.sightings[0].video is there
    assert answer.remembered == (glimpse,)
    assert "/gone/0.mp4 is no longer there; unverified, from memory" in answer.summary
    assert "from 12:08:23 to 12:08:26 in 0.mp4 (3.0 s to 6.0 s), similarity 0.81" in answer.summary


def test_a_moment_with_a_thumbnail_is_shown_where_there_is_one() -> None:
    """Thumbnails are of the first sample of every two seconds: here of frames 0 and 30."""
    (shown,) = Shelf({entry(0, 0, 10): result(1, 2, 0.9)}).answer().sightings
    assert shown.shown == (2.0, Box(10, 20, 30, 60))


def test_a_sure_sighting_comes_before_a_better_guess() -> None:
    guess = result(1, 2, 0.9, found=False)
    answer = Shelf({entry(0, 0, 10): result(1, 2, 0.5), entry(1, 100, 10): guess}).answer()
    assert answer.found
    assert [s.video.id for s in answer.sightings] == ["0"]


@pytest.mark.parametrize("score", [0.1, 0.3])
def test_the_best_guess_is_told_where_nothing_is_sure(score: float) -> None:
    answer = Shelf(
        {entry(i, 0, 10): result(1, 2, s, found=False) for i, s in enumerate((0.2, score))}
    ).answer()
    assert not answer.found
    assert answer.sightings[0].score == max(0.2, score)
    assert answer.summary.startswith("Not found. The closest is on Thursday")
    assert answer.result is not None
    assert np.isclose(answer.result.alternatives[0].score, max(0.2, score))
