"""What a training step sees, whether composed or read from a data set."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class ClipBatch:
    """Clips with their truth. Pictures are in [0, 1]; boxes are xyxy in pixels, half-open.

    B clips, T frames, S side of the query window, F side of a frame.
    """

    query: Tensor  # (B, 3, S, S)
    query_mask: Tensor  # (B, 1, S, S) in [0, 1]
    query_box: Tensor  # (B, 4) what a user would draw
    frames: Tensor  # (B, T, 3, F, F)
    masks: Tensor  # (B, T, F/4, F/4) share of each cell that shows the target
    boxes: Tensor  # (B, T, 4) of the visible part; zeros where absent
    presence: Tensor  # (B, T) 0 or 1
    source: Tensor  # (B,) int64; equal for the same object
    distractor_masks: Tensor  # (B, T, F/4, F/4) look-alikes of the target, where they are known
    trust: Tensor  # (B,) weight of the mask: 1 for real masks, 0.3 for pseudo-masks
