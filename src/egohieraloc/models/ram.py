"""Regional Adaptation Module: feeds the other stages' context back into the maps and restores the mask.

B batch, N query tokens, C channels; H W the stride-16 grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from egohieraloc.config import NeckConfig, RamConfig
from egohieraloc.models.layers import LayerNorm, conv_bn_relu, resize
from egohieraloc.models.neck import FrameFeatures

SURE = 1.0  # logit of a frame's surest cell that scores 0.5: yes and no weigh the same for cells, not here


class MaskDecoder(nn.Module):
    """Stride 16 to mask logits at stride 4, taking in the finer maps on the way."""

    def __init__(self, neck: NeckConfig, width: int) -> None:
        super().__init__()
        self.at8 = conv_bn_relu(width + neck.fine8, width // 2, 3)
        self.at4 = conv_bn_relu(width // 2 + neck.fine4, width // 4, 3)
        self.out = nn.Conv2d(width // 4, 1, 1)

    def forward(self, cells: Tensor, fine8: Tensor, fine4: Tensor) -> Tensor:
        """Logits (B, H/4, W/4) of the image from cells (B, C, H/16, W/16)."""
        at8 = self.at8(torch.cat([resize(cells, fine8), fine8], 1))
        at4 = self.at4(torch.cat([resize(at8, fine4), fine4], 1))
        return self.out(at4)[:, 0]


class CrossAttention(nn.Module):
    """Frame cells look at query tokens: what of the query does this place resemble?"""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, cells: Tensor, tokens: Tensor, keep: Tensor) -> Tensor:
        """cells: (B, HW, C); tokens: (B, N, C); keep: (B, N) bool, tokens that exist."""
        query = self._split(self.query(self.norm(cells)))
        key, value = (self._split(part) for part in self.key_value(tokens).chunk(2, -1))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keep[:, None, None, :])
        cells = cells + self.out(seen.transpose(1, 2).flatten(2))
        return cells + self.feed_forward(cells)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


@dataclass(frozen=True)
class RamOutput:
    """What the decoder says of B frames."""

    mask_logits: Tensor  # (B, H/4, W/4) of the image, or of those that were to be outlined
    cell_logits: Tensor  # (B, H/16, W/16) is the object here?
    presence_logit: Tensor  # (B,)
    boxes: Tensor  # (B, 4, H/16, W/16) each cell's opinion, xyxy in [0, 1]

    @property
    def score_logit(self) -> Tensor:
        """(B,) is the object in the frame? As the surest cell says."""
        return 2 * (self.cell_logits.float().amax((1, 2)) - SURE)


class Ram(nn.Module):
    """Decoder over the four stages and the maps of DPM and QAM."""

    MAPS = 4  # O, Z, the filter's response, QAM's location

    def __init__(self, neck: NeckConfig, config: RamConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.enter = conv_bn_relu(neck.match + neck.context + self.MAPS, width, 3)
        if config.attention_layers:
            self.token = nn.Linear(neck.match + 2, width)
        self.attention = nn.ModuleList(
            CrossAttention(width, config.heads) for _ in range(config.attention_layers)
        )
        self.mix = conv_bn_relu(width + self.MAPS, width, 3)
        self.cell = nn.Conv2d(width, 1, 1)
        self.box = nn.Conv2d(width, 4, 1)
        self.presence = nn.Sequential(nn.Linear(width + 3, width), nn.ReLU(inplace=True), nn.Linear(width, 1))
        self.decoder = MaskDecoder(neck, width)

    def forward(
        self,
        features: FrameFeatures,
        maps: Tensor,
        tokens: Tensor,
        sets: Tensor,
        outlined: Tensor | None = None,
    ) -> RamOutput:
        """maps: (B, 4, H, W); tokens: (B, N, D); sets: (B, N, 2) foreground and background weights.

        outlined: numbers of the frames whose masks are wanted, None for all.
        """
        context, fine8, fine4 = features.context, features.fine8, features.fine4
        if not self.config.feedback:
            context, fine8, fine4 = (torch.zeros_like(m) for m in (context, fine8, fine4))
        dtype = context.dtype
        match, maps = features.match.to(dtype), maps.to(dtype)
        cells = self.enter(torch.cat([match, resize(context, match), maps], 1))
        if self.attention:
            queries = self.token(torch.cat([tokens.to(dtype), sets.to(dtype)], -1))
            flat = cells.flatten(2).transpose(1, 2)
            for layer in self.attention:
                flat = layer(flat, queries, sets.sum(-1) > 0)
            cells = flat.transpose(1, 2).unflatten(2, cells.shape[-2:])
        cells = self.mix(torch.cat([cells, maps], 1))
        cell_logits = self.cell(cells)[:, 0].float()
        wanted = [cells, fine8, fine4]
        if outlined is not None:
            wanted = [part.index_select(0, outlined) for part in wanted]
        return RamOutput(
            self.decoder(*wanted),
            cell_logits,
            self._presence(cells, cell_logits, maps),
            self._boxes(cells),
        )

    def _presence(self, cells: Tensor, cell_logits: Tensor, maps: Tensor) -> Tensor:
        attention = cell_logits.flatten(1).softmax(1)
        pooled = torch.einsum("bn,bcn->bc", attention.to(cells.dtype), cells.flatten(2))
        peaks = torch.stack(
            [cell_logits.amax((1, 2)), maps[:, 0].amax((1, 2)).float(), maps[:, 2].amax((1, 2)).float()], 1
        )
        return self.presence(torch.cat([pooled, peaks.to(cells.dtype)], 1))[:, 0].float()

    def _boxes(self, cells: Tensor) -> Tensor:
        """Distances to the four sides, exp of the raw output in cells, measured from each cell's centre."""
        height, width = cells.shape[-2:]
        distance = self.box(cells).float().clamp(-4, 4).exp()
        y = torch.arange(height, device=cells.device)[:, None] + 0.5
        x = torch.arange(width, device=cells.device)[None, :] + 0.5
        left, top, right, bottom = distance.unbind(1)
        return torch.stack(
            [(x - left) / width, (y - top) / height, (x + right) / width, (y + bottom) / height], 1
        )
