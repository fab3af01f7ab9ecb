"""CUDA graphs of a training step and of the composer: thousands of small kernels in one launch.

A graph is captured once, after a few plain runs, and replayed from then on. Each shape of batches has a graph
of its own. Graphs that never run at the same time share the memory of their intermediate values: whatever a
graph computes is valid only until the next one of the same kind runs. For that they are captured on one
stream, because freed memory is only used again on the stream that it was taken on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from egohieraloc.errors import ConfigError
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.shaped_composer import ShapedComposer

WARM_UP = 3  # plain runs of each shape before capture, in which libraries choose their kernels


@dataclass(frozen=True, eq=False)
class StepResult:
    """What a training step reports; all values are scalars."""

    loss: Tensor
    figures: dict[str, Tensor]  # loss terms and accuracies by name
    gradient_norm: Tensor


TrainStep = Callable[[ClipBatch, Tensor], StepResult]


@dataclass(frozen=True, eq=False)
class _CapturedStep:
    graph: torch.cuda.CUDAGraph
    batch: ClipBatch  # what it reads
    chance: Tensor
    result: StepResult  # what it writes


class GraphedStep:
    """A training step on one CUDA device. A result is valid until the next step."""

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._runs = Counter[torch.Size]()  # plain ones, by the shape of the frames
        self._captured: dict[torch.Size, _CapturedStep] = {}
        self._plain, self._capturing = torch.cuda.Stream(), torch.cuda.Stream()
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, batch: ClipBatch, chance: Tensor) -> StepResult:
        shape = batch.frames.shape
        if shape not in self._captured and self._runs[shape] < WARM_UP:
            self._runs[shape] += 1
            return self._run_plain(batch, chance)
        if shape not in self._captured:
            self._captured[shape] = self._capture(batch, chance)
        captured = self._captured[shape]
        for mine, given in zip(_tensors(captured.batch), _tensors(batch), strict=True):
            mine.copy_(given)
        captured.chance.copy_(chance)
        captured.graph.replay()
        return captured.result

    def _run_plain(self, batch: ClipBatch, chance: Tensor) -> StepResult:
        """On a side stream, as capture requires of the runs before it."""
        main, side = torch.cuda.current_stream(), self._plain
        side.wait_stream(main)
        with torch.cuda.stream(side):
            result = self._step(batch, chance)
        main.wait_stream(side)
        return result

    def _capture(self, batch: ClipBatch, chance: Tensor) -> _CapturedStep:
        batch, chance = ClipBatch(*(value.clone() for value in _tensors(batch))), chance.clone()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.empty_cache()
        with torch.cuda.graph(graph, pool=self._memory, stream=self._capturing):
            result = self._step(batch, chance)
        return _CapturedStep(graph, batch, chance, result)


class GraphedComposer:
    """The batches of a composer on a CUDA device.

    While a batch is trained on, the next one is composed on a stream of its own.
    """

    def __init__(self, composer: ShapedComposer, size: int) -> None:
        device = composer.device
        if device.type != "cuda":
            raise ConfigError(f"CUDA graphs need a composer on a CUDA device, this one is on {device}.")
        self._composer = composer
        self._device = device
        self._side = torch.cuda.Stream(device)
        self._composed: int | None = None  # the step whose batch is being composed
        self._capturing, self._memory = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self._captured = [self._capture(each, size) for each in composer.composers]

    def _capture(self, composer: ClipComposer, size: int) -> tuple[torch.cuda.CUDAGraph, ClipBatch]:
        """The graph of one shape, and what it writes."""
        composer.seed_for(0)
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            for _ in range(WARM_UP):
                composer.next_batch(size)
        torch.cuda.current_stream(self._device).wait_stream(self._side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(composer.generator)
        with torch.cuda.graph(graph, pool=self._memory, stream=self._capturing):
            batch = composer.next_batch(size)
        return graph, batch

    def batch(self, step: int) -> ClipBatch:
        """The batch of this step, the same as the composer's own."""
        main = torch.cuda.current_stream(self._device)
        if self._composed != step:
            self._compose(step)
        main.wait_stream(self._side)
        _, composed = self._captured[self._composer.number(step)]
        batch = ClipBatch(*(value.clone() for value in _tensors(composed)))
        self._compose(step + 1)
        return batch

    def _compose(self, step: int) -> None:
        """Begin with the batch of a step, once the last one has been copied."""
        number = self._composer.number(step)
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            self._composer.composers[number].seed_for(step)
            self._captured[number][0].replay()
        self._composed = step


def _tensors(batch: ClipBatch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
