"""From a batch of clips to the loss terms: one forward pass of the whole network.

B clips of T frames; S the side of the query window; H, W the grid of stride-16 cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.models.blocks import area_pool
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, MatchOutput, QueryFeatures, QueryTemplate, box_coverage
from egohieraloc.models.ram import cell_score, mask_confidence
from egohieraloc.training import losses
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.close_ups import CHANCES, CloseUps, take_close_ups

Scalars = dict[str, Tensor]  # by name
CHANCES_A_CLIP = 2 + CHANCES


def clip_terms(
    network: EgoHieraLocNet, batch: ClipBatch, chance: Tensor, *, negatives: int = 0, close_ups: bool = False
) -> tuple[Scalars, Scalars]:
    """Loss terms (see `LossWeights`) and accuracies to log.

    chance: (B, CHANCES_A_CLIP) uniform random numbers that decide how each query's mask is obtained and where
    its close-up is taken. After the frames of its own clip, each query is matched with `negatives` frames of
    other clips: the most similar ones that do not show its object; with `close_ups` also with one image as a
    second look sees it, which for every other query is of another clip.
    """
    times = batch.presence.shape[1]
    query, template = _encode_queries(network, batch, chance[:, :2])
    features = network.encode_frames(batch.frames.flatten(0, 1))
    similarity = _cross_similarity(template.tokens, template.foreground, features.match[::times])
    apart = (batch.source[:, None, None] != batch.shown).all(-1)
    matched = _with_negatives(similarity.detach().masked_fill(~apart, -torch.inf), times, negatives)
    if close_ups:
        closer = _close_ups(template, features.match[::times], batch, matched, chance[:, 2:])
        features = FrameFeatures.cat([features, network.encode_frames(closer.images)])
        matched = matched.with_close_ups(closer)
    number = torch.arange(matched.frame.numel(), device=similarity.device).view_as(matched.frame)
    outlined = number[:, :times]  # negatives have no mask to learn from
    output, _ = network.match(
        template,
        features[matched.frame.flatten()],
        network.initial_state(template),
        apart_from=times,
        outlined=(torch.cat([outlined, number[:, -1:]], 1) if close_ups else outlined).flatten(),
        presence=True,
    )
    frame_terms, frame_figures = _frame_terms(network, output, batch, matched)
    mask_terms, mask_figures = _mask_terms(output.ram.mask_logits, batch, matched)
    contrast = losses.contrast_loss(similarity, apart, batch.presence[:, 0])
    query_terms, query_figures = _query_terms(query, batch)
    terms = frame_terms | mask_terms | {"contrast": contrast} | query_terms
    return terms, frame_figures | mask_figures | query_figures


@dataclass(frozen=True, eq=False)
class MatchedFrames:
    """The frames each query is matched with: those of its clip, then negatives from other clips.

    A query without enough negatives is matched with the first frame of its own clip again.
    """

    frame: Tensor  # (B, T + negatives) indices into the B * T frames; close-ups follow these
    is_own: Tensor  # (B, negatives) bool: the own first frame instead of a negative
    closer: CloseUps | None = None

    def with_close_ups(self, closer: CloseUps) -> MatchedFrames:
        """And a close-up for each query; its features follow those of the frames."""
        clips, times = len(self.frame), self.frame.shape[1] - self.is_own.shape[1]
        number = clips * times + torch.arange(clips, device=self.frame.device)
        return MatchedFrames(torch.cat([self.frame, number[:, None]], 1), self.is_own, closer)

    def labels(self, batch: ClipBatch, name: str) -> Tensor:
        """Labels (B, T, ...) of the clips as labels of the matched frames; they are zero for negatives."""
        values: Tensor = getattr(batch, name)
        shape = (*self.is_own.shape, *(1,) * (values.ndim - 2))
        parts = [values, values[:, :1] * self.is_own.reshape(shape)]
        return torch.cat(parts + self._closer(name), 1).flatten(0, 1)

    def outlined(self, batch: ClipBatch, name: str) -> Tensor:
        """The same for the frames that have a mask to learn from."""
        values: Tensor = getattr(batch, name)
        return torch.cat([values, *self._closer(name)], 1).flatten(0, 1)

    def _closer(self, name: str) -> list[Tensor]:
        return [] if self.closer is None else [getattr(self.closer, name)[:, None]]


def _with_negatives(similarity: Tensor, times: int, count: int) -> MatchedFrames:
    """Add the `count` most similar frames of other clips to the frames of each query's own clip.

    similarity: (B, B) of queries to the first frames of clips, -inf where the clip may show the object.
    """
    clips = len(similarity)
    own = torch.arange(clips, device=similarity.device)
    others = similarity.masked_fill(own[:, None] == own, -torch.inf)
    best = others.topk(min(count, clips), 1)
    is_own = best.values == -torch.inf
    negatives = torch.where(is_own, own[:, None], best.indices) * times
    frame = torch.cat([own[:, None] * times + torch.arange(times, device=own.device), negatives], 1)
    return MatchedFrames(frame, is_own)


def _close_ups(
    template: QueryTemplate, cells: Tensor, batch: ClipBatch, matched: MatchedFrames, chance: Tensor
) -> CloseUps:
    """Of the own clip for every other query, of the most similar other clip for the rest.

    cells: (B, D, H, W) descriptors of the first frames of the clips.
    """
    times = batch.presence.shape[1]
    own = torch.arange(len(batch), device=cells.device)
    elsewhere = matched.frame[:, times] // times if matched.is_own.shape[1] else own
    clip = torch.where(own % 2 == 0, own, elsewhere)
    tokens, member = _leading_tokens(template.tokens, template.foreground)
    similarity = torch.einsum("bnd,bdc->bnc", tokens, cells[clip].flatten(2))
    best = similarity.masked_fill(~member[..., None], -1.0).amax(1).argmax(1)
    height, width = cells.shape[-2:]
    peak = torch.stack([(best % width + 0.5) / width, (best // width + 0.5) / height], 1)
    return take_close_ups(batch, clip, peak, chance)


def _encode_queries(
    network: EgoHieraLocNet, batch: ClipBatch, chance: Tensor
) -> tuple[QueryFeatures, QueryTemplate]:
    visible = (batch.query.amax(1, keepdim=True) > 0.02).float()
    query = network.encode_query(batch.query, batch.query_box / batch.query.shape[-1], visible)
    mask, quality, level = _choose_masks(query, batch.query_mask, chance)
    return query, network.template(query, mask, quality, level)


def _choose_masks(query: QueryFeatures, truth: Tensor, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Foreground mask (B, 1, h, w), quality (B,) and level (B,), varied as they vary at inference.

    Half of the queries use the segmenter's prediction, three tenths the true mask, the rest none (level 2); a
    quarter of the predictions are used softly (level 1).
    """
    predicted = (query.mask_logits.detach()[:, None] > 0).float()
    truth = area_pool(truth.float(), predicted)
    kind, quality = chance.unbind(1)
    mask = torch.where((kind < 0.5)[:, None, None, None], predicted, truth)
    level = torch.where(kind > 0.8, 2, torch.where(kind < 0.125, 1, 0))
    return mask, 0.4 + 0.2 * quality, level


