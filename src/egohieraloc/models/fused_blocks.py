"""EfficientNet-Lite's blocks for CUDA: two matrix products and one Triton kernel each.

Maps lie channels last, so a 1x1 convolution is a product whose bias and ReLU cost no pass of their own, and
the kernel applies padding, taps, bias and both limits of ReLU6 while it reads and writes a map once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from egohieraloc.models.cnn import ConvNorm, InvertedBottleneck

LIMIT = 6.0  # of ReLU6
TILE_ROWS, TILE_COLUMNS, TILE_CHANNELS = 4, 16, 32  # what one program computes


def fuse_blocks(module: nn.Module, dtype: torch.dtype) -> None:
    """Replace every inverted bottleneck, in place; in eval mode with folded norms only."""
    for name, child in module.named_children():
        if isinstance(child, InvertedBottleneck):
            module.add_module(name, FusedBottleneck(child, dtype))
        else:
            fuse_blocks(child, dtype)


class FusedBottleneck(nn.Module):
    """`InvertedBottleneck` for maps of one dtype that lie channels last."""

    taps: Tensor
    bias: Tensor

    def __init__(self, block: InvertedBottleneck, dtype: torch.dtype) -> None:
        super().__init__()
        conv = block.depthwise.conv
        self.has_shortcut, self.stride = block.has_shortcut, conv.stride[0]
        self.expand = _Product(block.expand, dtype) if isinstance(block.expand, ConvNorm) else None
        self.project = _Product(block.project, dtype)
        self.register_buffer("taps", conv.weight.detach()[:, 0].permute(1, 2, 0).to(dtype).contiguous())
        self.register_buffer("bias", _bias(conv).float())

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        shortcut = x = x.movedim(1, -1).contiguous()
        if self.expand is not None:
            x = self.expand(x, relu=True)
        x = self.project(depthwise(x, self.taps, self.bias, self.stride), relu=False)
        x = x.add_(shortcut) if self.has_shortcut else x
        return x.movedim(-1, 1)


class _Product(nn.Module):
    """A 1x1 convolution of maps (B, H, W, C); its ReLU has no upper limit."""

    weight: Tensor
    bias: Tensor

    def __init__(self, layer: ConvNorm, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", layer.conv.weight.detach()[:, :, 0, 0].to(dtype).contiguous())
        self.register_buffer("bias", _bias(layer.conv).to(dtype))

    def forward(self, x: Tensor, *, relu: bool) -> Tensor:
        product = torch._addmm_activation if relu else torch.addmm
        rows: Tensor = product(self.bias, x.flatten(0, 2), self.weight.t())
        return rows.view(*x.shape[:3], -1)


def _bias(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None, "Fold the norms first."
    return conv.bias.detach()


def depthwise(x: Tensor, taps: Tensor, bias: Tensor, stride: int) -> Tensor:
    """ReLU6 of a depthwise convolution of what ReLU6 leaves of x (B, H, W, C), at least 0.

    taps: (K, K, C), bias: (C,); padded as `ConvNorm` does.
    """
    count, height, width, channels = x.shape
    y = x.new_empty(count, height // stride, width // stride, channels)
    tiles = triton.cdiv(y.shape[1], TILE_ROWS) * triton.cdiv(y.shape[2], TILE_COLUMNS)
    _depthwise[(tiles, triton.cdiv(channels, TILE_CHANNELS), count)](
        x,
        taps,
        bias,
        y,
        height,
        width,
        y.shape[1],
        y.shape[2],
        channels,
        limit=LIMIT,
        kernel=len(taps),
        stride=stride,
        rows=TILE_ROWS,
        columns=TILE_COLUMNS,
        block=TILE_CHANNELS,
    )
    return y


@triton.jit
def _depthwise(
    source,
    taps,
    bias,
    target,
    height,
    width,
    height_after,
    width_after,
    channels,
    limit: tl.constexpr,
    kernel: tl.constexpr,
    stride: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
):
    before: tl.constexpr = (kernel - stride) // 2
    across = tl.cdiv(width_after, columns)
    tile, image = tl.program_id(0), tl.program_id(2).to(tl.int64)  # a batch may have 2^31 values
    pixel = tl.arange(0, rows * columns)
    y = tile // across * rows + pixel // columns
    x = tile % across * columns + pixel % columns
    channel = tl.program_id(1) * block + tl.arange(0, block)
    there = channel < channels
    source += image * height * width * channels
    total = tl.zeros((rows * columns, block), tl.float32)
    for dy in range(kernel):  # unrolled too, it would take all registers
        for dx in tl.static_range(kernel):
            from_y, from_x = y * stride + (dy - before), x * stride + (dx - before)
            inside = (from_y >= 0) & (from_y < height) & (from_x >= 0) & (from_x < width)
            cell = (from_y * width + from_x) * channels
            value = tl.load(
                source + cell[:, None] + channel[None, :], mask=inside[:, None] & there[None, :], other=0.0
            )
            tap = tl.load(taps + (dy * kernel + dx) * channels + channel, mask=there, other=0.0)
            total += tl.minimum(value.to(tl.float32), limit) * tap[None, :].to(tl.float32)
    total += tl.load(bias + channel, mask=there, other=0.0)[None, :]
    total = tl.minimum(tl.maximum(total, 0.0), limit)
    target += image * height_after * width_after * channels
    cell = (y * width_after + x) * channels
    wanted = ((y < height_after) & (x < width_after))[:, None] & there[None, :]
    tl.store(target + cell[:, None] + channel[None, :], total.to(target.dtype.element_ty), mask=wanted)
