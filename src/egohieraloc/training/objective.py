"""From a batch of clips to the loss terms: one forward pass of the whole network.

B clips of T frames; S the query window's side, F the frame's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.models.blocks import area_pool
from egohieraloc.models.network import EgoHieraLocNet, QueryFeatures, box_coverage
from egohieraloc.models.ram import cell_score
from egohieraloc.training import losses
from egohieraloc.training.batches import ClipBatch


def clip_terms(
    network: EgoHieraLocNet, batch: ClipBatch, chance: Tensor, *, negatives: int = 0
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Loss terms by name (see `LossWeights`) and figures to watch, all scalars.

    chance: (B, 2) uniform random numbers, which decide how each query's mask is known. After the frames of
    its own clip a query is shown `negatives` frames of other clips, those it likes best: it is in none.
    """
    times = batch.presence.shape[1]
    size = batch.query.shape[-1]
    visible = (batch.query.amax(1, keepdim=True) > 0.02).float()
    query = network.encode_query(batch.query, batch.query_box / size, visible)
    mask, quality, level = _choose_masks(query, batch.query_mask, chance)
    template = network.template(query, mask, quality, level)
    features = network.encode_frames(batch.frames.flatten(0, 1))
    cross = _cross_similarity(template.tokens, template.foreground, features.match[::times])
    apart = (batch.source[:, None, None] != batch.shown).all(-1)
    seen, truth = _add_negatives(cross.detach().masked_fill(~apart, -torch.inf), times, negatives)
    number = torch.arange(seen.numel(), device=seen.device).view_as(seen)
    output, _ = network.match(
        template,
        features[seen.flatten()],
        network.initial_state(template),
        outlined=number[:, :times].flatten(),  # negatives have no mask to learn
        presence=True,
    )
    ram = output.ram

    presence, boxes = truth(batch.presence), truth(batch.boxes) / batch.frames.shape[-1]
    grid = output.response.shape[-1]
    cells = _cell_targets(truth(batch.masks), grid)
    alike = _cell_targets(truth(batch.distractor_masks), grid)
    masks, shown, box = (v.flatten(0, 1) for v in (batch.masks, batch.presence, batch.boxes))
    inside = box_coverage(box / batch.frames.shape[-1], *masks.shape[-2:])
    logits = ram.mask_logits.float()
    probability = logits.sigmoid()
    query_logits = query.mask_logits.float()
    query_truth = area_pool(batch.query_mask.float(), query_logits)[:, 0]
    trust = batch.trust.repeat_interleave(times)
    terms = {
        "presence": losses.presence_loss(ram.presence_logit, presence),
        "score": losses.presence_loss(cell_score(ram.cell_logits), presence),
        "box": losses.box_loss(ram.boxes, boxes, cells * presence[:, None, None]),
        "mask_in_box": losses.mask_in_box_loss(probability, inside, shown),
        "filter": losses.filter_loss(output.response, boxes * grid, presence, network.config.dcf.sigma),
        "mask": losses.mask_loss(logits, masks, trust),
        "dice": losses.dice_loss(probability, masks, shown * trust),
        "cells": losses.balanced_cell_loss(ram.cell_logits, cells, alike),
        "similarity": losses.balanced_cell_loss(
            network.coarse[0] * output.foreground.float() + network.coarse[1], cells, alike
        ),
        "contrast": losses.contrast_loss(cross, apart, batch.presence[:, 0]),
        "query_mask": losses.mask_loss(query_logits, query_truth, batch.trust)
        + losses.dice_loss(query_logits.sigmoid(), query_truth, batch.trust),
        "query_quality": losses.quality_loss(query.quality_logit, query_logits, query_truth),
    }
    return terms, {
        "mask_iou": _overlap(probability > 0.5, masks > 0.5, shown),
        "score_accuracy": ((cell_score(ram.cell_logits) > 0) == (presence > 0.5)).float().mean(),
        "presence_accuracy": ((ram.presence_logit > 0) == (presence > 0.5)).float().mean(),
        "query_iou": _overlap(query_logits > 0, query_truth > 0.5, torch.ones_like(batch.trust)),
    }


def _add_negatives(similarity: Tensor, times: int, count: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Which of the B*T frames each query sees, (B, T + count), and what makes the truth (B, T, ...) fit them.

    similarity: (B, B) of queries to the first frames of clips, -inf where the object may be there. A query
    without enough other clips sees its own first frame again.
    """
    clips = len(similarity)
    own = torch.arange(clips, device=similarity.device)
    others = similarity.masked_fill(own[:, None] == own, -torch.inf)
    best = others.topk(min(count, clips), 1)
    again = best.values == -torch.inf
    rows = torch.where(again, own[:, None], best.indices) * times
    seen = torch.cat([own[:, None] * times + torch.arange(times, device=own.device), rows], 1)

    def truth(values: Tensor) -> Tensor:
        shape = (*again.shape, *(1,) * (values.ndim - 2))
        return torch.cat([values, values[:, :1] * again.reshape(shape)], 1).flatten(0, 1)

    return seen, truth


def _choose_masks(query: QueryFeatures, truth: Tensor, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Foreground mask (B, 1, h, w), quality (B,) and level (B,) as they vary at inference.

    Half of the queries take the segmenter's own guess, three tenths the truth, the rest have none (level 2);
    a quarter of the guesses are used softly (level 1).
    """
    guess = (query.mask_logits.detach()[:, None] > 0).float()
    truth = area_pool(truth.float(), guess)
    kind, trust = chance.unbind(1)
    mask = torch.where((kind < 0.5)[:, None, None, None], guess, truth)
    level = torch.where(kind > 0.8, 2, torch.where(kind < 0.125, 1, 0))
    return mask, 0.4 + 0.2 * trust, level


def _cell_targets(masks: Tensor, grid: int) -> Tensor:
    """Target (B, H, W) of each stride-16 cell: 1 from half coverage on, and in the best covered cell."""
    coverage = F.adaptive_avg_pool2d(masks[:, None].float(), (grid, grid))[:, 0]
    best = coverage.amax((1, 2), keepdim=True)
    return torch.where((coverage == best) & (best > 0), 1.0, (2 * coverage).clamp(max=1))


def _cross_similarity(tokens: Tensor, foreground: Tensor, cells: Tensor, *, most_tokens: int = 48) -> Tensor:
    """Similarity (B, B) of each query to each frame: mean of its four most alike cells.

    tokens: (B, N, D); foreground: (B, N); cells: (B, D, H, W). The heaviest `most_tokens` tokens stand for a
    query; weights are disturbed by their order, so that all scales are represented.
    """
    count = tokens.shape[1]
    spread = torch.arange(count, device=tokens.device).float().mul(0.618034).frac()  # even over the scales
    order = (foreground.detach() + 0.01 * spread).topk(min(most_tokens, count), 1).indices
    chosen = tokens.gather(1, order[..., None].expand(-1, -1, tokens.shape[-1]))
    member = foreground.gather(1, order) > 0
    similarity = torch.einsum("ind,jdc->ijnc", chosen, cells.flatten(2))
    best = similarity.masked_fill(~member[:, None, :, None], -1.0).amax(2)
    return best.topk(4, -1).values.mean(-1).float()


def _overlap(found: Tensor, truth: Tensor, counts: Tensor) -> Tensor:
    """Mean overlap of masks (B, h, w) where they count (B,)."""
    iou = (found & truth).sum((1, 2)) / (found | truth).sum((1, 2)).clamp(min=1)
    return (iou * counts).sum() / losses.shared_count(counts.sum())
