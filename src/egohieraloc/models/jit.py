"""The encoder compiled by torch for one length of batch: fastest on a GPU, after a quarter of a minute for
each shape of frames. Torch compiles eight of them; others are run as they are.

For hours of video (`--engine compiled`); the fused blocks, which need no compiling, are nearly as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet

Backend = str | Callable[..., Any]  # what torch.compile calls so


class JitEncoder(nn.Module):
    """Backbone and neck; other batches than whole ones are run as they are."""

    def __init__(self, network: EgoHieraLocNet, batch: int, backend: Backend) -> None:
        super().__init__()
        self._batch = batch
        self.plain = nn.Sequential(network.backbone, network.neck)
        self._compiled = torch.compile(self.plain, dynamic=False, backend=backend)

    def forward(self, frames: Tensor) -> FrameFeatures:
        """Maps (shapes in `Neck.forward`) of frames (B, 3, H, W) in [0, 1]."""
        run = self._compiled if len(frames) == self._batch else self.plain
        features: FrameFeatures = run(frames)
        return features


def compile_encoder(network: EgoHieraLocNet, batch: int, *, backend: Backend = "inductor") -> None:
    """Encode frames by the compiled encoder, queries as before; compiled when the first batch comes."""
    network.frame_encoder = JitEncoder(network, batch, backend)
