"""Regional Adaptation Module: feeds the other stages' context back into the maps and restores the mask.

B queries, T frames for each, N query tokens, C channels; H W the stride-16 grid.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from egohieraloc.config import NeckConfig, RamConfig
from egohieraloc.models.blocks import LayerNorm, conv_bn_relu, resize
from egohieraloc.models.neck import FrameFeatures

EVEN_CELL_LOGIT = 1.0  # of a frame's best cell that scores 0.5: cells are trained balanced, frames are not


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
        logits: Tensor = self.out(at4)
        return logits[:, 0]


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
        """Cells (B, HW, C) after looking at tokens (B, N, C); keep: (B, N) bool, tokens of either set."""
        query = self._split(self.query(self.norm(cells)))
        key, value = (self._split(part) for part in self.key_value(tokens).chunk(2, -1))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keep[:, None, None, :])
        cells = cells + self.out(seen.transpose(1, 2).flatten(2))
        fed: Tensor = self.feed_forward(cells)
        return cells + fed

    def _split(self, x: Tensor) -> Tensor:
        """(B, N, C) -> (B, heads, N, C / heads)."""
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)


@dataclass(frozen=True)
class RamOutput:
    """What the decoder says of B frames of H x W pixels."""

    mask_logits: Tensor  # (B, H/4, W/4), of the outlined frames only where not all were wanted
    cell_logits: Tensor  # (B, H/16, W/16) is the object here?
    presence_logit: Tensor  # (B,) is it in the frame? By a head of its own; (0,) where nobody reads it
    boxes: Tensor  # (B, 4, H/16, W/16) as each cell predicts it, xyxy in [0, 1]
    score_logit: Tensor  # (B,) is it in the frame? By what `RamConfig.score` names; one a mask for "mask"
    cells: Tensor  # (B, C, H/16, W/16) what masks are drawn from: see `Ram.outline`

    @staticmethod
    def interleaved(frames: list[RamOutput], outlined: Tensor | None) -> RamOutput:
        """The outputs of T frames of B runs, frame after frame, as those of B*T frames, run by run."""

        def merged(name: str) -> Tensor:
            return torch.stack([getattr(frame, name) for frame in frames], 1).flatten(0, 1)

        every = RamOutput(*(merged(f.name) for f in fields(RamOutput)))
        if outlined is None:
            return every
        return replace(every, mask_logits=every.mask_logits.index_select(0, outlined))


def cell_score(cell_logits: Tensor) -> Tensor:
    """Logits (B,) that frames show the object, from their best cells. cell_logits: (B, H, W)."""
    return 2 * (cell_logits.float().amax((1, 2)) - EVEN_CELL_LOGIT)


def mask_confidence(probability: Tensor) -> Tensor:
    """The paper's vartheta (B,): mean of P_ave, P_thr and P_max over masks (B, h, w); 0 for an empty mask.

    A mask begins at 0.3: were it cut at 0.5 as printed, P_ave and P_thr would be the same number.
    """

    def mean_above(level: float) -> Tensor:
        above = probability > level
        return (probability * above).sum((1, 2)) / above.sum((1, 2)).clamp(min=1)

    highest = probability.amax((1, 2))
    return (mean_above(0.3) + mean_above(0.5) + highest * (highest > 0.3)) / 3


class Ram(nn.Module):
    """Decoder over the four stages and the maps of DPM and QAM."""

    MAPS = 4  # O, Z, the filter's response, QAM's location

    def __init__(self, neck: NeckConfig, config: RamConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.enter = conv_bn_relu(neck.match + neck.context + self.MAPS, width, 3)
        if config.propagation:
            self.previous = nn.Conv2d(1, width, 3, padding=1, bias=False)
            nn.init.zeros_(self.previous.weight)  # so that weights trained without it can be trained further
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
        *,
        previous: Tensor | None = None,
        outlined: Tensor | None = None,
        presence: bool = False,
    ) -> RamOutput:
        """Decode B*T frames on the stride-16 grid H x W.

        maps: (B*T, 4, H, W); tokens: (B, N, D); sets: (B, N, 2) foreground and background weights.
        previous: (B*T, H, W) the object's cells in the frame before, with `RamConfig.propagation`;
        outlined: numbers of the frames whose masks are wanted, None for all; presence: also read that head.
        """
        context = self._fed_back(features.context)
        dtype = context.dtype
        match, maps = features.match.to(dtype), maps.to(dtype)
        cells = self.enter(torch.cat([match, resize(context, match), maps], 1))
        if previous is not None:
            cells = cells + self.previous(previous[:, None].to(dtype))
        if self.attention:
            cells = self._attend(cells, tokens, sets)
        cells = self.mix(torch.cat([cells, maps], 1))
        cell_logits = self.cell(cells)[:, 0].float()
        wanted = [cells, features.fine8, features.fine4]
        if outlined is not None:
            wanted = [part.index_select(0, outlined) for part in wanted]
        mask_logits = self.outline(*wanted)
        presence_logit = cell_logits.new_empty(0)
        if presence or self.config.score == "presence":
            presence_logit = self._presence(cells, cell_logits, maps)
        if self.config.score == "presence":
            score_logit = presence_logit
        elif self.config.score == "mask":
            score_logit = mask_confidence(mask_logits.float().sigmoid()).logit()
        else:
            score_logit = cell_score(cell_logits)
        return RamOutput(mask_logits, cell_logits, presence_logit, self._boxes(cells), score_logit, cells)

    def outline(self, cells: Tensor, fine8: Tensor, fine4: Tensor) -> Tensor:
        """Mask logits (B, H/4, W/4) of frames from their cells and their finer maps."""
        logits: Tensor = self.decoder(cells, self._fed_back(fine8), self._fed_back(fine4))
        return logits

    def _fed_back(self, stage: Tensor) -> Tensor:
        return stage if self.config.feedback else torch.zeros_like(stage)

    def _attend(self, cells: Tensor, tokens: Tensor, sets: Tensor) -> Tensor:
        """Cells (B*T, C, H, W) after looking at their query's tokens; those of neither set are not seen."""
        queries = self.token(torch.cat([tokens.to(cells.dtype), sets.to(cells.dtype)], -1))
        rows = cells.flatten(2).transpose(1, 2)
        flat = rows.reshape(len(tokens), -1, rows.shape[-1])
        for layer in self.attention:
            flat = layer(flat, queries, sets.sum(-1) > 0)
        return flat.reshape(rows.shape).transpose(1, 2).reshape(cells.shape)

    def _presence(self, cells: Tensor, cell_logits: Tensor, maps: Tensor) -> Tensor:
        """Logits (B,) from the cells (B, C, H, W) likeliest to show the object and the peaks of the maps."""
        attention = cell_logits.flatten(1).softmax(1)
        pooled = torch.einsum("bn,bcn->bc", attention.to(cells.dtype), cells.flatten(2))
        peaks = torch.stack(
            [cell_logits.amax((1, 2)), maps[:, 0].amax((1, 2)).float(), maps[:, 2].amax((1, 2)).float()], 1
        )
        logits: Tensor = self.presence(torch.cat([pooled, peaks.to(cells.dtype)], 1))
        return logits[:, 0].float()

    def _boxes(self, cells: Tensor) -> Tensor:
        """Boxes (B, 4, H, W) of cells (B, C, H, W): sides lie exp(output) cells from the cell's centre."""
        height, width = cells.shape[-2:]
        distance = self.box(cells).float().clamp(-4, 4).exp()
        y = torch.arange(height, device=cells.device)[:, None] + 0.5
        x = torch.arange(width, device=cells.device)[None, :] + 0.5
        left, top, right, bottom = distance.unbind(1)
        return torch.stack(
            [(x - left) / width, (y - top) / height, (x + right) / width, (y + bottom) / height], 1
        )
