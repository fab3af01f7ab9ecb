"""A recipe: everything that decides a training run, from one TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from egohieraloc.config import NetworkConfig, preset
from egohieraloc.errors import ConfigError
from egohieraloc.files import write_json
from egohieraloc.models.backbone import load_imagenet
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights
from egohieraloc.settings import override, to_dict, update
from egohieraloc.training.checkpoint import TrainState
from egohieraloc.training.composer import Composer
from egohieraloc.training.composer_config import ComposerConfig
from egohieraloc.training.loop import ClipSource, OptimConfig, join_processes, train
from egohieraloc.training.losses import LossWeights
from egohieraloc.training.packs import read_packs
from egohieraloc.training.replay import ReplayedComposer


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained, from where, on what and how."""

    preset: str = "mini"
    start: str = "imagenet"  # the backbone's starting weights: "imagenet", "random", or a file or folder
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    composer: ComposerConfig = field(default_factory=ComposerConfig)
    losses: LossWeights = field(default_factory=LossWeights)


def read_recipe(path: str | Path, words: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe; `words` like `optim.steps=100` override it. The preset is the network's default."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read the recipe {path}: {error}") from error

    def read(network: NetworkConfig) -> Recipe:
        return override(update(Recipe(network=network), values), words)

    return read(preset(read(NetworkConfig()).preset))


def build_network(recipe: Recipe) -> EgoHieraLocNet:
    """The network with its starting weights."""
    torch.manual_seed(recipe.optim.seed)
    network = EgoHieraLocNet(recipe.network)
    if recipe.start != "random":
        load_imagenet(network.backbone, None if recipe.start == "imagenet" else recipe.start)
    return network


def clip_source(composer: Composer, size: int) -> ClipSource:
    """Composed batches by step; on a GPU replayed as one graph."""
    if composer.generator.device.type == "cuda":
        return ReplayedComposer(composer, size).batch
    return lambda step: composer.batch(step, size)


def run_recipe(
    recipe: Recipe, data: Path, folder: Path, *, resume: bool = False, minutes: float = math.inf
) -> TrainState:
    """Train on composed clips. `folder` gets the recipe, logs, checkpoints and in the end the weights."""
    process = join_processes(recipe.optim)
    network = build_network(recipe)
    sizes = {"frame_px": recipe.network.input_size, "query_px": recipe.network.query_sizes[0]}
    composer = Composer(read_packs(data), update(recipe.composer, sizes), process.device, recipe.optim.seed)
    source = clip_source(composer, recipe.optim.batch)
    if process.is_main_process:
        write_json(folder / "recipe.json", to_dict(recipe))
    state = train(
        network,
        source,
        recipe.optim,
        folder,
        weights=recipe.losses,
        resume=resume,
        until_s=60 * minutes,
    )
    if process.is_main_process:
        save_weights(folder / "weights.safetensors", state.averaged)
    return state
