"""A recipe: everything that decides a training run, from one TOML file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from egohieraloc.config import NetworkConfig, preset
from egohieraloc.documents import parse_json, read_json, read_toml
from egohieraloc.errors import ConfigError, OutputError
from egohieraloc.files import locked, write_json
from egohieraloc.models.backbone import load_imagenet
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import fill, find_weights, load_weights, save_weights
from egohieraloc.paper import NETWORK
from egohieraloc.settings import override, to_dict, update
from egohieraloc.training.batches import ClipBatch, part_of_batch
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.checkpoint import WEIGHTS, TrainState, require_unused
from egohieraloc.training.composer.composed_videos import AS_VIDEO, compose_halves
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.training.composer.shaped_composer import ShapedComposer
from egohieraloc.training.cuda_graph import GraphedComposer
from egohieraloc.training.footage.clips import FootageClips
from egohieraloc.training.footage.footage import FootageConfig
from egohieraloc.training.footage.loading import LoadedClips, open_footage
from egohieraloc.training.loop import ClipSource, Run, join_processes, train
from egohieraloc.training.losses import LossWeights
from egohieraloc.training.optim import OptimConfig
from egohieraloc.training.validate import (
    AnswerQueries,
    Validation,
    ValidationConfig,
    composed_answers,
    ego4d_answers,
)

if TYPE_CHECKING:
    from accelerate import Accelerator


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained, from which weights, on which data, and how."""

    preset: str = "mini"
    start: str = "imagenet"  # initial weights of the backbone: "imagenet", "random", or a file or folder
    weights: str = ""  # or weights of the whole network to continue from: a file or a shipped name
    paper: bool = False  # the network as printed (`--paper`), in training and kept in the weights
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    source: Literal["composed", "footage"] = "composed"  # clips composed from packs, or Ego4D-VQ and VISOR
    composer: ComposerConfig = field(default_factory=ComposerConfig)
    footage: FootageConfig = field(default_factory=FootageConfig)
    losses: LossWeights = field(default_factory=LossWeights)
    validation: ValidationConfig = field(default_factory=ValidationConfig)

    @property
    def sized_composer(self) -> ComposerConfig:
        """The composer's settings with the image sizes of the network."""
        sizes = {"frame_px": self.network.input_size, "query_px": self.network.query_sizes[0]}
        return update(self.composer, sizes)


def read_recipe(path: str | Path, words: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe; `words` like `optim.steps=100` override it. The network defaults to its preset."""
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read the recipe {path}: {error}") from error

    def read(network: NetworkConfig) -> Recipe:
        return override(update(Recipe(network=network), values), words)

    asked = read(NetworkConfig())
    recipe = read(override(preset(asked.preset), NETWORK if asked.paper else ()))
    if recipe.source == "footage":  # frames of many shapes side by side; it is asked as it was trained
        recipe = replace(recipe, network=replace(recipe.network, square_canvas=True))
    borderless = recipe.source == "composed" and not recipe.composer.borders
    if recipe.optim.close_ups and borderless:
        raise ConfigError(
            "Close-ups are squares of square frames: set optim.close_ups=false or composer.borders=true."
        )
    if recipe.network.square_canvas and borderless:
        raise ConfigError(
            "A network is asked on canvases like those it was trained on: set network.square_canvas=false or "
            "composer.borders=true."
        )
    return recipe


def build_network(recipe: Recipe) -> EgoHieraLocNet:
    """The network with its initial weights."""
    torch.manual_seed(recipe.optim.seed)
    network = EgoHieraLocNet(recipe.network)
    if recipe.weights:
        trained = load_weights(find_weights(recipe.weights)).network.state_dict()
        new = {name: v for name, v in network.state_dict().items() if name.startswith("ram.previous.")}
        fill(network, {**new, **trained})  # what propagation adds begins at zero
    elif recipe.start != "random":
        load_imagenet(network.backbone, None if recipe.start == "imagenet" else recipe.start)
    return network


def clip_source(composer: ShapedComposer, size: int) -> ClipSource:
    """Composed batches by step; on a GPU from CUDA graphs."""
    if composer.device.type == "cuda":
        return GraphedComposer(composer, size).batch
    return lambda step: composer.batch(step, size)


def run_recipe(
    recipe: Recipe, data: Path, folder: Path, *, resume: bool = False, minutes: float = math.inf
) -> TrainState:
    """Train on the data in `data`; write recipe, logs, checkpoints and finally the weights to `folder`."""
    if not resume:
        require_unused(folder)
    process = join_processes(recipe.optim)
    with _only_run(folder) if process.is_main_process else nullcontext():
        return _run(recipe, data, Run(folder, resume, time_limit_s=60 * minutes), process)


@contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Two runs in one folder would take turns at its checkpoint."""
    with ExitStack() as lock:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(folder, wait=False))
        except BlockingIOError as error:
            raise ConfigError(
                f"Another run trains in {folder}. Wait until it has ended, or give another --out."
            ) from error
        except OSError as error:
            raise OutputError(f"Cannot write to {folder}: {error}. Give another --out.") from error
        try:
            yield
        finally:
            with suppress(OSError):  # it stays where there is something in it
                folder.rmdir()