def _frame_terms(
    network: EgoHieraLocNet, output: MatchOutput, batch: ClipBatch, matched: MatchedFrames
) -> tuple[Scalars, Scalars]:
    """Is the object in the frame, and where? For all matched frames."""
    ram = output.ram
    height, width = output.response.shape[-2:]
    presence = matched.labels(batch, "presence")
    pixels = matched.labels(batch, "boxes")
    boxes, in_cells = _in_unit_square(pixels, batch), pixels * (width / batch.frames.shape[-1])
    cells = _cell_targets(matched.labels(batch, "masks"), height, width)
    alike = _cell_targets(matched.labels(batch, "distractor_masks"), height, width)
    similarity_logits = network.coarse[0] * output.foreground.float() + network.coarse[1]
    terms = {
        "presence": losses.presence_loss(ram.presence_logit, presence),
        "score": losses.presence_loss(cell_score(ram.cell_logits), presence),
        "box": losses.box_loss(ram.boxes, boxes, cells * presence[:, None, None]),
        "box_xywh": losses.box_xywh_loss(ram.boxes, boxes, cells * presence[:, None, None]),
        "filter": losses.filter_loss(output.response, in_cells, presence, network.config.dcf.sigma),
        "cells": losses.balanced_cell_loss(ram.cell_logits, cells, alike),
        "similarity": losses.balanced_cell_loss(similarity_logits, cells, alike),
    }
    return terms, {
        "score_accuracy": ((cell_score(ram.cell_logits) > 0) == (presence > 0.5)).float().mean(),
        "presence_accuracy": ((ram.presence_logit > 0) == (presence > 0.5)).float().mean(),
    }


