"""Many queries, many videos, paths for either, and what the logger tells of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from egohieraloc import Localizer, Query, Video
from egohieraloc.errors import QueryError
from egohieraloc.images import write_image
from egohieraloc.inference.predict import Predictor
from egohieraloc.types import Rgb
from untrained import untrained_model

FRAMES = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of frames, two crops, an untrained model."""
    root, random = tmp_path_factory.mktemp("many"), np.random.default_rng(0)
    for name in ("kitchen", "office"):
        wall = random.integers(0, 255, (6, 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        for number in range(FRAMES):
            image = wall.copy()
            image[10:30, 2 * number : 2 * number + 20] = (230, 30, 30)
            write_image(root / name / f"{number:03d}.png", image)
    write_image(root / "red.png", np.full((20, 20, 3), (230, 30, 30), np.uint8))
    write_image(root / "noise.png", random.integers(0, 255, (24, 20, 3), np.uint8))
    untrained_model(root)
    return root


@pytest.fixture
def localizer(data: Path, tmp_path: Path) -> Localizer:
    return Localizer.from_pretrained(data / "tiny.safetensors", cache=tmp_path / "cache")


def test_answers_come_video_by_video_and_each_is_encoded_once(
    localizer: Localizer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = Predictor.encode

    def counted(self: Predictor, canvases: Sequence[Rgb]) -> object:
        encoded.append(len(canvases))
        return encode(self, canvases)

    monkeypatch.setattr(Predictor, "encode", counted)
    queries = [Query.from_image(data / "red.png"), data / "noise.png"]
    videos = [data / "kitchen", Video.open(data / "office")]
    answers = localizer.locate_many(queries, iter(videos))
    first = next(answers)
    read = sum(encoded)  # nothing of the second video yet
    assert 0 < read <= FRAMES
    found = [first, *answers]
    assert [Path(result.video.source.path).name for result in found] == ["kitchen"] * 2 + ["office"] * 2
    assert [result.query.image.shape[0] for result in found] == [20, 24] * 2
    alone = localizer.locate(queries[1], videos[1])
    assert (found[3].summary, found[3].track.score) == (alone.summary, alone.track.score)
    assert sum(encoded) <= 2 * FRAMES


def test_another_threads_question_takes_no_query_away() -> None:
    class Shared(Localizer):
        """Whatever it keeps, another thread replaces at once."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, ("other", "the other's") if name == "_last" else value)

    shared = Shared.__new__(Shared)
    shared._last, shared.predictor = None, SimpleNamespace(prepare=str.upper)
    assert shared._prepared("mine") == "MINE"


def test_a_query_that_cannot_be_read_is_told_before_a_video_is(localizer: Localizer, data: Path) -> None:
    (data / "empty.png").touch()
    with pytest.raises(QueryError, match=r"empty\.png"):
        next(localizer.locate_many([data / "red.png", data / "empty.png"], [data / "nowhere.mp4"]))


def test_a_live_session_takes_a_path_too(localizer: Localizer, data: Path) -> None:
    with localizer.live() as live:
        for frame in Video.open(data / "kitchen").frames(range(0, FRAMES, 4)):
            live.add(frame.rgb, frame.time_s)
        named, read = live.ask(data / "red.png"), live.ask(Query.from_image(data / "red.png"))
    assert named.summary == read.summary


def test_the_logger_tells_how_long_each_step_took(
    localizer: Localizer, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="egohieraloc"):
        result = localizer.locate(data / "red.png", data / "kitchen")
    told = [record.getMessage() for record in caplog.records if record.name == "egohieraloc.localize"]
    assert [message.split(":")[0] for message in told] == ["read the video", "search for the object"]
    assert told == [f"{name}: {seconds:.1f} s" for name, seconds in result.timings_s]
    assert not logging.getLogger("egohieraloc").handlers  # where it goes is for the user to say
