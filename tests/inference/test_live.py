"""Frames pushed one by one: a question at any moment, and what cannot be pushed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from egohieraloc import Box, Localizer, Query
from egohieraloc.errors import OutputError, VideoError
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.localize import LiveSession
from untrained import untrained_model

FRAMES = np.random.default_rng(0).integers(0, 255, (CHUNK + 3, 48, 64, 3), np.uint8)
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
        if number in (0, 7, CHUNK - 1, CHUNK, CHUNK + 2):
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

    for number in range(CHUNK - 1):
        live.add(FRAMES[number], number / 5)
    with monkeypatch.context() as patch:
        patch.setattr(FeatureStore, "write", full)
        for _ in range(2):
            with pytest.raises(OutputError, match="No space"):
                live.add(FRAMES[CHUNK - 1], (CHUNK - 1) / 5)
    for number in range(CHUNK - 1, CHUNK + 3):
        live.add(FRAMES[number], number / 5)
    assert len(live.ask(QUERY).curve.raw) == CHUNK + 3


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
