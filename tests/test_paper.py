"""The printed method as one switch: what it changes, where it can be said, and that it reaches the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.config import PRESETS, SearchConfig
from egohieraloc.errors import WeightsError
from egohieraloc.inference.chunks import samples_of
from egohieraloc.inference.search import QuerySearch, promising
from egohieraloc.localize import LocalizerConfig, with_settings
from egohieraloc.models.weights import load_weights
from egohieraloc.paper import NETWORK, PAPER
from egohieraloc.settings import override, to_dict
from egohieraloc.training.recipe import read_recipe
from footage_world import write_ego4d
from tiny_sam import save_tiny_sam
from untrained import untrained_model

# What the paper prints, and what it says nothing of is left as it is.
PRINTED = {
    "network.square_canvas": True,
    "network.ram.score": "mask",
    "network.dpm.temperature": 1.0,
    "network.qam.mode": "paper",
    "network.qam.area_power": 1.0,
    "search.shortlist": 0,
    "search.coarse_margin": 1e9,
    "search.max_decoded": 0,
    "temporal.rule": "paper",
    "temporal.median": 5,
    "temporal.bridge": 0,
    "tracker.propagate_above": 0.7,
    "sfm.camera_model": "SIMPLE_RADIAL_FISHEYE",
    "sfm.anchor_error_m": 30.0,
    "place.fusion.literal": True,
    "place.max_pose_gap_s": 0.0,
}


def flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, value in values.items():
        rows |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


def test_the_switch_changes_exactly_what_is_printed(model: Path) -> None:
    weights = load_weights(model)
    ours, papers = (flat(to_dict(with_settings(LocalizerConfig(), words, weights))) for words in ((), PAPER))
    assert {key: value for key, value in papers.items() if ours[key] != value} == PRINTED
    assert papers["temporal.paper_share"] == 0.8


def test_every_sample_is_decoded() -> None:
    """Also in a video of more stretches than the memory's shortlist has."""
    config = override(LocalizerConfig(), [word for word in PAPER if word.startswith("search.")]).search
    count = 16 * (SearchConfig().shortlist + 6)
    long = QuerySearch(query=None, video=range(count), predictor=None, config=config, temporal=None)  # type: ignore[arg-type]
    assert [s for number in long.shortlist() for s in samples_of(number, count)] == list(range(0, count, 2))
    scores = np.linspace(-1000.0, 1000.0, 777)
    assert promising(scores, config).all()
    assert not promising(scores, SearchConfig()).all()


def evaluate(folder: Path, model: Path, *words: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """The config that an evaluation on a tiny Ego4D writes down."""
    annotations = write_ego4d(folder)
    command = [*before, "eval", "vq2d", "--annotations", annotations, "--clips", folder / "clips", *words]
    command += ["--model", model, "--device", "cpu", "--cache", folder, "--out", folder / "p.jsonl"]
    result = CliRunner().invoke(app, [str(word) for word in command], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    config = json.loads((folder / "p.results.json").read_text())["config"]
    return flat({key: config[key] for key in ("network", "search", "temporal", "tracker", "sfm", "place")})


def test_an_evaluation_says_what_it_ran_with(model: Path, tmp_path: Path) -> None:
    written = evaluate(tmp_path, model, "--paper", "--set", "temporal.median=3")
    assert {key: written[key] for key in PRINTED} == PRINTED | {"temporal.median": 3}  # --set wins


def test_sam_segments_the_queries_and_is_written_down(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save_tiny_sam(tmp_path / "sam")
    evaluate(tmp_path / "with", model, "--sam", str(tmp_path / "sam"))
    about = json.loads((tmp_path / "with" / "p.results.json").read_text())["config"]
    assert about["sam"] == str(tmp_path / "sam")
    with pytest.raises(WeightsError, match="No SAM model could be loaded"):
        evaluate(tmp_path / "without", model, "--sam", str(tmp_path / "nothing"))


def test_the_answer_names_its_segmenter(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save_tiny_sam(tmp_path / "sam")
    write_ego4d(tmp_path)
    words = ["locate", tmp_path / "clips" / "clip-a.mp4", "--at", "1", "--box", "30,10,32,32", "--json"]
    words += ["--model", model, "--device", "cpu", "--cache", tmp_path, "--sam", tmp_path / "sam"]
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["versions"]["segmenter"] == str(tmp_path / "sam")
    words = ["track", tmp_path / "clips" / "clip-a.mp4", "--box", "30,10,32,32", "--model", model]
    tracks = [
        CliRunner().invoke(app, [str(word) for word in (*words, "--device", "cpu", *more)]).stdout
        for more in ((), ("--sam", tmp_path / "sam"))
    ]
    assert len(tracks[0].splitlines()) == len(tracks[1].splitlines()) > 0
    assert tracks[0] != tracks[1]


def test_ablations_by_name_are_as_printed_unless_asked_otherwise(model: Path, tmp_path: Path) -> None:
    written = evaluate(tmp_path / "a", model, before=("ablations", "run", "skip-2"))
    assert {key: written[key] for key in PRINTED} == PRINTED
    assert written["search.stride"] == 2
    corrected = evaluate(tmp_path / "b", model, before=("ablations", "run", "--corrected", "skip-2"))
    assert corrected["temporal.rule"] == "extend"
    assert corrected["search.stride"] == 2


def test_a_recipe_says_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('preset = "tiny"\npaper = true\n[network.qam]\narea_power = 0.5\n')
    network = read_recipe(path).network
    assert network == override(PRESETS["tiny"], [*NETWORK, "qam.area_power=0.5"])
    assert read_recipe(path, ["paper=false"]).network == override(PRESETS["tiny"], ["qam.area_power=0.5"])


def test_the_papers_recipe_trains_what_it_scores_by() -> None:
    """Its weights carry the score by mask: there is no cell loss."""
    recipe = read_recipe(Path(__file__).parents[1] / "recipes" / "paper.toml")
    assert recipe.network.ram.score == "mask"
    assert recipe.losses.cells == recipe.losses.score == 0
