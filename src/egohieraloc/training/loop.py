"""The training loop: one process or several, exactly resumable, stopped when the loss is not finite."""

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
from egohieraloc.training.cuda_graph import GraphedStep, StepResult, TrainStep
from egohieraloc.training.losses import LossWeights, weighted_sum
from egohieraloc.training.objective import clip_terms

if TYPE_CHECKING:
    from accelerate import Accelerator

ClipSource = Callable[[int], ClipBatch]  # step to this process's part of its batch, always the same
Validate = Callable[[int, EgoHieraLocNet], dict[str, float]]  # step and averaged weights to scores


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimization. The paper's: `schedule="paper"`, 20k steps, learning rate 1.5e-3, weight decay 0.02."""

    steps: int = 20_000
    batch: int = 64  # clips per step, over all processes
    learning_rate: float = 1e-3
    backbone_rate: float = 0.3  # share of the learning rate for a pretrained backbone
    weight_decay: float = 0.02
    warmup: int = 250
    schedule: Literal["cosine", "paper"] = "cosine"
    clip_norm: float = 1.0
    ema: float = 0.999  # decay of the averaged weights, which are the result of the run
    precision: Literal["bf16", "no"] = "bf16"
    compile: bool = False
    freeze_norm: Literal["none", "backbone", "all"] = "backbone"  # whose BatchNorm statistics are frozen
    freeze_gain: bool = False  # also freeze gain and bias of those norms
    freeze_stages: int = 0  # first stages of a pretrained backbone that are frozen
    negatives: int = 2  # frames of other clips per query: the most similar ones
    seed: int = 0
    checkpoint_every: int = 500
    validate_every: int = 1000
    log_every: int = 20


@dataclass(frozen=True)
class Run:
    """Where a run keeps its checkpoints and logs, whether it continues from there, and when it stops.

    A run killed at any moment loses only the steps since its last checkpoint.
    """

    folder: Path
    resume: bool = False
    time_limit_s: float = math.inf


class LossNotFiniteError(EgoHieraLocError):
    """Training diverged; the last checkpoint is from before."""


