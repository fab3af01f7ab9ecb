"""The training loop: one process or several, exactly resumable, stopped when the loss is not finite."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from egohieraloc.errors import EgoHieraLocError, MissingExtraError, OutputError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training.batches import ClipBatch, part_of_batch
from egohieraloc.training.checkpoint import TrainState, load_state, require_unused, save_state
from egohieraloc.training.cuda_graph import GraphedStep, StepResult, TrainStep
from egohieraloc.training.losses import LossWeights, weighted_sum
from egohieraloc.training.objective import CHANCES_A_CLIP, clip_terms
from egohieraloc.training.optim import (
    OptimConfig,
    build_optimizer,
    freeze_norms,
    freeze_parameters,
    learning_rate_factor,
    set_rates,
)
from egohieraloc.training.shared_norm import share_norms

if TYPE_CHECKING:
    from accelerate import Accelerator

ClipSource = Callable[[int], ClipBatch]  # step to this process's part of its batch, always the same
Validate = Callable[[int, EgoHieraLocNet], dict[str, float]]  # step and averaged weights to scores, in all


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

    def __init__(self, network: EgoHieraLocNet, weights: LossWeights, config: OptimConfig) -> None:
        super().__init__()
        self.network = network
        self.weights = weights
        self.config = config

    def forward(self, batch: ClipBatch, chance: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms, accuracies = clip_terms(
            self.network, batch, chance, negatives=self.config.negatives, close_ups=self.config.close_ups
        )
        total = weighted_sum(terms, self.weights)
        figures = {name: value.detach() for name, value in (terms | accuracies).items()}
        return total, figures | {"total": total.detach()}


def join_processes(config: OptimConfig) -> Accelerator:
    """This process as one of those that train together: its device, and whether it is the main one."""
    try:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs
    except ImportError as error:
        raise MissingExtraError("accelerate", "train") from error
    # All validate, some longer than others: those wait, if need be longer than NCCL's ten minutes.
    patience = InitProcessGroupKwargs(timeout=timedelta(minutes=config.wait_minutes))
    return Accelerator(mixed_precision=config.precision, kwargs_handlers=[patience])


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
    else:
        require_unused(run.folder)
    if accelerator.num_processes > 1:
        share_norms(network)
    objective = accelerator.prepare(ClipObjective(network, weights or LossWeights(), config))
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
        with log.waiting_for_data():
            batch = source(state.step)
        result = take_step(batch, _draw_chance(len(batch), config.seed, state.step, accelerator))
        state.average(network, config.ema)
        state.step += 1

        log.frames += batch.presence.numel()
        if _due(state.step, config.log_every, config):
            log.step(state.step, result, rate)
        saves = _due(state.step, config.checkpoint_every, config) or log.out_of_time
        if saves:
            _require_finite(result, state.step)
        if validate and _due(state.step, config.validate_every, config):
            log.write(state.step, validate(state.step, state.averaged))
        if saves and accelerator.is_main_process:
            save_state(state, run.folder, keep=config.keep_checkpoints)
    log.close()
    return state


def _start(network: EgoHieraLocNet, config: OptimConfig, device: torch.device) -> TrainState:
    """The state before the first step, with the network on the device."""
    network.to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    freeze_parameters(network, config)
    return TrainState.start(network, build_optimizer(network, config))


def _draw_chance(size: int, seed: int, step: int, accelerator: Accelerator) -> Tensor:
    """This process's part (size, K) of a step's random numbers, which do not depend on the processes."""
    generator = torch.Generator(accelerator.device).manual_seed((seed << 32) + step)
    whole = size * accelerator.num_processes
    chance = torch.rand(whole, CHANCES_A_CLIP, generator=generator, device=accelerator.device)
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
        self.frames = 0  # trained on since the last line
        self._waited_s, self._since_s = 0.0, time.monotonic()
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

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self._waited_s += time.monotonic() - began_s

    def _speed(self) -> dict[str, Tensor]:
        """Of this process since the last line: share of the time spent waiting for data, frames a second."""
        now_s = time.monotonic()
        elapsed_s = max(now_s - self._since_s, 1e-9)
        speed = {"data_wait": self._waited_s / elapsed_s, "frames_per_s": self.frames / elapsed_s}
        self.frames, self._waited_s, self._since_s = 0, 0.0, now_s
        return {n: torch.tensor(value, device=self._accelerator.device) for n, value in speed.items()}

    def step(self, step: int, result: StepResult, rate: float) -> None:
        """Log means over all processes, check the loss, and look at the clock, the same one in all processes.

        Done only every few steps, because it waits for the device.
        """
        elapsed = torch.tensor(time.monotonic() - self._started_s, device=self._accelerator.device)
        figures = {**result.figures, "elapsed_s": elapsed, **self._speed()}
        figures = self._accelerator.reduce(figures, "mean")
        figures["frames_per_s"] = figures["frames_per_s"] * self._accelerator.num_processes
        self.out_of_time = float(figures["elapsed_s"]) > self._run.time_limit_s
        _require_finite(result, step)
        self.write(step, {**figures, "learning_rate": rate, "gradient": result.gradient_norm})

    def write(self, step: int, values: Mapping[str, Tensor | float]) -> None:
        if self._file is None:
            return
        plain = {name: round(float(value), 6) for name, value in values.items()}
        try:
            self._file.write(json.dumps({"step": step, "time_s": round(time.time(), 2), **plain}) + "\n")
            self._file.flush()
            if self._board is not None:
                for name, value in plain.items():
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            raise OutputError(
                f"Cannot write to {self._run.folder}: {error}. Is the disk full? Continue with --resume."
            ) from error

    def close(self) -> None:
        for sink in (self._file, self._board):
            if sink is not None:
                sink.close()
