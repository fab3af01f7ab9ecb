"""CUDA graphs of a training step and of the composer: thousands of small kernels in one launch.

A graph is captured once, after a few plain runs, and replayed from then on; all batches must have one size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from egohieraloc.errors import ConfigError
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer

WARM_UP = 3  # plain runs before capture, in which libraries choose their kernels


@dataclass(frozen=True, eq=False)
class StepResult:
    """What a training step reports; all values are scalars."""

    loss: Tensor
    figures: dict[str, Tensor]  # loss terms and accuracies by name
    gradient_norm: Tensor


TrainStep = Callable[[ClipBatch, Tensor], StepResult]


class GraphedStep:
    """A training step on one CUDA device. A result is valid until the next step."""

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._calls = 0
        self._graph = torch.cuda.CUDAGraph()

    def __call__(self, batch: ClipBatch, chance: Tensor) -> StepResult:
        self._calls += 1
        if self._calls <= WARM_UP:
            return self._run_plain(batch, chance)
        if self._calls == WARM_UP + 1:
            self._capture(batch, chance)
        for mine, given in zip(_tensors(self._batch), _tensors(batch), strict=True):
            mine.copy_(given)
        self._chance.copy_(chance)
        self._graph.replay()
        return self._result

    def _run_plain(self, batch: ClipBatch, chance: Tensor) -> StepResult:
        """On a side stream, as capture requires of the runs before it."""
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            result = self._step(batch, chance)
        main.wait_stream(side)
        return result

    def _capture(self, batch: ClipBatch, chance: Tensor) -> None:
        self._batch = ClipBatch(*(value.clone() for value in _tensors(batch)))
        self._chance = chance.clone()
        torch.cuda.empty_cache()
        with torch.cuda.graph(self._graph, stream=torch.cuda.Stream()):
            self._result = self._step(self._batch, self._chance)


class GraphedComposer:
    """The batches of a composer on a CUDA device.

    While a batch is trained on, the next one is composed on a stream of its own.
    """

    def __init__(self, composer: ClipComposer, size: int) -> None:
        device = composer.generator.device
        if device.type != "cuda":
            raise ConfigError(f"CUDA graphs need a composer on a CUDA device, this one is on {device}.")
        self._composer = composer
        self._device = device
        self._side = torch.cuda.Stream(device)
        self._composed: int | None = None  # the step whose batch is being composed
        composer.seed_for(0)
        self._side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._side):
            for _ in range(WARM_UP):
                composer.next_batch(size)
        torch.cuda.current_stream(device).wait_stream(self._side)
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(composer.generator)
        with torch.cuda.graph(self._graph, stream=torch.cuda.Stream()):
            self._batch = composer.next_batch(size)

    def batch(self, step: int) -> ClipBatch:
        """The batch of this step, the same as the composer's own."""
        main = torch.cuda.current_stream(self._device)
        if self._composed != step:
            self._compose(step)
        main.wait_stream(self._side)
        batch = ClipBatch(*(value.clone() for value in _tensors(self._batch)))
        self._compose(step + 1)
        return batch

    def _compose(self, step: int) -> None:
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            self._composer.seed_for(step)
            self._graph.replay()
        self._composed = step


def _tensors(batch: ClipBatch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