class ClipObjective(nn.Module):
    """Network and losses as one module, so that a data-parallel wrapper sees one forward pass."""

    def __init__(self, network: EgoHieraLocNet, weights: LossWeights, negatives: int) -> None:
        super().__init__()
        self.network = network
        self.weights = weights
        self.negatives = negatives

    def forward(self, batch: ClipBatch, chance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms, accuracies = clip_terms(self.network, batch, chance, negatives=self.negatives)
        total = weighted_sum(terms, self.weights)
        figures = {name: value.detach() for name, value in (terms | accuracies).items()}
        return total, figures | {"total": total.detach()}


def learning_rate_factor(step: int, config: OptimConfig) -> float:
    """Share of the peak learning rate at a step (from 0): linear warm-up, then a step or cosine schedule."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "paper":
        return 0.1 ** sum(step >= milestone for milestone in (2_000, 4_000, 11_000))
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_optimizer(network: EgoHieraLocNet, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW; the backbone learns more slowly, and vectors (norms, biases) have no weight decay.

    On a GPU learning rates are tensors, which a CUDA graph reads at every replay.
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
    """This process as one of those that train together: its device, and whether it is the main one."""
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise MissingExtraError("accelerate", "train") from error
    return Accelerator(mixed_precision=config.precision)


def train(
    network: EgoHieraLocNet,
    source: ClipSource,
    config: OptimConfig,
    run: Run,
    *,
    weights: LossWeights | None = None,
    validate: Validate | None = None,
) -> TrainState:
    """Train, and return the state at the end or at the time limit.

    `source` gives each process its part of a batch (`part_of_batch`): several processes train as one.
    """
    started_s = time.monotonic()
    accelerator = join_processes(config)
    torch.manual_seed(config.seed)
    state = _start(network, config, accelerator.device)
    if run.resume:
        load_state(state, run.folder)
    objective = accelerator.prepare(ClipObjective(network, weights or LossWeights(), config.negatives))
    optimizer = accelerator.prepare(state.optimizer)
    take_step = train_step(accelerator, objective, optimizer, config.clip_norm)
    log = _RunLog(run, accelerator, started_s)
    if config.compile:
        network.backbone.compile(dynamic=False)

    while state.step < config.steps and not log.out_of_time:
        network.train()
        freeze_norms(network, config.freeze_norm)
        rate = config.learning_rate * learning_rate_factor(state.step, config)
        set_rates(optimizer, rate)
        batch = source(state.step)
        result = take_step(batch, _draw_chance(len(batch), config.seed, state.step, accelerator))
        state.average(network, config.ema)
        state.step += 1

        if _due(state.step, config.log_every, config):
            log.step(state.step, result, rate)
        saves = _due(state.step, config.checkpoint_every, config) or log.out_of_time
        if saves:
            _require_finite(result, state.step)
        if validate and _due(state.step, config.validate_every, config) and accelerator.is_main_process:
            log.write(state.step, validate(state.step, state.averaged))
        if saves and accelerator.is_main_process:
            save_state(state, run.folder)
    log.close()
    return state


def _start(network: EgoHieraLocNet, config: OptimConfig, device: torch.device) -> TrainState:
    """The state before the first step, with the network on the device."""
    network.to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    freeze_parameters(network, config)
    return TrainState.start(network, build_optimizer(network, config))


def _draw_chance(size: int, seed: int, step: int, accelerator: Accelerator) -> Tensor:
    """This process's part (size, 2) of a step's random numbers, which do not depend on the processes."""
    generator = torch.Generator(accelerator.device).manual_seed((seed << 32) + step)
    whole = size * accelerator.num_processes
    chance = torch.rand(whole, 2, generator=generator, device=accelerator.device)
    return chance[part_of_batch(whole, accelerator.process_index, accelerator.num_processes)]


def _due(step: int, every: int, config: OptimConfig) -> bool:
    return step % every == 0 or step == config.steps


def train_step(
    accelerator: Accelerator, objective: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: float
) -> TrainStep:
    """Forward pass, backward pass and update of the weights; on a single GPU as a CUDA graph."""

    def take(batch: ClipBatch, chance: Tensor) -> StepResult:
        with accelerator.autocast():
            loss, figures = objective(batch, chance)
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(objective.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        return StepResult(loss.detach(), figures, norm)

    single_gpu = accelerator.device.type == "cuda" and accelerator.num_processes == 1
    return GraphedStep(take) if single_gpu else take


def freeze_parameters(network: EgoHieraLocNet, config: OptimConfig) -> None:
    """Freeze the first stages of the backbone, generic and costly to train, and the gains of frozen norms."""
    stages = len(network.backbone.channels)
    if not 0 <= config.freeze_stages <= stages:
        raise ConfigError(f"optim.freeze_stages must lie between 0 and {stages}, got {config.freeze_stages}.")
    for part in network.backbone.first(config.freeze_stages):
        part.requires_grad_(False)
    if config.freeze_gain:
        for norm in _norms(network, config.freeze_norm):
            norm.requires_grad_(False)


def freeze_norms(network: EgoHieraLocNet, where: str) -> None:
    """Freeze the BatchNorm statistics of a part of the network."""
    for norm in _norms(network, where):
        norm.eval()


def _norms(network: EgoHieraLocNet, where: str) -> list[nn.BatchNorm2d]:
    part = {"none": nn.Identity(), "backbone": network.backbone, "all": network}[where]
    return [module for module in part.modules() if isinstance(module, nn.BatchNorm2d)]


def _require_finite(result: StepResult, step: int) -> None:
    loss, norm = float(result.loss), float(result.gradient_norm)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise LossNotFiniteError(
            f"The loss is {loss} and the norm of its gradient {norm} at step {step}. "
            "Lower optim.learning_rate, or set optim.compile=false, and resume from the last checkpoint."
        )


class _RunLog:
    """Figures of a run to log.jsonl and, where it is installed, TensorBoard; and the time it has taken."""

    def __init__(self, run: Run, accelerator: Accelerator, started_s: float) -> None:
        self.out_of_time = False
        self._run, self._accelerator, self._started_s = run, accelerator, started_s
        self._file = None
        self._board = None
        if not accelerator.is_main_process:
            return
        run.folder.mkdir(parents=True, exist_ok=True)
        self._file = (run.folder / "log.jsonl").open("a", encoding="utf-8")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._board = SummaryWriter(str(run.folder))

    def step(self, step: int, result: StepResult, rate: float) -> None:
        """Log means over all processes, check the loss, and look at the clock, the same one in all processes.

        Done only every few steps, because it waits for the device.
        """
        elapsed = torch.tensor(time.monotonic() - self._started_s, device=self._accelerator.device)
        figures = self._accelerator.reduce({**result.figures, "elapsed_s": elapsed}, "mean")
        self.out_of_time = float(figures["elapsed_s"]) > self._run.time_limit_s
        _require_finite(result, step)
        self.write(step, {**figures, "learning_rate": rate, "gradient": result.gradient_norm})

    def write(self, step: int, values: Mapping[str, Tensor | float]) -> None:
        if self._file is None:
            return
        plain = {name: round(float(value), 6) for name, value in values.items()}
        self._file.write(json.dumps({"step": step, "time_s": round(time.time(), 2), **plain}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in plain.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        for sink in (self._file, self._board):
            if sink is not None:
                sink.close()
