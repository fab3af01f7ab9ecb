"""The losses, one function each, and their weighted sum (paper, "Training stage").

B samples; masks are (B, h, w); boxes xyxy in [0, 1]. docs/paper.md explains the departures from the paper:
counts of a binarised mask have no gradient, and the filter's residual on its own query only measures feature
energy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, distributed
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """Weights of the sum. `PAPER` has the paper's; ours add terms that help to tell objects apart."""

    presence: float = 0.5  # L_BCE of a head of its own
    score: float = 0.5  # the same for the highest cell, which gives the frame its score
    theta: float = (
        0.0  # eta_1 in the paper: L_BCE of vartheta, the mask's confidence, which scores its frames
    )
    box: float = 1.0  # L_smooth on corners, quadratic below a cell
    box_xywh: float = 0.0  # eta_2, L_smooth as printed
    mask_in_box: float = 0.3  # eta_2, L_IoU^s2b
    filter: float = 0.3  # eta_3, L_f
    mask: float = 1.0  # eta_4, L_seg
    dice: float = 1.0  # soft overlap of the mask, independent of the object's size
    cells: float = 0.5  # is the object in this stride-16 cell?
    similarity: float = 0.5  # the same from the similarity map O alone
    contrast: float = 0.3  # each query against every frame of the batch
    query_mask: float = 0.5  # the built-in query segmenter
    query_quality: float = 0.1  # its estimate of its own IoU


PAPER = LossWeights(
    presence=0,
    score=0,
    theta=0.1,
    box=0,
    box_xywh=0.4,
    mask_in_box=0.4,
    filter=0.1,
    mask=0.2,
    dice=0,
    cells=0,
    similarity=0,
    contrast=0,
)


def shared_count(count: Tensor) -> Tensor:
    """The divisor of this process's sums: the count over all processes, at least 1, over their number.

    Gradients are averaged over processes, so together they equal those of one process with all samples.
    """
    processes = 1
    if distributed.is_available() and distributed.is_initialized():
        count = count.detach().clone()
        distributed.all_reduce(count)
        processes = distributed.get_world_size()
    return count.clamp(min=1.0) / processes


def presence_loss(logits: Tensor, presence: Tensor) -> Tensor:
    """L_BCE: is the object in the frame? Both (B,)."""
    return F.binary_cross_entropy_with_logits(logits, presence)


def box_loss(boxes: Tensor, wanted: Tensor, weight: Tensor, *, beta: float = 1 / 28) -> Tensor:
    """L_smooth of cell-wise boxes (B, 4, H, W) to (B, 4), weighted by (B, H, W).

    The quadratic part ends at one cell of a frame of 448 x 448; with the paper's beta of 1 it would end at
    the whole image.
    """
    distance = F.smooth_l1_loss(
        boxes, wanted[:, :, None, None].expand_as(boxes), beta=beta, reduction="none"
    ).sum(1)
    return (distance * weight).sum() / shared_count(weight.sum())


