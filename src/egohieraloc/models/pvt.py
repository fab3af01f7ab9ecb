"""Pyramid Vision Transformer, v1 (the paper's backbone is its large size) and v2.

Four stages of: patches by a strided convolution, transformer layers, a map out. Keys and values are taken at
a resolution lowered by R (the paper's DCM, varphi_i), so attention costs N * N / R^2. v1 adds learned
position embeddings and a class token in its last stage; v2 overlaps its patches and finds positions with a
depthwise convolution inside the feed-forward part.

Letters: B images, N tokens (h * w), C channels, h and w the grid of a stage, R its reduction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError, MissingExtraError, WeightsError
from egohieraloc.models.backbone import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    STRIDES,
    Backbone,
    State,
    initialise_convolutions,
    pyramid,
    read_checkpoint,
)
from egohieraloc.models.blocks import LayerNorm


class Shape(NamedTuple):
    """The numbers of one size: per stage the layers, channels and how much the feed-forward part widens."""

    version: int
    depths: tuple[int, ...]
    channels: tuple[int, ...] = (64, 128, 320, 512)
    widening: tuple[int, ...] = (8, 8, 4, 4)
    heads: tuple[int, ...] = (1, 2, 5, 8)


REDUCTIONS = (8, 4, 2, 1)
SHAPES = {
    "pvt_v1_tiny": Shape(1, (2, 2, 2, 2)),
    "pvt_v1_small": Shape(1, (3, 4, 6, 3)),
    "pvt_v1_medium": Shape(1, (3, 4, 18, 3)),
    "pvt_v1_large": Shape(1, (3, 8, 27, 3)),
    "pvt_v2_b0": Shape(2, (2, 2, 2, 2), channels=(32, 64, 160, 256)),
    "pvt_v2_b1": Shape(2, (2, 2, 2, 2)),
    "pvt_v2_b2": Shape(2, (3, 4, 6, 3)),
    "pvt_v2_b3": Shape(2, (3, 4, 18, 3)),
    "pvt_v2_b4": Shape(2, (3, 8, 27, 3)),
    "pvt_v2_b5": Shape(2, (3, 6, 40, 3), widening=(4, 4, 4, 4)),
}


def _norm(channels: int) -> LayerNorm:
    return LayerNorm(channels, eps=1e-6)


def _tokens_from_map(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, N, C)."""
    return x.flatten(2).transpose(1, 2)


def _map_from_tokens(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B, N, C) -> (B, C, h, w), channels last in memory."""
    return tokens.transpose(1, 2).reshape(len(tokens), -1, *grid)


class Attention(nn.Module):
    """Self-attention whose keys and values come from an R times coarser grid."""

    def __init__(self, channels: int, *, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(channels, channels)
        self.key = nn.Linear(channels, channels)
        self.value = nn.Linear(channels, channels)
        self.output = nn.Linear(channels, channels)
        self.reduces = reduction > 1
        if self.reduces:
            self.reduction = nn.Conv2d(channels, channels, reduction, stride=reduction)
            self.reduction_norm = _norm(channels)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        source = tokens
        if self.reduces:
            source = self.reduction_norm(_tokens_from_map(self.reduction(_map_from_tokens(tokens, grid))))
        query, key, value = (
            x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for x in (self.query(tokens), self.key(source), self.value(source))
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class FeedForward(nn.Module):
    """Widen, GELU, narrow; v2 looks at each token's 3 x 3 neighbours in between."""

    def __init__(self, channels: int, *, widening: int, depthwise: bool) -> None:
        super().__init__()
        wide = channels * widening
        self.widen = nn.Linear(channels, wide)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide) if depthwise else None
        self.narrow = nn.Linear(wide, channels)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        wide = self.widen(tokens)
        if self.depthwise is not None:
            wide = _tokens_from_map(self.depthwise(_map_from_tokens(wide, grid)))
        narrow: Tensor = self.narrow(F.gelu(wide))
        return narrow


