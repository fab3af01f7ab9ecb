"""The composer's work recorded once as a CUDA graph and replayed: thousands of small kernels, one launch."""

from __future__ import annotations

from dataclasses import fields

import torch

from egohieraloc.errors import ConfigError
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer import Composer

WARM_UP = 3


class ReplayedComposer:
    """The batches of a composer on a CUDA device, always of one size."""

    def __init__(self, composer: Composer, size: int) -> None:
        device = composer.generator.device
        if device.type != "cuda":
            raise ConfigError(f"Only work on a CUDA device can be replayed, the composer is on {device}.")
        self._composer = composer
        composer.seed_for(0)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                composer.next_batch(size)
        torch.cuda.current_stream(device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(composer.generator)
        with torch.cuda.graph(self._graph):
            self._recorded = composer.next_batch(size)

    def batch(self, step: int) -> ClipBatch:
        """The batch of this step, the same as the composer's own."""
        self._composer.seed_for(step)
        self._graph.replay()
        copies = {f.name: getattr(self._recorded, f.name).clone() for f in fields(ClipBatch)}
        return ClipBatch(**copies)
