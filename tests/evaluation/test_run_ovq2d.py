"""VQ2D when the frames have passed: what is remembered at each moment, and the answers that follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_ego4d import FRAMES, make_tree
from fake_tracking import save_tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from egohieraloc.cli.eval import app
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import ConfigError
from egohieraloc.evaluation.predictions import read_own, read_vq2d_predictions
from egohieraloc.evaluation.run_ovq2d import (
    FEATURES_ALONE,
    Budget,
    Forget,
    OnlineSearch,
    least_novel_forgotten_at,
)
from egohieraloc.localize import Localizer
from egohieraloc.result import Result
from egohieraloc.types import Box, FramePrediction, ResponseTrack, ScoreCurve
from egohieraloc.video.reader import Video


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_tree(tmp_path_factory.mktemp("ego4d"), num_clips=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def localizer(tiny: Path, cache: Path) -> Localizer:
    return Localizer.from_pretrained(tiny, device="cpu", cache=cache, settings=FEATURES_ALONE)


@pytest.fixture
def run(tree: tuple[Path, Path], tiny: Path, cache: Path, tmp_path: Path) -> Any:
    def call(benchmark: str, *more: str) -> Path:
        out = tmp_path / f"{benchmark}-{len(list(tmp_path.iterdir()))}.jsonl"
        words = [
            "--annotations",
            tree[0],
            "--clips",
            tree[1],
            "--model",
            tiny,
            "--cache",
            cache,
            "--out",
            out,
        ]
        result = CliRunner().invoke(app, [benchmark, *map(str, words), *more])
        if result.exception is not None:
            raise result.exception
        return out

    return call


def answers(out: Path) -> list[str]:
    """The lines of a prediction file after its header."""
    return out.read_text().splitlines()[1:]


def test_without_a_budget_it_is_vq2d(run: Any) -> None:
    assert answers(run("ovq2d", "--budget-mb", "0")) == answers(run("vq2d"))


@pytest.mark.parametrize("forget", list(Forget))
def test_a_budget_that_holds_everything_changes_nothing(run: Any, forget: Forget) -> None:
    """But for the second look, which needs frames that have passed."""
    alone = [word for setting in FEATURES_ALONE for word in ("--set", setting)]
    online = run("ovq2d", "--budget-mb", "1000", "--forget", forget)
    assert answers(online) == answers(run("vq2d", *alone))


def test_the_header_tells_the_budget_and_the_results_are_vq2ds(run: Any, tree: tuple[Path, Path]) -> None:
    out = run("ovq2d", "--budget-mb", "0.5", "--forget", "oldest", "--set", "search.second_look=true")
    header, found = read_own(out)
    assert header["benchmark"] == "ovq2d"
    assert (header["config"]["budget_mb"], header["config"]["forget"]) == (0.5, "oldest")
    assert not header["config"]["search"]["second_look"]
    assert len(found) == 4  # one of them of a clip that was never exported
    results = json.loads(out.with_suffix(".results.json").read_text())
    assert results["results"]["own_score"]["num_queries"] == 4
    assert results["config"]["budget_mb"] == 0.5
    queries = [query for clip in read_vq2d(tree[0]) for query in clip.queries]
    assert read_vq2d_predictions(out, queries).keys() == found.keys()


def test_a_budget_smaller_than_a_sample_is_refused(run: Any) -> None:
    with pytest.raises(ConfigError, match="more than the budget: give a larger --budget-mb"):
        run("ovq2d", "--budget-mb", "0.001")


class Told:
    """Stands for a Localizer: finds the object in the samples it is told, and notes what it was asked."""

    def __init__(self, localizer: Localizer, first: int, last: int) -> None:
        self.encode = localizer.encode
        self.first, self.last = first, last
        self.asked: Any = None

    def ask(self, query: Any, encoded: Any) -> Result:
        self.asked = encoded
        curve = ScoreCurve(encoded.time_s, encoded.time_s, encoded.time_s, 0.5)
        predictions = tuple(
            FramePrediction(
                int(encoded.frame_index[s]), s, float(encoded.time_s[s]), 0.9, Box(s, 2, s + 4, 8)
            )
            for s in range(self.first, self.last + 1)
        )
        return Result(query, encoded.video, ResponseTrack(predictions, 0.7), curve)


def online(tree: tuple[Path, Path], told: Any, samples: int, forget: Forget) -> OnlineSearch:
    clip = next(read_vq2d(tree[0]))
    video = Video.open(tree[1] / "clip-0.mp4")
    needed = told.encode(video).chunk(0).bytes_per_sample
    return OnlineSearch(told, video, clip.queries, clip.fps, Budget(needed * (samples + 0.5), forget))


def test_only_what_is_remembered_is_searched(tree: tuple[Path, Path], localizer: Localizer) -> None:
    query = next(read_vq2d(tree[0])).queries[0]
    told = Told(localizer, 1, 3)
    found = online(tree, told, 5, Forget.oldest).find(query)
    assert told.asked.frame_index.tolist() == list(range(FRAMES - 6, FRAMES - 1))
    assert [p.frame_index for p in found.predictions] == [FRAMES - 5, FRAMES - 4, FRAMES - 3]
    # The features are those of the same frames of the whole clip.
    whole = localizer.encode(Video.open(tree[1] / "clip-0.mp4"), dense=True)
    for place in range(5):
        kept, own = told.asked.pick([place]), whole.pick([FRAMES - 6 + place])
        assert np.array_equal(kept.match, own.match)
        assert np.array_equal(kept.fine4, own.fine4)
    match, _ = told.asked.descriptors([0, 1])
    assert np.array_equal(match, whole.pick([18, 20, 22, 19, 21]).match)


def test_frames_between_remembered_ones_take_the_box_before_them(
    tree: tuple[Path, Path], localizer: Localizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a track ends with its last remembered sample, whatever was forgotten after it."""
    query = next(read_vq2d(tree[0])).queries[0]
    kept = [0, 4, 5, 9, 20]
    gone = np.array([100 if sample in kept else 10 for sample in range(FRAMES - 1)])
    monkeypatch.setattr(OnlineSearch, "_forgotten_at", gone)
    told = Told(localizer, 1, 3)
    found = online(tree, told, 5, Forget.least_novel).find(query)
    assert told.asked.frame_index.tolist() == kept
    assert [p.frame_index for p in found.predictions] == [4, 5, 6, 7, 8, 9]
    assert [p.box.x1 for p in found.predictions] == [1, 2, 2, 2, 2, 3]


