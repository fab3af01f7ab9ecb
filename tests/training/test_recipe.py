"""Reading, overriding and running recipes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from egohieraloc.config import PRESETS, preset
from egohieraloc.errors import ConfigError, MissingExtraError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import find_weights, load_weights, save_weights
from egohieraloc.paper import NETWORK
from egohieraloc.settings import override
from egohieraloc.training import recipe as module
from egohieraloc.training.composer.packs import Packs
from egohieraloc.training.losses import PAPER
from egohieraloc.training.optim import OptimConfig
from egohieraloc.training.recipe import build_network, changes_since, read_recipe, run_recipe
from tiny_packs import tiny_packs

TINY = """
preset = "tiny"
start = "random"
[network]
input_size = 128
query_sizes = [64, 32]
[optim]
steps = 2
batch = 2
precision = "no"
log_every = 1
[composer]
query_px = 64
frame_px = 128
clip_frames = 1
twin_similarity = 2.0
min_visible_px = 8.0
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_builds_on_its_preset(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, TINY))
    assert recipe.network.neck == preset("tiny").neck
    assert recipe.network.query_sizes == (64, 32)
    assert (recipe.optim.steps, recipe.optim.warmup) == (2, OptimConfig().warmup)


def test_words_override_the_file_and_the_preset(tmp_path: Path) -> None:
    path = write(tmp_path, TINY)
    assert read_recipe(path, ["optim.steps=7"]).optim.steps == 7
    other = read_recipe(path, ["preset=base", "network.qam.decay=0.2"])
    assert other.network.backbone == PRESETS["base"].backbone
    assert other.network.qam.decay == 0.2
    assert other.network.input_size == 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('preset = "huge"', "No preset is called 'huge'"),
        ("[optim]\nstep = 3", r"Unknown setting 'optim.step'; did you mean 'optim.steps'\?"),
        ("[optim]\nsteps = 'many'", "'optim.steps' must be int"),
        ("[optim", "Cannot read the recipe"),
        ("[optim]\nclose_ups = true\n[composer]\nborders = false", "Close-ups are squares of square frames"),
        (
            "network.square_canvas = true\ncomposer.borders = false",
            "asked on canvases like those it was trained",
        ),
    ],
)
def test_bad_recipes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_recipe(write(tmp_path, text))


def test_close_ups_of_footage_do_not_depend_on_the_composer(tmp_path: Path) -> None:
    """Its frames are square whatever `composer.borders` says."""
    words = ["source=footage", "optim.close_ups=true", "composer.borders=false"]
    assert read_recipe(write(tmp_path, TINY), words).optim.close_ups


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the recipe .*gone.toml"):
        read_recipe(tmp_path / "gone.toml")


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")), ids=str)
def test_shipped_recipes_are_read(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.composer.frame_px == recipe.network.input_size
    assert recipe.composer.query_px == recipe.network.query_sizes[0]


def test_the_papers_recipe() -> None:
    recipe = read_recipe(Path(__file__).parents[2] / "recipes" / "paper.toml")
    assert recipe.network == override(PRESETS["large"], NETWORK)
    assert recipe.network.backbone.name == "pvt_v1_large"
    optim = recipe.optim
    assert (optim.steps, optim.learning_rate, optim.weight_decay) == (20_000, 1.5e-3, 0.02)
    assert (optim.warmup, optim.schedule) == (250, "paper")
    assert (recipe.source, recipe.footage.visor_share) == ("footage", 0.3)
    assert recipe.footage.query_rotation_deg == 135
    assert recipe.network.square_canvas  # footage is seen on squares: it is asked as it was trained
    assert recipe.losses == PAPER


def assert_equal_networks(one: EgoHieraLocNet, other: EgoHieraLocNet) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_the_same_seed_builds_the_same_network(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, TINY))
    one, other = build_network(recipe), build_network(recipe)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    different = build_network(read_recipe(tmp_path / "recipe.toml", ["optim.seed=1"]))
    assert not torch.equal(one.ram.cell.weight, different.ram.cell.weight)


def test_training_continues_from_a_weights_file(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, TINY))
    trained = build_network(override(recipe, ["optim.seed=5"]))
    save_weights(tmp_path / "trained.safetensors", trained)
    words = [f"weights={tmp_path / 'trained.safetensors'}", "network.qam.candidates=2"]
    further = build_network(override(recipe, words))
    assert further.config.qam.candidates == 2
    assert all(parameter.requires_grad for parameter in further.parameters())
    torch.testing.assert_close(further.ram.cell.weight, trained.ram.cell.weight, atol=1e-3, rtol=1e-3)
    with pytest.raises(ConfigError, match="need other weights"):
        build_network(override(recipe, [*words, "network.ram.width=64"]))


def test_shipped_weights_are_trained_further_by_their_name() -> None:
    recipe = read_recipe(Path(__file__).parents[2] / "recipes" / "mini_5.toml")
    assert recipe.weights == "mini"
    assert_equal_networks(build_network(recipe), load_weights(find_weights("mini")).network)


def test_a_run_leaves_recipe_log_checkpoint_and_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits: list[str] = []

    def packs(folder: Path, *, split: str = "train", limit: int | None = None) -> Packs:
        splits.append(split)
        return tiny_packs()

    monkeypatch.setattr(module, "read_packs", packs)
    recipe = read_recipe(write(tmp_path, TINY), ["validation.queries=4"])
    state = run_recipe(recipe, tmp_path / "data", tmp_path / "run")
    assert state.step == 2
    assert splits == ["train", "val"]
    files = {p.name for p in (tmp_path / "run").iterdir() if "tfevents" not in p.name}
    wanted = {
        "recipe.json",
        "log.jsonl",
        "checkpoint.pt",
        "checkpoint-00000002.pt",
        "weights.safetensors",
    }
    assert files == wanted | {"best.json", "best.safetensors"}
    alone = run_recipe(override(recipe, ["validation.queries=0"]), tmp_path, tmp_path / "alone")
    assert_equal_networks(state.network, alone.network)  # validation does not affect the run
    assert not (tmp_path / "alone" / "best.json").exists()
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["optim"]["steps"] == 2
    with pytest.raises(ConfigError, match=r"has the checkpoint\.pt of another run"):
        run_recipe(override(recipe, ["optim.seed=1"]), tmp_path, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["optim"]["seed"] == 0
    other = override(recipe, ["optim.batch=4", "optim.seed=1", "optim.learning_rate=0.5"])
    assert changes_since(tmp_path / "run", other) == [
        "optim.batch: 4, was 2",
        "optim.learning_rate: 0.5, was 0.001",
        "optim.seed: 1, was 0",
    ]
    assert changes_since(tmp_path / "run", recipe) == []
    assert changes_since(tmp_path / "nowhere", recipe) == []
    loaded = load_weights(tmp_path / "run" / "weights.safetensors")
    assert loaded.network.config == recipe.network
    assert torch.equal(loaded.network.coarse, state.averaged.coarse)


def test_without_accelerate_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtraError, match=r"egohieraloc\[train\]"):
        run_recipe(read_recipe(write(tmp_path, TINY)), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
