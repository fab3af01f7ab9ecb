"""One training step recorded as a CUDA graph and replayed: thousands of small kernels, one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from egohieraloc.training.batches import ClipBatch

Outcome = tuple[Tensor, dict[str, Tensor], Tensor]  # the loss, figures to watch, the gradient's norm
TrainStep = Callable[[ClipBatch, Tensor], Outcome]
WARM_UP = 3  # steps that run as they are: libraries choose their kernels there


class RecordedStep:
    """A step on one CUDA device whose batches are all of one size; the outcome is valid until the next."""

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._taken = 0
        self._graph = torch.cuda.CUDAGraph()

    def __call__(self, batch: ClipBatch, chance: Tensor) -> Outcome:
        self._taken += 1
        if self._taken <= WARM_UP:
            return self._beside(batch, chance)
        if self._taken == WARM_UP + 1:
            self._record(batch, chance)
        for mine, given in zip(_tensors(self._batch), _tensors(batch), strict=True):
            mine.copy_(given)
        self._chance.copy_(chance)
        self._graph.replay()
        return self._outcome

    def _beside(self, batch: ClipBatch, chance: Tensor) -> Outcome:
        """On a stream of its own, as recording wants of the steps before it."""
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            outcome = self._step(batch, chance)
        main.wait_stream(side)
        return outcome

    def _record(self, batch: ClipBatch, chance: Tensor) -> None:
        self._batch = ClipBatch(*(value.clone() for value in _tensors(batch)))
        self._chance = chance.clone()
        torch.cuda.empty_cache()
        with torch.cuda.graph(self._graph, stream=torch.cuda.Stream()):
            self._outcome = self._step(self._batch, self._chance)


def _tensors(batch: ClipBatch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
