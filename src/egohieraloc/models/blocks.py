"""Small building blocks shared by the neck and the decoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.LayerNorm):
    """In the precision of its input also under autocast, which would read and write it in full."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(
                x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps
            )


def conv_bn_relu(inputs: int, outputs: int, kernel: int, *, relu: bool = True) -> nn.Sequential:
    """The paper's CBN: convolution, batch normalisation, ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if relu:
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def area_pool(maps: Tensor, like: Tensor) -> Tensor:
    """Area average of (B, C, h, w) on the grid of `like`."""
    return F.adaptive_avg_pool2d(maps, (like.shape[-2], like.shape[-1]))


def resize(maps: Tensor, like: Tensor) -> Tensor:
    """Bilinear resize of (B, C, h, w) to the height and width of `like`."""
    return F.interpolate(maps, size=like.shape[-2:], mode="bilinear", align_corners=False)