class Layer(nn.Module):
    """Attention, then the feed-forward part, each on normalised tokens and added to what came in."""

    def __init__(self, shape: Shape, config: BackboneConfig, index: int) -> None:
        super().__init__()
        channels = shape.channels[index]
        self.attention_norm = _norm(channels)
        self.attention = Attention(
            channels, heads=shape.heads[index], reduction=REDUCTIONS[index] if config.collapse else 1
        )
        self.feeds_forward = config.feed_forward
        if self.feeds_forward:
            self.feed_forward_norm = _norm(channels)
            self.feed_forward = FeedForward(
                channels,
                widening=shape.widening[index],
                depthwise=shape.version == 2 and config.position,
            )

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        tokens = tokens + self.attention(self.attention_norm(tokens), grid)
        if self.feeds_forward:
            tokens = tokens + self.feed_forward(self.feed_forward_norm(tokens), grid)
        return tokens


class Stage(nn.Module):
    """One step down the pyramid: (B, C', h', w') -> (B, C, h, w)."""

    def __init__(self, shape: Shape, config: BackboneConfig, index: int) -> None:
        super().__init__()
        inputs, channels = (3, *shape.channels)[index : index + 2]
        stride = 2 if index else 4
        is_last = index == len(STRIDES) - 1
        kernel, padding = (stride, 0) if shape.version == 1 else (2 * stride - 1, stride - 1)
        self.embedding = nn.Conv2d(inputs, channels, kernel, stride=stride, padding=padding)
        self.embedding_norm = _norm(channels)
        side = config.image_size // STRIDES[index]
        self.position = self.class_token = None
        if shape.version == 1 and config.position:
            self.position = nn.Parameter(torch.empty(1, channels, side, side))
        if shape.version == 1 and is_last:
            self.class_token = nn.Parameter(torch.empty(1, 1, channels))
        self.layers = nn.ModuleList(Layer(shape, config, index) for _ in range(shape.depths[index]))
        self.norm = _norm(channels) if shape.version == 2 or is_last else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        grid = (x.shape[2], x.shape[3])
        tokens = self.embedding_norm(_tokens_from_map(x))
        if self.position is not None:
            tokens = tokens + _tokens_from_map(_resized(self.position, grid))
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1)
        for layer in self.layers:
            tokens = layer(tokens, grid)
        tokens = self.norm(tokens)
        if self.class_token is not None:
            tokens = tokens[:, 1:]
        return _map_from_tokens(tokens, grid)


def _resized(position: Tensor, grid: tuple[int, int]) -> Tensor:
    """Position embeddings (1, C, h', w') for another grid."""
    if position.shape[2:] == grid:
        return position
    return F.interpolate(position, size=grid, mode="bilinear")


class Pvt(Backbone):
    """PVT v1 or v2 without its classifier."""

    def __init__(self, config: BackboneConfig) -> None:
        if config.image_size < 32 or config.image_size % 32:
            raise ConfigError(f"image_size must be a positive multiple of 32, got {config.image_size}.")
        shape = SHAPES[config.name]
        super().__init__(config, shape.channels, mean=IMAGENET_MEAN, std=IMAGENET_STD)
        self.stages = nn.ModuleList(Stage(shape, config, index) for index in range(config.stages))
        initialise_convolutions(self)
        for name, parameter in self.named_parameters():
            if name.endswith(("position", "class_token")):
                nn.init.trunc_normal_(parameter, std=0.02)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)

    def features(self, x: Tensor) -> tuple[Tensor, ...]:
        return pyramid(self.stages, x)

    def first(self, stages: int) -> list[nn.Module]:
        return list(self.stages[:stages])

    def read_imagenet(self, source: str | Path | None) -> State:
        """source: a file or folder as transformers saves it, or a name on the hub; None is the usual name."""
        name = self.config.name
        state = read_checkpoint(_checkpoint_file(str(source or _hub_name(name))))
        return _state_from_transformers(state, SHAPES[name].version, self.config.image_size)


def _hub_name(name: str) -> str:
    _, version, size = name.split("_")
    return f"OpenGVLab/pvt_v2_{size}" if version == "v2" else f"Zetatech/pvt-{size}-224"


def _checkpoint_file(source: str) -> Path:
    """Where the tensors of a file, a folder or a hub name are, fetched if need be."""
    path = Path(source)
    if path.is_file() or path.suffix in (".safetensors", ".bin", ".pth"):
        return path
    if path.is_dir():
        for filename in CHECKPOINT_FILES:
            if (path / filename).is_file():
                return path / filename
        raise WeightsError(
            f"The folder '{path}' holds none of {', '.join(CHECKPOINT_FILES)}. Save a model there."
        )
    return _fetched(source)