def remembered(looks: Sequence[int], most: int, count: int) -> list[int]:
    """Which of samples that look like numbers of unit vectors are remembered when `count` have come."""
    gone = least_novel_forgotten_at(np.eye(10, dtype=np.float32)[list(looks)], most)
    return np.flatnonzero(gone[:count] > count).tolist()


def test_what_looks_like_the_one_after_it_is_forgotten() -> None:
    assert remembered([0, 0, 0, 0, 1, 1, 1, 2, 3, 3], 4, 10) == [3, 6, 7, 9]  # the last of each kind
    assert remembered([0, 0, 0, 0, 1, 1, 1, 2, 3, 3], 4, 6) == [2, 3, 4, 5]
    assert remembered([4, 5, 6, 7], 2, 4) == [2, 3]  # where all are alike novel, the oldest go
    assert remembered([5, 6, 7], 1, 3) == [2]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12), st.data())
@settings(deadline=None, max_examples=60)
def test_a_memory_is_full_and_knows_nothing_of_what_comes(
    looks: list[int], most: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(looks)))
    kept = remembered(looks, most, count)
    assert len(kept) == min(most, count)
    assert count - 1 in kept
    assert kept == remembered(looks[:count], most, count)
    if count > 1:  # what was forgotten does not come back
        assert set(kept) - {count - 1} <= set(remembered(looks, most, count - 1))
