"""Frames pushed one by one: a question at any moment, and what cannot be pushed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

from egohieraloc import Box, Localizer, Query
from egohieraloc.errors import OutputError, VideoError
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.store import FeatureStore
from egohieraloc.localize import LiveSession
from egohieraloc.result import Result
from egohieraloc.video.reader import Video
from untrained import untrained_model

FRAMES = np.random.default_rng(0).integers(0, 255, (2 * STRETCH + 3, 48, 64, 3), np.uint8)
QUERY = Query(FRAMES[0], Box(10, 10, 40, 40))


@pytest.fixture(scope="module")
def localizer(tmp_path_factory: pytest.TempPathFactory) -> Localizer:
    folder = tmp_path_factory.mktemp("live")
    return Localizer.from_pretrained(untrained_model(folder), cache=folder / "cache")


@pytest.fixture
def live(localizer: Localizer) -> Iterator[LiveSession]:
    session = localizer.live()
    yield session
    session.close()


def test_a_question_at_any_moment(live: LiveSession) -> None:
    with pytest.raises(VideoError, match="No frame has been pushed yet"):
        live.ask(QUERY)
    for number, frame in enumerate(FRAMES):
        live.add(frame, number / 5)
        if number in (0, 7, STRETCH - 1, STRETCH, 2 * STRETCH + 2):
            asked = [live.ask(QUERY).curve for _ in range(2)]
            assert asked[0].time_s.tolist() == [n / 5 for n in range(number + 1)]
            assert np.array_equal(asked[0].raw, asked[1].raw)


def test_pushed_frames_answer_like_a_stored_video(
    live: LiveSession, localizer: Localizer, tmp_path: Path
) -> None:
    from egohieraloc.images import write_image

    for number, frame in enumerate(FRAMES):
        live.add(frame, number / 5)
        write_image(tmp_path / f"{number}.png", frame)
    whole = localizer.locate(QUERY, tmp_path)
    np.testing.assert_allclose(live.ask(QUERY).curve.raw, whole.curve.raw, atol=0.02)


def test_a_full_disk_is_not_the_end(live: LiveSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(store: FeatureStore, number: int, packed: object) -> None:
        raise OutputError("No space left on device")

    for number in range(STRETCH - 1):
        live.add(FRAMES[number], number / 5)
    with monkeypatch.context() as patch:
        patch.setattr(FeatureStore, "write", full)
        for _ in range(2):
            with pytest.raises(OutputError, match="No space"):
                live.add(FRAMES[STRETCH - 1], (STRETCH - 1) / 5)
    for number in range(STRETCH - 1, STRETCH + 3):
        live.add(FRAMES[number], number / 5)
    assert len(live.ask(QUERY).curve.raw) == STRETCH + 3


def test_another_thread_asks_while_a_frame_is_added(live: LiveSession) -> None:
    """The stretch that is not full is stored in its own place, and nowhere else."""
    video, asked = live._video, list[Future[EncodedVideo]]()

    class Times(list[float]):
        def append(self, time_s: float) -> None:
            if len(self) in (1, STRETCH, STRETCH + 3):
                asked.append(pool.submit(video.encoded))
                wait(asked, timeout=0.2)
            super().append(time_s)

    video._times = Times()
    with ThreadPoolExecutor() as pool:
        for number, frame in enumerate(FRAMES):
            live.add(frame, number / 5)
    letterbox = video._predictor.letterbox(64, 48)
    alone = [video._predictor.encode([letterbox.apply(frame)]).match for frame in FRAMES]
    for encoded in (*(each.result() for each in asked), video.encoded()):
        count = len(encoded)
        np.testing.assert_array_equal(encoded.pick(range(count)).match, np.concatenate(alone[:count]))


def test_frames_that_come_too_fast_are_passed_over(localizer: Localizer) -> None:
    with localizer.live(fps=5.0) as live:
        kept = [live.add(FRAMES[n % 30], n / 30) for n in range(31)]
        result = live.ask(QUERY)
    assert [n for n, was_kept in enumerate(kept) if was_kept] == [0, 6, 12, 18, 24, 30]
    assert result.video.sample_fps == pytest.approx(5.0)
    assert result.curve.time_s.tolist() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_an_answer_is_a_result_like_any_other(live: LiveSession, tmp_path: Path) -> None:
    """Its video can be opened again while the session lasts, with the times that were pushed."""
    times_s = [100.0, 100.3, 100.4, 101.0]
    for frame, time_s in zip(FRAMES, times_s, strict=False):
        live.add(frame, time_s)
    result = live.ask(QUERY)
    again = Video.reopen(Result.load(result.save(tmp_path)).video.source)
    assert again.times_s.tolist() == result.video.time_s.tolist() == times_s
    assert again.frame(2).rgb.shape == FRAMES[2].shape
    assert (result.video.info.width, result.video.info.height) == (64, 48)


def test_a_closed_session_says_so(localizer: Localizer) -> None:
    with localizer.live() as live:
        live.add(FRAMES[0], 0.0)
    for use in (lambda: live.add(FRAMES[1], 1.0), lambda: live.ask(QUERY)):
        with pytest.raises(VideoError, match="was closed"):
            use()


@pytest.mark.parametrize("fps", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none(localizer: Localizer, fps: float) -> None:
    with pytest.raises(VideoError, match="positive number of frames a second"):
        localizer.live(fps=fps)


def test_nothing_stays_on_disk(localizer: Localizer) -> None:
    session = localizer.live()
    session.add(FRAMES[0], 0.0)
    session.ask(QUERY)
    folder = session._video._store.folder
    assert list(folder.iterdir())
    session.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("frame", "time_s", "message"),
    [
        (FRAMES[1], 1.0, r"wanted a time after 1\.0 s, got 1\.0 s"),
        (FRAMES[1], 0.5, r"wanted a time after 1\.0 s, got 0\.5 s"),
        (FRAMES[1], math.nan, "got nan s"),
        (FRAMES[1], math.inf, "got inf s"),
        (None, 2.0, "must be an array .*, got NoneType"),
        (FRAMES[1][:20], 2.0, r"must keep their size 64x48, got 64x20"),
        (FRAMES[1].astype(np.float32), 2.0, r"must be 8-bit RGB \(H, W, 3\), got float32"),
        (FRAMES[1][..., 0], 2.0, r"got uint8 of \(48, 64\)"),
        (FRAMES[1][:0], 2.0, r"got uint8 of \(0, 64, 3\)"),
    ],
)
def test_what_cannot_be_pushed(live: LiveSession, frame: np.ndarray, time_s: float, message: str) -> None:
    live.add(FRAMES[0], 1.0)
    with pytest.raises(VideoError, match=message):
        live.add(frame, time_s)
    assert len(live.ask(QUERY).curve.raw) == 1


def test_the_first_time_must_be_a_number(live: LiveSession) -> None:
    with pytest.raises(VideoError, match="wanted a time, got nan s"):
        live.add(FRAMES[0], math.nan)