def _run(recipe: Recipe, data: Path, run: Run, process: Accelerator) -> TrainState:
    folder, resume = run.folder, run.resume
    part = part_of_batch(recipe.optim.batch, process.process_index, process.num_processes)
    network = build_network(recipe)
    source = _open_source(recipe, data, process.device, part)
    validate = None
    if process.is_main_process:
        write_json(folder / "recipe.json", to_dict(recipe))
    if recipe.validation.queries:
        answer = _open_validation(recipe, data, process.device)
        share = process.process_index, process.num_processes
        validate = Validation(answer, folder, process.device, resume=resume, share=share)
    state = train(network, source, recipe.optim, run, weights=recipe.losses, validate=validate)
    if process.is_main_process:
        save_weights(folder / WEIGHTS, state.averaged)
    return state


def changes_since(folder: Path, recipe: Recipe) -> list[str]:
    """How a recipe differs from the one that a run was begun with: `optim.batch: 16, was 64`."""
    try:
        before = flat_values(read_json(folder / "recipe.json"))
    except (OSError, ValueError):
        return []  # without a recipe there is nothing to compare with
    now = flat_values(parse_json(json.dumps(to_dict(recipe))))
    names = [name for name in now if name in before and now[name] != before[name]]
    return [f"{name}: {now[name]}, was {before[name]}" for name in names]


def flat_values(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as `optim.batch`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping)
        flat |= flat_values(value, f"{above}{key}.") if nested else {f"{above}{key}": value}
    return flat


def sample_clips(recipe: Recipe, data: Path, *, clips: int = 8, publishable: bool = False) -> ClipBatch:
    """The first clips the recipe would train on."""
    if recipe.source == "composed":
        packs = read_packs(data, publishable=publishable)
        return ShapedComposer(packs, recipe.sized_composer, "cpu", recipe.optim.seed).batch(0, clips)
    if publishable:
        raise ConfigError("Only composed clips can be restricted to images that may be published.")
    alone = update(recipe, {"optim": {"batch": clips}, "footage": {"workers": 0}})
    return _open_source(alone, data, torch.device("cpu"), slice(clips))(0)


def _open_source(recipe: Recipe, data: Path, device: torch.device, part: slice) -> ClipSource:
    """This process's part of every batch."""
    size, seed = recipe.optim.batch, recipe.optim.seed
    if recipe.source == "composed":
        whole = clip_source(ShapedComposer(read_packs(data), recipe.sized_composer, device, seed), size)
        return lambda step: whole(step).take(part)
    footage = open_footage(recipe.footage, data)
    clips = FootageClips(footage, recipe.footage, recipe.network, batch=size, seed=seed)
    return LoadedClips(clips, range(size)[part], workers=recipe.footage.workers, device=device)


def _open_validation(recipe: Recipe, data: Path, device: torch.device) -> AnswerQueries:
    config = recipe.validation
    if recipe.source == "footage":
        return ego4d_answers(data / config.annotations, data / config.clips, config.queries)
    shown = update(recipe.sized_composer, AS_VIDEO | {"absent_share": 0.0})
    packs = read_packs(data, split="val", limit=PACK_LIMIT)
    return composed_answers(compose_halves(packs, device, clips=config.queries, config=shown))
