"""A batch of training clips, composed or read from a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from egohieraloc.errors import ConfigError


@dataclass(frozen=True, eq=False)
class ClipBatch:
    """Clips with their labels. Images are in [0, 1]; boxes are xyxy in pixels, half-open.

    B clips, T frames, S side of the query window; H, W sides of a frame, multiples of 32.
    """

    query: Tensor  # (B, 3, S, S)
    query_mask: Tensor  # (B, 1, S, S) in [0, 1]
    query_box: Tensor  # (B, 4) as a user would draw it
    frames: Tensor  # (B, T, 3, H, W)
    masks: Tensor  # (B, T, H/4, W/4) share of each stride-4 cell that the target covers
    boxes: Tensor  # (B, T, 4) of the visible part, zeros where absent
    presence: Tensor  # (B, T) 0 or 1
    source: Tensor  # (B,) int64, equal for objects that are or may be the same
    shown: Tensor  # (B, K) int64, sources of everything the clip is known to show
    distractor_masks: Tensor  # (B, T, H/4, W/4) of look-alikes of the target, where known
    trust: Tensor  # (B,) weight of the masks: 1 for real ones, 0.3 for pseudo-masks

    def __len__(self) -> int:
        return len(self.trust)

    def take(self, clips: slice) -> ClipBatch:
        """Some of the clips."""
        return ClipBatch(*(getattr(self, f.name)[clips] for f in fields(self)))

    def pin_memory(self) -> ClipBatch:
        """A copy in pinned memory; called by torch's DataLoader."""
        return ClipBatch(*(getattr(self, f.name).pin_memory() for f in fields(self)))

    @classmethod
    def cat(cls, parts: Sequence[ClipBatch]) -> ClipBatch:
        """The clips of several batches as one."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


def part_of_batch(size: int, rank: int, processes: int) -> slice:
    """The clips of a batch that one of several processes takes; all take the same number."""
    if size % processes:
        raise ConfigError(
            f"A batch of {size} clips cannot be divided among {processes} processes. Change optim.batch."
        )
    return slice(rank * size // processes, (rank + 1) * size // processes)
