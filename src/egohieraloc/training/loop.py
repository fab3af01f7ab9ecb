"""The training loop: one process or many, resumable to the bit, stopped when the loss is not finite."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from egohieraloc.errors import ConfigError, EgoHieraLocError, MissingExtraError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.batches import ClipBatch, part_of_batch
from egohieraloc.training.checkpoint import TrainState, load_state, save_state
from egohieraloc.training.losses import LossWeights, weighted_sum
from egohieraloc.training.objective import clip_terms
from egohieraloc.training.recorded import Outcome, RecordedStep, TrainStep

if TYPE_CHECKING:
    from accelerate import Accelerator

ClipSource = Callable[[int], ClipBatch]  # this process's part of the batch of a step, always the same
Validate = Callable[[int, EgoHieraLocNet], dict[str, float]]  # step and averaged weights to figures


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """How the weights are moved. The paper's recipe: `schedule="paper"`, 20k steps, 1.5e-3, decay 0.02."""

    steps: int = 20_000
    batch: int = 64  # clips a step, over all processes
    learning_rate: float = 1e-3
    backbone_rate: float = 0.3  # share of the learning rate for a pretrained backbone
    weight_decay: float = 0.02
    warmup: int = 250
    schedule: Literal["cosine", "paper"] = "cosine"
    clip_norm: float = 1.0
    ema: float = 0.999  # decay of the averaged weights, which are the ones that are kept
    precision: Literal["bf16", "no"] = "bf16"
    compile: bool = False
    freeze_norm: Literal["none", "backbone", "all"] = "backbone"  # BatchNorm statistics kept as they are
    freeze_gain: bool = False  # also the gain and the bias of those norms
    freeze_stages: int = 0  # first stages of a pretrained backbone that are kept as they are
    negatives: int = 2  # frames of other clips that each query is also shown, those it likes best
    seed: int = 0
    checkpoint_every: int = 500
    validate_every: int = 1000
    log_every: int = 20


class LossNotFiniteError(EgoHieraLocError):
    """Training went wrong; the last checkpoint is from before."""


class ClipObjective(nn.Module):
    """Network and losses as one module, so that a parallel wrapper sees one forward pass."""

    def __init__(self, network: EgoHieraLocNet, weights: LossWeights, negatives: int) -> None:
        super().__init__()
        self.network = network
        self.weights = weights
        self.negatives = negatives

    def forward(self, batch: ClipBatch, chance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms, figures = clip_terms(self.network, batch, chance, negatives=self.negatives)
        total = weighted_sum(terms, self.weights)
        shown = {name: value.detach() for name, value in (terms | figures).items()}
        return total, shown | {"total": total.detach()}


def learning_rate_factor(step: int, config: OptimConfig) -> float:
    """Share of the peak learning rate at a step (from 0): linear warm-up, then steps down or a cosine."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "paper":
        return 0.1 ** sum(step >= milestone for milestone in (2_000, 4_000, 11_000))
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_optimizer(network: EgoHieraLocNet, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW; the backbone moves more slowly, and vectors (norms, biases) do not decay.

    On a GPU rates are tensors, which a recorded step reads anew each time.
    """
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = config.backbone_rate if name.startswith("backbone.") else 1.0
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    device = next(network.parameters()).device
    cuda = device.type == "cuda"

    def start(rate: float) -> Tensor | float:
        return torch.tensor(rate, device=device) if cuda else rate

    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": start(rate * config.learning_rate),
                "weight_decay": decay,
                "peak": rate,
            }
            for (rate, decay), parameters in groups.items()
        ],
        lr=start(config.learning_rate),
        fused=cuda,
        capturable=cuda,
    )


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group to its share of `rate`."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["peak"])
        else:
            group["lr"] = rate * group["peak"]


def join_processes(config: OptimConfig) -> Accelerator:
    """This process as one of those that train: its device, and whether it is the main one."""
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise MissingExtraError("accelerate", "train") from error
    return Accelerator(mixed_precision=config.precision)