def _mask_terms(mask_logits: Tensor, batch: ClipBatch, matched: MatchedFrames) -> tuple[Scalars, Scalars]:
    """The object's mask (B * T, h, w) in the frames of its own clip, and in close-ups."""
    masks, present, boxes = (matched.outlined(batch, name) for name in ("masks", "presence", "boxes"))
    inside = box_coverage(_in_unit_square(boxes, batch), *masks.shape[-2:])
    trust = batch.trust.repeat_interleave(len(masks) // len(batch))
    logits = mask_logits.float()
    probability = logits.sigmoid()
    terms = {
        "mask_in_box": losses.mask_in_box_loss(probability, inside, present),
        "mask": losses.mask_loss(logits, masks, trust),
        "dice": losses.dice_loss(probability, masks, present * trust),
        "theta": losses.theta_loss(mask_confidence(probability), present),
    }
    return terms, {"mask_iou": _mean_iou(probability > 0.5, masks > 0.5, present)}


def _query_terms(query: QueryFeatures, batch: ClipBatch) -> tuple[Scalars, Scalars]:
    """The built-in segmenter: the query's mask, and how good it is."""
    logits = query.mask_logits.float()
    truth = area_pool(batch.query_mask.float(), logits)[:, 0]
    terms = {
        "query_mask": losses.mask_loss(logits, truth, batch.trust)
        + losses.dice_loss(logits.sigmoid(), truth, batch.trust),
        "query_quality": losses.quality_loss(query.quality_logit, logits, truth),
    }
    return terms, {"query_iou": _mean_iou(logits > 0, truth > 0.5, torch.ones_like(batch.trust))}


def _in_unit_square(boxes: Tensor, batch: ClipBatch) -> Tensor:
    """Boxes (N, 4) in pixels of the batch's frames, as shares of their width and height."""
    height, width = batch.frames.shape[-2:]
    x1, y1, x2, y2 = boxes.unbind(1)
    return torch.stack([x1 / width, y1 / height, x2 / width, y2 / height], 1)


def _cell_targets(masks: Tensor, height: int, width: int) -> Tensor:
    """Target (B, H, W) of each stride-16 cell: 1 from half coverage on, and in the best covered cell."""
    coverage = F.adaptive_avg_pool2d(masks[:, None].float(), (height, width))[:, 0]
    best = coverage.amax((1, 2), keepdim=True)
    return torch.where((coverage == best) & (best > 0), 1.0, (2 * coverage).clamp(max=1))


def _leading_tokens(tokens: Tensor, foreground: Tensor, *, most: int = 48) -> tuple[Tensor, Tensor]:
    """The `most` tokens (B, most, D) of largest foreground weight, and whether they have any (B, most).

    A small offset breaks ties so that all scales are represented.
    """
    count = tokens.shape[1]
    spread = torch.arange(count, device=tokens.device).float().mul(0.618034).frac()  # even over the scales
    order = (foreground.detach() + 0.01 * spread).topk(min(most, count), 1).indices
    chosen = tokens.gather(1, order[..., None].expand(-1, -1, tokens.shape[-1]))
    return chosen, foreground.gather(1, order) > 0


def _cross_similarity(tokens: Tensor, foreground: Tensor, cells: Tensor) -> Tensor:
    """Similarity (B, B) of each query to each frame: the mean over the frame's four most similar cells.

    tokens: (B, N, D); foreground: (B, N); cells: (B, D, H, W).
    """
    chosen, member = _leading_tokens(tokens, foreground)
    similarity = torch.einsum("ind,jdc->ijnc", chosen, cells.flatten(2))
    best = similarity.masked_fill(~member[:, None, :, None], -1.0).amax(2)
    return best.topk(4, -1).values.mean(-1).float()


def _mean_iou(found: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Mean IoU of masks (B, h, w), weighted by (B,)."""
    iou = (found & truth).sum((1, 2)) / (found | truth).sum((1, 2)).clamp(min=1)
    return (iou * weight).sum() / losses.shared_count(weight.sum())
