"""Two tiers of a video: what is remembered chooses where to look, what was thrown out is made again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from egohieraloc import Box, Localizer, Query, Video
from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.inference.chunks import STRETCH, sparse_chunks
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.regions import prototypes
from egohieraloc.result import Result
from egohieraloc.types import ResponseTrack, Rgb
from untrained import untrained_model

COUNT = 5 * STRETCH + 3
SETTINGS = [
    "search.shortlist=2",
    "search.coarse_margin=0.05",
    "search.max_decoded=6",
    "search.coarse_neighbours=1",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("frames"), np.random.default_rng(0)
    walls = random.integers(0, 255, (6, 6, 8, 3), np.uint8).repeat(8, 1).repeat(8, 2)
    for number in range(COUNT):
        image = walls[number // STRETCH].copy()
        image[10:30, number % 40 : number % 40 + 20] = (230, 30, 30)
        write_image(folder / f"{number:03d}.png", image)
    return folder


@pytest.fixture
def localizer(model: Path, tmp_path: Path) -> Localizer:
    return Localizer.from_pretrained(model, cache=tmp_path / "cache", settings=SETTINGS)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each call encodes."""
    calls: list[int] = []
    encode = Predictor.encode

    def counted(self: Predictor, canvases: Sequence[Rgb]) -> object:
        calls.append(len(canvases))
        return encode(self, canvases)

    monkeypatch.setattr(Predictor, "encode", counted)
    return calls


def query_of(video: Video) -> Query:
    return Query.from_frame(video, index=60, box=Box(20, 10, 40, 30))


def same(one: Result, other: Result) -> None:
    """To the last bit."""
    assert isinstance(one.track, ResponseTrack)
    assert isinstance(other.track, ResponseTrack)
    assert one.curve.raw.tobytes() == other.curve.raw.tobytes()
    assert [p.box for p in one.track.predictions] == [p.box for p in other.track.predictions]


def test_a_sparse_reading_answers_like_a_dense_one(
    localizer: Localizer, frames: Path, model: Path, tmp_path: Path, made: list[int]
) -> None:
    video = Video.open(frames)
    first = localizer.ask(query_of(video), localizer.encode(video))
    assert COUNT / 2 < sum(made) < COUNT
    other = Localizer.from_pretrained(model, cache=tmp_path / "other", settings=SETTINGS)
    made.clear()
    encoded = other.encode(video, dense=True)
    assert sum(made) == COUNT
    same(first, other.ask(query_of(video), encoded))
    assert sum(made) == COUNT


def test_features_that_were_thrown_out_are_made_again_where_a_question_needs_them(
    localizer: Localizer, frames: Path, tmp_path: Path, made: list[int]
) -> None:
    video = Video.open(frames)
    encoded = localizer.encode(video)
    first = localizer.ask(query_of(video), encoded)
    shutil.rmtree(encoded.store.folder)
    made.clear()
    told: list[str] = []
    again = localizer.encode(Video.open(frames))
    assert made == []  # it is remembered
    same(first, localizer.ask(query_of(video), again, progress=lambda stage, *_: told.append(stage)))
    assert 0 < sum(made) < COUNT / 2
    assert told[0] == "encode"


def test_a_video_is_reopened_by_its_samples_and_key(
    localizer: Localizer, frames: Path, tmp_path: Path, made: list[int]
) -> None:
    """The file is opened only where features were thrown out, and its absence is told."""
    home = tmp_path / "home"
    shutil.copytree(frames, home)
    video = Video.open(home)
    encoded = localizer.encode(video)
    query = query_of(video)
    first = localizer.ask(query, encoded)
    home.rename(tmp_path / "moved")
    reopened = localizer.reopen(encoded.video, encoded.store.key)
    assert isinstance(reopened, EncodedVideo)
    same(first, localizer.ask(query, reopened))
    shutil.rmtree(encoded.store.folder)
    with pytest.raises(VideoError, match=r"There is no video at .*home"):
        localizer.ask(query, localizer.reopen(encoded.video, encoded.store.key))
    (tmp_path / "moved").rename(home)
    same(first, localizer.ask(query, localizer.reopen(encoded.video, encoded.store.key)))


def test_a_lost_memory_is_made_again(localizer: Localizer, frames: Path, made: list[int]) -> None:
    video = Video.open(frames)
    encoded = localizer.encode(video)
    first = localizer.ask(query_of(video), encoded)
    assert encoded.memory is not None
    content = (encoded.memory.folder / "codewords.int8").read_bytes()
    shutil.rmtree(encoded.memory.folder)
    again = localizer.encode(video)
    assert again.memory is not None
    assert (again.memory.folder / "codewords.int8").read_bytes() == content
    same(first, localizer.ask(query_of(video), again))
    same(first, localizer.ask(query_of(video), replace(again, store=encoded.store)))


def test_without_video_and_features_the_memory_still_tells_when(
    localizer: Localizer, frames: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(frames, home)
    video = Video.open(home)
    encoded, query = localizer.encode(video), query_of(video)
    for folder in (home, encoded.store.folder):
        shutil.rmtree(folder)
    reopened = localizer.reopen(encoded.video, encoded.store.key)
    found = localizer.recall(query, reopened, most=3)
    assert len(found) == 3
    assert [g.similarity for g in found] == sorted((g.similarity for g in found), reverse=True)
    starts = {g.start_s for g in localizer.recall(query, reopened, most=99)}
    assert starts == {n * STRETCH / 5 for n in range(6)}
    tokens = localizer.predictor.tokens(localizer.predictor.prepare(query))
    assert reopened.memory is not None
    similarity = reopened.memory.similarity(prototypes(tokens), sparse_chunks(COUNT))
    assert [g.start_s for g in found] == (np.argsort(-similarity)[:3] * STRETCH / 5).tolist()
    early = localizer.recall(query, reopened.until(4.0), most=99)
    assert sorted((g.start_s, g.end_s) for g in early) == [(0.0, 3.0), (3.2, 3.8)]
