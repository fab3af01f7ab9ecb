"""What is kept of a frame: compact maps at four strides that know nothing of any query.

Everything a query needs of a frame is in here, so that a second query neither decodes nor encodes the video
again. The descriptors at stride 16 are the paper's CBN_2(CBN_1(.)), shared by frames and queries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from egohieraloc.config import NeckConfig
from egohieraloc.models.blocks import conv_bn_relu, resize


@dataclass(frozen=True)
class FrameFeatures:
    """Maps of B frames (or query windows) of H x W pixels."""

    match: Tensor  # (B, D, H/16, W/16) unit descriptors
    context: Tensor  # (B, C, H/32, W/32)
    fine8: Tensor  # (B, C, H/8, W/8)
    fine4: Tensor  # (B, C, H/4, W/4)

    def __len__(self) -> int:
        return len(self.match)

    def __getitem__(self, index: slice | Tensor) -> FrameFeatures:
        """Some frames, by slice or by numbers (K,), whose gradient is deterministic even if they repeat."""

        def pick(maps: Tensor) -> Tensor:
            return maps.index_select(0, index) if isinstance(index, Tensor) else maps[index]

        return FrameFeatures(*(pick(getattr(self, f.name)) for f in fields(self)))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> FrameFeatures:
        return FrameFeatures(*(getattr(self, f.name).to(device, dtype) for f in fields(self)))

    @staticmethod
    def cat(parts: list[FrameFeatures]) -> FrameFeatures:
        return FrameFeatures(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(FrameFeatures)))


class Neck(nn.Module):
    """Top-down fusion of the backbone's stages, then a narrow output for each stride."""

    def __init__(self, channels: tuple[int, ...], config: NeckConfig) -> None:
        super().__init__()
        self.signed = config.signed
        width = config.width
        self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in channels)
        self.context = conv_bn_relu(width, config.context, 1)
        # CBN_1 is 1x1, CBN_2 3x3, on stage 3 with stage 4 beside it.
        self.match = nn.Sequential(
            conv_bn_relu(channels[2] + width, 2 * config.match, 1),
            conv_bn_relu(2 * config.match, config.match, 3, relu=not config.signed),
        )
        self.fine8 = nn.Sequential(conv_bn_relu(width, width, 3), conv_bn_relu(width, config.fine8, 1))
        half = width // 2
        self.fine4 = nn.Sequential(conv_bn_relu(width, half, 3), conv_bn_relu(half, config.fine4, 1))

    def forward(self, stages: tuple[Tensor, ...]) -> FrameFeatures:
        """Maps of B images from the backbone's stages, finest first; three stages pool their own context.

        stages[i]  (B, C_i, H/s_i, W/s_i)  strides s_i 4, 8, 16 and, of four stages, 32
        match      (B, D, H/16, W/16)      unit descriptors, float32
        context    (B, C, H/32, W/32)      at least 0, as are the finer maps
        fine8      (B, C, H/8, W/8)
        fine4      (B, C, H/4, W/4)
        """
        top = self.lateral[-1](stages[-1])
        context = top if len(stages) == 4 else F.avg_pool2d(top, 2)
        above = resize(context, stages[2])
        descriptors = self.match(torch.cat([stages[2], above], 1))
        at16 = self.lateral[2](stages[2]) + above if len(stages) == 4 else top
        at8 = self.lateral[1](stages[1]) + resize(at16, stages[1])
        at4 = self.lateral[0](stages[0]) + resize(at8, stages[0])
        return FrameFeatures(
            F.normalize(descriptors.float(), dim=1),
            self.context(context),
            self.fine8(at8),
            self.fine4(at4),
        )