def train(
    network: EgoHieraLocNet,
    source: ClipSource,
    config: OptimConfig,
    folder: Path,
    *,
    weights: LossWeights | None = None,
    validate: Validate | None = None,
    resume: bool = False,
    until_s: float = math.inf,
) -> TrainState:
    """Train, and return the state at the end or at the time limit. `folder` keeps checkpoints and logs.

    `source` gives each process its part of a batch (`part_of_batch`): many processes train as one.

    Killed at any moment, nothing is lost but the steps since the last checkpoint: `resume=True` goes on.
    """
    started = time.monotonic()
    accelerator = join_processes(config)
    torch.manual_seed(config.seed)
    network.to(accelerator.device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    freeze_parameters(network, config)
    optimizer = build_optimizer(network, config)
    state = TrainState.start(network, optimizer)
    if resume:
        load_state(state, folder)
    objective = accelerator.prepare(ClipObjective(network, weights or LossWeights(), config.negatives))
    optimizer = accelerator.prepare(optimizer)
    take_step = train_step(accelerator, objective, optimizer, config.clip_norm)
    log = _Log(folder, enabled=accelerator.is_main_process)
    generator = torch.Generator(accelerator.device)
    if config.compile:
        network.backbone.compile(dynamic=False)

    out_of_time = False
    while state.step < config.steps and not out_of_time:
        network.train()
        freeze_norms(network, config.freeze_norm)
        factor = learning_rate_factor(state.step, config)
        set_rates(optimizer, config.learning_rate * factor)
        batch = source(state.step)
        generator.manual_seed((config.seed << 32) + state.step)
        whole = len(batch) * accelerator.num_processes
        chance = torch.rand(whole, 2, generator=generator, device=accelerator.device)
        chance = chance[part_of_batch(whole, accelerator.process_index, accelerator.num_processes)]
        total, shown, norm = take_step(batch, chance)
        state.average(network, config.ema)
        state.step += 1
        logs = state.step % config.log_every == 0 or state.step == config.steps
        if logs:  # seldom, because the device waits; all processes must see the same clock
            elapsed = torch.tensor(time.monotonic() - started, device=accelerator.device)
            shown = accelerator.reduce({**shown, "elapsed_s": elapsed}, "mean")
            out_of_time = float(shown["elapsed_s"]) > until_s
        saves = state.step % config.checkpoint_every == 0 or state.step == config.steps or out_of_time
        if logs or saves:
            _require_finite(total, norm, state.step)
        if logs:
            log.write(state.step, {**shown, "learning_rate": config.learning_rate * factor, "gradient": norm})
        validates = state.step % config.validate_every == 0 or state.step == config.steps
        if validate and validates and accelerator.is_main_process:
            log.write(state.step, validate(state.step, state.averaged))
        if saves and accelerator.is_main_process:
            save_state(state, folder)
    log.close()
    return state


def train_step(
    accelerator: Accelerator, objective: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: float
) -> TrainStep:
    """Forward, backward and a move of the weights; on one GPU recorded as one piece of work."""

    def take(batch: ClipBatch, chance: Tensor) -> Outcome:
        with accelerator.autocast():
            total, shown = objective(batch, chance)
        accelerator.backward(total)
        norm = accelerator.clip_grad_norm_(objective.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        return total.detach(), shown, norm

    alone = accelerator.device.type == "cuda" and accelerator.num_processes == 1
    return RecordedStep(take) if alone else take


def freeze_parameters(network: EgoHieraLocNet, config: OptimConfig) -> None:
    """Keep what is known already, and costs most, as it is: edges and textures; the gains of frozen norms."""
    stages = len(network.backbone.channels)
    if not 0 <= config.freeze_stages <= stages:
        raise ConfigError(f"optim.freeze_stages must lie between 0 and {stages}, got {config.freeze_stages}.")
    for part in network.backbone.first(config.freeze_stages):
        part.requires_grad_(False)
    if config.freeze_gain:
        for norm in _norms(network, config.freeze_norm):
            norm.requires_grad_(False)


def freeze_norms(network: EgoHieraLocNet, where: str) -> None:
    """Keep the statistics of the norms of a part as they are."""
    for norm in _norms(network, where):
        norm.eval()


def _norms(network: EgoHieraLocNet, where: str) -> list[nn.BatchNorm2d]:
    part = {"none": nn.Identity(), "backbone": network.backbone, "all": network}[where]
    return [module for module in part.modules() if isinstance(module, nn.BatchNorm2d)]


def _require_finite(total: Tensor, norm: Tensor, step: int) -> None:
    if not (math.isfinite(float(total)) and math.isfinite(float(norm))):
        raise LossNotFiniteError(
            f"The loss is {float(total)} and its gradient's norm {float(norm)} at step {step}. "
            "Lower optim.learning_rate, or set optim.compile=false, and resume from the last checkpoint."
        )


class _Log:
    """Scalars to TensorBoard where it is installed, and always to log.jsonl."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self.file = None
        self.board = None
        if not enabled:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / "log.jsonl").open("a", encoding="utf-8")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.board = SummaryWriter(str(folder))

    def write(self, step: int, values: Mapping[str, Tensor | float]) -> None:
        if self.file is None:
            return
        plain = {name: round(float(value), 6) for name, value in values.items()}
        self.file.write(json.dumps({"step": step, "time_s": round(time.time(), 2), **plain}) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in plain.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        for sink in (self.file, self.board):
            if sink is not None:
                sink.close()