def box_xywh_loss(boxes: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    """L_smooth as printed: smooth L1, quadratic below 1, of the centre's x and y, w and h; arguments as for
    `box_loss`."""
    return box_loss(_center_and_size(boxes), _center_and_size(wanted), weight, beta=1.0)


def _center_and_size(boxes: Tensor) -> Tensor:
    """Corners (B, 4, ...) as centre, width and height."""
    low, high = boxes[:, :2], boxes[:, 2:]
    return torch.cat([(low + high) / 2, high - low], 1)


def theta_loss(confidence: Tensor, presence: Tensor) -> Tensor:
    """L_BCE of the mask's confidence vartheta (B,), in [0, 1]; 0 and 1 themselves would have no gradient."""
    logit = confidence.clamp(1e-4, 1 - 1e-4).logit()  # a loss that is not finite stays so, for who watches
    return F.binary_cross_entropy_with_logits(logit, presence.to(logit.dtype))


def mask_in_box_loss(probability: Tensor, inside: Tensor, presence: Tensor, *, alpha: float = 0.25) -> Tensor:
    """L_IoU^s2b with soft counts: mask inside the box against mask outside it and holes inside it.

    probability, inside: (B, h, w), `inside` the share of each pixel in the true box; alpha: alpha_IoU.
    """
    in_object = (probability * inside).sum((1, 2))
    in_background = ((1 - probability) * inside).sum((1, 2))
    out_object = (probability * (1 - inside)).sum((1, 2))
    loss = 1 - in_object / (alpha * in_background + in_object + out_object).clamp(min=1e-6)
    return (loss * presence).sum() / shared_count(presence.sum())


def filter_loss(response: Tensor, boxes: Tensor, presence: Tensor, sigma: float) -> Tensor:
    """L_f on search frames: squared distance of responses (B, H, W) to a Gaussian at the true centre.

    boxes: (B, 4) xyxy in cells; presence: (B,), the target is zero everywhere where the object is absent. As
    the object's cells are few among many, a second term averages over them alone. Evaluated on search frames
    because on the query itself, at the closed-form optimum, it only measures feature energy.
    """
    height, width = response.shape[-2:]
    y = torch.arange(height, device=response.device)[None, :, None] + 0.5
    x = torch.arange(width, device=response.device)[None, None, :] + 0.5
    center_x, center_y = ((boxes[:, :2] + boxes[:, 2:]) / 2)[:, :, None, None].unbind(1)
    spread = (sigma * (boxes[:, 2:] - boxes[:, :2]).prod(-1).clamp(min=1).sqrt()).clamp(min=0.7)
    distance = (y - center_y) ** 2 + (x - center_x) ** 2
    wanted = torch.exp(-distance / (2 * spread[:, None, None] ** 2)) * presence[:, None, None]
    error = (response - wanted).square()
    return error.mean() + 0.5 * (error * wanted).sum() / shared_count(wanted.sum())


def mask_loss(logits: Tensor, wanted: Tensor, trust: Tensor) -> Tensor:
    """L_seg: pixel-wise cross-entropy; trust (B,) is 1 for real masks and 0.3 for pseudo-masks."""
    loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean((1, 2))
    return (loss * trust).mean()


def dice_loss(probability: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
    """Soft Dice loss of the mask, averaged with weights (B,), which are 0 where there is no mask."""
    overlap = 2 * (probability * wanted).sum((1, 2)) + 1
    total = probability.sum((1, 2)) + wanted.sum((1, 2)) + 1
    return ((1 - overlap / total) * weight).sum() / shared_count(weight.sum())


def balanced_cell_loss(logits: Tensor, wanted: Tensor, alike: Tensor) -> Tensor:
    """Cross-entropy over cells (B, H, W) in which object and background have the same total weight.

    Background cells are weighted by their squared probability, as in a focal loss, so that mistakes count and
    easy cells do not; known look-alikes (`alike` 1) always count.
    """
    positives = shared_count(wanted.sum())
    positive = (F.softplus(-logits) * wanted).sum() / positives
    hardness = (torch.sigmoid(logits.detach()).square() + 0.25 * alike).clamp(max=1) * (1 - wanted)
    negatives = torch.maximum(shared_count(hardness.sum()), positives)
    return positive + (F.softplus(logits) * hardness).sum() / negatives


def contrast_loss(similarity: Tensor, apart: Tensor, presence: Tensor, *, scale: float = 20.0) -> Tensor:
    """Each query must be more similar to its own frame than to the frames of other clips in the batch.

    similarity: (B, B) of query i to frame j; apart: (B, B) bool, true where frame j is known not to show the
    object of query i. Queries whose object is absent (presence 0) have no positive and are left out.
    """
    own = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    logits = (similarity * scale).masked_fill(~(apart | own), -torch.inf)
    loss = F.cross_entropy(logits, torch.arange(len(similarity), device=similarity.device), reduction="none")
    return (loss * presence).sum() / shared_count(presence.sum())


def quality_loss(quality_logit: Tensor, mask_logits: Tensor, wanted: Tensor) -> Tensor:
    """The segmenter must predict the IoU of its own mask with the truth."""
    found = mask_logits.detach() > 0
    truth = wanted > 0.5
    union = (found | truth).sum((1, 2)).clamp(min=1)
    overlap = (found & truth).sum((1, 2)) / union
    return F.binary_cross_entropy_with_logits(quality_logit, overlap.to(quality_logit.dtype))


def weighted_sum(terms: dict[str, Tensor], weights: LossWeights) -> Tensor:
    """L_total: every term times its weight."""
    return torch.stack([terms[f.name] * getattr(weights, f.name) for f in fields(weights)]).sum()
