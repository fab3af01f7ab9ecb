"""The composer's work recorded once as a CUDA graph and replayed: thousands of small kernels, one launch."""

from __future__ import annotations

from dataclasses import fields

import torch

from egohieraloc.errors import ConfigError
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_stream import Composer

WARM_UP = 3


class ReplayedComposer:
    """The batches of a composer on a CUDA device, always of one size.

    While a batch is trained on, the next one is composed beside it, on a stream of its own.
    """

    def __init__(self, composer: Composer, size: int) -> None:
        device = composer.generator.device
        if device.type != "cuda":
            raise ConfigError(f"Only work on a CUDA device can be replayed, the composer is on {device}.")
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
            self._recorded = composer.next_batch(size)

    def batch(self, step: int) -> ClipBatch:
        """The batch of this step, the same as the composer's own."""
        main = torch.cuda.current_stream(self._device)
        if self._composed != step:
            self._compose(step)
        main.wait_stream(self._side)
        batch = ClipBatch(**{f.name: getattr(self._recorded, f.name).clone() for f in fields(ClipBatch)})
        self._compose(step + 1)
        return batch

    def _compose(self, step: int) -> None:
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            self._composer.seed_for(step)
            self._graph.replay()
        self._composed = step
