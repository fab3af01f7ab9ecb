"""Propagation (appendix B): what was found in a frame, moved by the drift, is shown to the next decoding.

The decoder also corrects the Query-aware Module's state: it says better than the filter's response whether
the object is followed, and where it is. B runs side by side, H W cells, positions are (x, y).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.models.qam import QamState
from egohieraloc.models.ram import cell_score


def moved(state: QamState, like: Tensor) -> Tensor:
    """The object's cells in the frame before, (B, H, W) in [0, 1], where the drift takes them; zero at first.

    like: a map of B frames.
    """
    height, width = like.shape[-2:]
    y = torch.arange(height, device=like.device)[None, :, None] - state.drift[:, 1, None, None]
    x = torch.arange(width, device=like.device)[None, None, :] - state.drift[:, 0, None, None]
    grid = torch.stack(torch.broadcast_tensors((2 * x + 1) / width - 1, (2 * y + 1) / height - 1), -1)
    shown: Tensor = F.grid_sample(state.cells[:, None].float(), grid, align_corners=False)[:, 0]
    return shown.to(like.dtype)


def corrected(before: QamState, after: QamState, cell_logits: Tensor, decay: float) -> QamState:
    """The state after a frame, corrected by what the decoder found in it (B, H, W).

    before, after: QAM's states before and after the frame.
    """
    logits = cell_logits.detach().float()
    best = logits.flatten(1).argmax(1)
    position = torch.stack([best % logits.shape[-1], best // logits.shape[-1]], 1).float()
    found = cell_score(logits) > 0
    goes_on = (found & before.following)[:, None]
    drift = decay * before.drift + (1 - decay) * (position - before.position)
    return replace(
        after,
        position=torch.where(found[:, None], position, after.position),
        drift=torch.where(goes_on, drift, torch.zeros_like(drift)),
        following=found,
        cells=logits.sigmoid() * found[:, None, None],
    )
