"""Discriminative Parsing Module: how much each frame cell looks like the query's foreground and background.

B queries, T frames for each, N query tokens, D channels, H W cells. Tokens and cells are unit vectors of one
shared projection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from egohieraloc.config import DpmConfig


class Dpm(nn.Module):
    """The module as the network holds it, so that an engine can take its place. It has no weights."""

    def __init__(self, config: DpmConfig) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, cells: Tensor, tokens: Tensor, foreground: Tensor, background: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`similarity_maps`."""
        return similarity_maps(cells, tokens, foreground, background, self.config)

    def foreground_map(self, cells: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
        """O (B, H, W) alone, of cells (B, D, H, W) and one query's tokens (N, D) of weight (N,) above 0."""
        similarity = torch.einsum("bdhw,nd->bhwn", cells, tokens.to(cells.dtype))
        found = top_k_mean(similarity.flatten(0, 2)[None], weight[None], self.config.top_k)
        return found.view(similarity.shape[:-1])


def top_k_mean(similarity: Tensor, weight: Tensor, k: int) -> Tensor:
    """Mean (B, C) of the k highest weighted similarities (B, C, N) among tokens of weight (B, N) above 0.

    With fewer than k such tokens all of them count; with none the result is 0. Weights of one query, (1, N),
    are for every row.
    """
    member = weight > 0
    if len(weight) == 1 and weight.device.type == "cpu":  # the others would only cost time
        similarity, weight, member = similarity[..., member[0]], weight[:, member[0]], member[:, member[0]]
    scores = (similarity * weight[:, None]).masked_fill(~member[:, None], -torch.inf)
    best = scores.topk(min(k, scores.shape[-1]), dim=-1).values
    count = member.sum(-1).clamp(max=k)[:, None]
    return best.masked_fill(best == -torch.inf, 0.0).sum(-1) / count.clamp(min=1)


def similarity_maps(
    cells: Tensor, tokens: Tensor, foreground: Tensor, background: Tensor, config: DpmConfig
) -> tuple[Tensor, Tensor]:
    """Foreground map O and likelihood Z_fg, both (B*T, H, W).

    cells: (B*T, D, H, W); tokens: (B, N, D); foreground, background: (B, N) weights, 0 for no member of the
    set. An empty background set gives B = 0, so that Z follows O alone (fallback level 2).
    """
    frames, channels, height, width = cells.shape
    rows = cells.flatten(2).transpose(1, 2).reshape(len(tokens), -1, channels)
    similarity = rows @ tokens.transpose(1, 2)  # (B, T*HW, N)
    foreground_map = top_k_mean(similarity, foreground, config.top_k)
    background_map = top_k_mean(similarity, background, config.top_k)
    likelihood = torch.sigmoid((foreground_map - background_map) / config.temperature)  # softmax of the two
    shape = (frames, height, width)
    return foreground_map.reshape(shape), likelihood.reshape(shape)
