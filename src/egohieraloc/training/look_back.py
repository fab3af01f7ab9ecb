"""What the look back learns from: what the first look finds, right and wrong, cut out of its frame.

Only the look back is trained; the network that finds stays as it is. For each query there are candidates:
what the network finds in a frame of its own clip, where the object may be replaced by a look-alike; the
object in another frame of the clip; and what scores highest in frames of other clips, which do not show it.
B queries, K candidates each; S the side of a window, F of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import NetworkConfig
from egohieraloc.models.blocks import area_pool
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, QueryTemplate
from egohieraloc.models.ram import best_boxes, cell_score
from egohieraloc.training import losses
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.objective import (
    Scalars,
    cell_targets,
    cross_similarity,
    encode_queries,
    known_apart,
    most_similar_clips,
)

FOUND = 0.25  # IoU with the object's box from which on a candidate shows it ...
MISSED = 0.05  # ... and up to which it does not; what lies between teaches nothing
SEARCHED = 8  # frames of other clips that are searched for each query ...
KEPT = 4  # ... and those that are kept
CANDIDATES = KEPT + 2
JITTER = 0.08  # how far the sides of boxes are moved at most, in sides of the box
CHANCES = 2 + 4 * CANDIDATES  # random numbers for each query


def look_back_terms(network: EgoHieraLocNet, batch: ClipBatch, chance: Tensor) -> tuple[Scalars, Scalars]:
    """Loss terms, and accuracies to log. chance: (B, CHANCES) uniform random numbers."""
    with torch.no_grad():
        found = candidates(network, batch, chance)
    cell_logits = network.look_back(found.template, found.windows)
    logits = cell_score(cell_logits).view_as(found.correct)
    loss = F.binary_cross_entropy_with_logits(logits, found.correct, reduction="none")
    # Candidates that show the object, and those that do not, count the same in all.
    right, wrong = found.weight * found.correct, found.weight * (1 - found.correct)
    score = _mean(loss, right) + _mean(loss, wrong)
    where = cell_targets(area_pool(batch.query_mask.float(), cell_logits)[:, 0], cell_logits.shape[-1])
    where = where.repeat_interleave(CANDIDATES, 0) * right.view(-1, 1, 1)
    hits = ((logits > 0) == (found.correct > 0.5)).float()
    return {
        "score": score,
        "cells": losses.balanced_cell_loss(cell_logits, where, torch.zeros_like(where)),
    }, {
        "right_accuracy": _mean(hits, right),
        "wrong_accuracy": _mean(hits, wrong),
    }


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum().clamp(min=1)


@dataclass(frozen=True)
class Candidates:
    """B * K pairs of something found and the query it was found for."""

    template: QueryTemplate  # (B * K) of what was found
    windows: FrameFeatures  # (B * K) of the queries
    correct: Tensor  # (B, K) 1 where it is the query's object
    weight: Tensor  # (B, K) 0 where that is doubtful


def candidates(network: EgoHieraLocNet, batch: ClipBatch, chance: Tensor) -> Candidates:
    """What is found for each query of a batch."""
    clips, times = batch.presence.shape
    size = batch.frames.shape[-1]
    query, template = encode_queries(network, batch, chance[:, :2])
    features = network.encode_frames(batch.frames[:, 0])
    similarity = cross_similarity(template, features.match)
    elsewhere, is_own = most_similar_clips(similarity.masked_fill(~known_apart(batch), -torch.inf), SEARCHED)
    own = torch.arange(clips, device=chance.device)
    searched = torch.cat([own[:, None], elsewhere], 1)  # (B, 1 + SEARCHED) clips
    output, _ = network.match(
        template,
        features[searched.flatten()],
        network.initial_state(template),
        apart_from=0,
        outlined=searched.new_empty(0),
    )
    score = cell_score(output.ram.cell_logits).view_as(searched)
    boxes = best_boxes(output.ram.cell_logits, output.ram.boxes).unflatten(0, searched.shape)
    best = score[:, 1:].masked_fill(is_own, -torch.inf).topk(KEPT, 1).indices

    later = times - 1
    true = batch.boxes / size
    rivals = boxes[:, 1:].gather(1, best[..., None].expand(-1, -1, 4))
    box = jittered(torch.cat([boxes[:, :1], true[:, None, later], rivals], 1), chance[:, 2:])
    clip = torch.cat([own[:, None], own[:, None], elsewhere.gather(1, best)], 1)
    time = torch.zeros_like(clip)
    time[:, 1] = later
    found = network.encode_query(*cut_windows(batch.frames, clip, time, box, network.config))
    trusted = torch.ones(clip.numel(), device=clip.device)
    sure = torch.zeros(clip.numel(), dtype=torch.long, device=clip.device)
    mask = (found.mask_logits > 0).float()[:, None]

    overlap = iou(boxes[:, 0], true[:, 0])
    there = batch.presence[:, 0] > 0.5
    correct, weight = (torch.ones(clip.shape, device=clip.device) for _ in range(2))
    correct[:, 0] = (there & (overlap >= FOUND)).float()
    correct[:, 2:] = 0.0
    weight[:, 0] = ((overlap >= FOUND) | (overlap < MISSED) | ~there).float()
    weight[:, 1] = batch.presence[:, later]
    weight[:, 2:] = (~is_own).float().gather(1, best)
    return Candidates(
        network.template(found, mask, trusted, sure),
        query.scales[0][own.repeat_interleave(CANDIDATES)],
        correct,
        weight,
    )


def jittered(boxes: Tensor, chance: Tensor) -> Tensor:
    """Boxes (B, K, 4) whose sides are moved a little. chance: (B, 4 K) uniform."""
    sides = (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2)
    return boxes + JITTER * sides * (2 * chance.view_as(boxes) - 1)


def cut_windows(
    frames: Tensor, clip: Tensor, time: Tensor, boxes: Tensor, config: NetworkConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Windows (B * K, 3, S, S) as they are cut for a query, the boxes (B * K, 4) in them in [0, 1], and what
    of them lies in the frame (B * K, 1, S, S).

    frames: (clips, T, 3, F, F); clip, time: (B, K) which of them; boxes: (B, K, 4) xyxy in [0, 1] of them.
    """
    boxes = boxes.flatten(0, 1)
    side_px = config.query_sizes[0]
    center, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    side = config.query_window * size.amax(1, keepdim=True).clamp(min=8 / frames.shape[-1])
    ramp = (torch.arange(side_px, device=boxes.device) + 0.5) / side_px - 0.5
    x, y = (2 * (center[:, :, None] + side[..., None] * ramp) - 1).unbind(1)
    grid = torch.stack([x[:, None, :].expand(-1, side_px, -1), y[:, :, None].expand(-1, -1, side_px)], -1)
    images = frames[clip.flatten(), time.flatten()].float()
    windows = F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)
    visible = (grid.abs() <= 1).all(-1)[:, None].float()
    return windows, torch.cat([0.5 - size / side / 2, 0.5 + size / side / 2], 1), visible


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union (B,) of boxes (B, 4)."""
    size = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    both = size.prod(1)
    either = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - both
    return both / either.clamp(min=1e-9)