def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise MissingExtraError("huggingface_hub", "hub") from error
    reasons = []
    for filename in CHECKPOINT_FILES:
        try:
            return Path(hf_hub_download(name, filename))
        except Exception as error:  # the hub has a family of its own for each kind of failure
            reasons.append(error)
    raise WeightsError(
        f"'{name}' is no file or folder here and cannot be fetched from the hub ({reasons[-1]}). "
        "Download the checkpoint and give its folder."
    ) from reasons[-1]


CHECKPOINT_FILES = ("model.safetensors", "pytorch_model.bin")
LAYER_NAMES = (
    (r"\.layer_norm_1\.", ".attention_norm."),
    (r"\.layer_norm_2\.", ".feed_forward_norm."),
    (r"\.attention\.layer_norm\.", ".attention.reduction_norm."),
    (r"\.mlp\.dense1\.", ".feed_forward.widen."),
    (r"\.mlp\.dense2\.", ".feed_forward.narrow."),
)
# Patterns in transformers' names, by version, applied in turn.
NAMES = {
    1: (
        (r"^(pvt\.)?encoder\.", ""),
        (r"^patch_embeddings\.(\d+)\.position_embeddings$", r"stages.\1.position"),
        (r"^patch_embeddings\.(\d+)\.cls_token$", r"stages.\1.class_token"),
        (r"^patch_embeddings\.(\d+)\.projection\.", r"stages.\1.embedding."),
        (r"^patch_embeddings\.(\d+)\.layer_norm\.", r"stages.\1.embedding_norm."),
        (r"^block\.(\d+)\.", r"stages.\1.layers."),
        (r"^layer_norm\.", "stages.3.norm."),
        (r"\.attention\.self\.", ".attention."),
        (r"\.attention\.output\.dense\.", ".attention.output."),
        (r"\.attention\.sequence_reduction\.", ".attention.reduction."),
        *LAYER_NAMES,
    ),
    2: (
        (r"^(pvt_v2\.)?encoder\.layers\.(\d+)\.", r"stages.\2."),
        (r"\.patch_embedding\.proj\.", ".embedding."),
        (r"\.patch_embedding\.layer_norm\.", ".embedding_norm."),
        (r"^stages\.(\d+)\.layer_norm\.", r"stages.\1.norm."),
        (r"\.blocks\.", ".layers."),
        (r"\.attention\.proj\.", ".attention.output."),
        (r"\.attention\.spatial_reduction\.", ".attention.reduction."),
        (r"\.mlp\.dwconv\.dwconv\.", ".feed_forward.depthwise."),
        *LAYER_NAMES,
    ),
}


def _state_from_transformers(state: State, version: int, image_size: int) -> State:
    """Our names, no classifier, and position embeddings laid out for images of image_size."""
    renamed = {}
    for name, value in state.items():
        if name.startswith("classifier."):
            continue
        for pattern, replacement in NAMES[version]:
            name = re.sub(pattern, replacement, name)
        renamed[name] = value
    for index, stride in enumerate(STRIDES):
        name = f"stages.{index}.position"
        if name in renamed:
            class_name = f"stages.{index}.class_token"
            position = renamed[name]
            if class_name in renamed:
                # The class token's position is a constant added to a constant: one tensor holds the sum.
                renamed[class_name] = renamed[class_name] + position[:, :1]
                position = position[:, 1:]
            side = image_size // stride
            renamed[name] = _resized(_square_map(position), (side, side))
    return renamed


def _square_map(position: Tensor) -> Tensor:
    """(1, N, C) -> (1, C, sqrt N, sqrt N)."""
    side = math.isqrt(position.shape[1])
    if side * side != position.shape[1]:
        raise WeightsError(
            f"Position embeddings of {position.shape[1]} tokens do not make a square grid. "
            "Give a checkpoint made for square images."
        )
    return _map_from_tokens(position, (side, side))


BUILDERS: dict[str, Callable[[BackboneConfig], Backbone]] = dict.fromkeys(SHAPES, Pvt)
