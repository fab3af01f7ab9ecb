"""The shared feature network (section 3.2): four maps of one image, whatever the family.

Each family subclasses `Backbone`: `cnn.py` has EfficientNet-Lite and ResNet-101, `pvt.py` has PVT v1 and v2.
`build_backbone` makes one with random weights, `load_imagenet` gives it a pretrained start.

Letters: B images, C channels, H and W pixels of the input.
"""

from __future__ import annotations

import difflib
import math
import pickletools
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError, WeightsError

State = dict[str, Tensor]
STRIDES = (4, 8, 16, 32)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
OLD_PICKLES = 5  # one after the other in a file of torch before 1.6; the tensors follow
LONGEST_WORD = 1000  # letters of a name in a checkpoint


class Backbone(nn.Module):
    """RGB in [0, 1], (B, 3, H, W), sides multiples of 32 -> maps (B, C_i, H / s_i, W / s_i), finest first."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: BackboneConfig,
        channels: tuple[int, ...],
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        super().__init__()
        if config.stages not in (3, 4):
            raise ConfigError(f"A backbone has 3 or 4 stages, got stages={config.stages}.")
        self.config = config
        self.channels = channels[: config.stages]
        self.strides = STRIDES[: config.stages]
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] % 32 or images.shape[3] % 32:
            raise ConfigError(
                f"Images must be (B, 3, H, W) with H and W multiples of 32, got {tuple(images.shape)}. "
                "Letterbox them first."
            )
        return self.features((images - self.mean) / self.std)

    def features(self, x: Tensor) -> tuple[Tensor, ...]:
        """The maps of normalised images (B, 3, H, W)."""
        raise NotImplementedError

    def first(self, stages: int) -> list[nn.Module]:
        """The parts that make the maps of the first so many stages."""
        raise NotImplementedError

    def read_imagenet(self, source: str | Path | None) -> State:
        """The pretrained state of the whole network (all stages, no head) under this class's names."""
        raise NotImplementedError


def build_backbone(config: BackboneConfig) -> Backbone:
    """The backbone of that name with random weights."""
    from egohieraloc.models import cnn, pvt

    families = {**cnn.BUILDERS, **pvt.BUILDERS}
    if config.name not in families:
        near = difflib.get_close_matches(config.name, families, n=1, cutoff=0)[0]
        raise ConfigError(
            f"No backbone is called '{config.name}'; did you mean '{near}'? There are: {', '.join(families)}."
        )
    return families[config.name](config)


def load_imagenet(backbone: Backbone, source: str | Path | None = None) -> None:
    """Start from pretrained weights, in place.

    source: a checkpoint file, a folder in transformers' format or a name on the hub, as the family takes it;
    None is the family's usual place. Every parameter must be found and fit; a classifier head is passed over,
    and so is what an ablation left out.
    """
    load_state(backbone, backbone.read_imagenet(source), origin=str(source or backbone.config.name))


def load_state(backbone: Backbone, state: State, *, origin: str) -> None:
    """Load strictly; parts that only the unablated network of the same name has may be left over."""
    with torch.device("meta"):
        whole = build_backbone(BackboneConfig(name=backbone.config.name)).state_dict()
    own = backbone.state_dict()
    # Old torchvision files have no batch counters; they matter only to BatchNorm without a momentum.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    foreign = [name for name in state if name not in whole]
    misshapen = [name for name in own if name in state and own[name].shape != state[name].shape]
    for problem, names in (
        ("lacks", missing),
        ("has the unknown", foreign),
        ("has another shape of", misshapen),
    ):
        if names:
            raise WeightsError(
                f"'{origin}' is not a checkpoint of {backbone.config.name}: it {problem} {names[0]!r} "
                f"({len(names)} such). Give one of the same architecture."
            )
    backbone.load_state_dict({name: state.get(name, own[name]) for name in own})


def read_checkpoint(path: str | Path) -> State:
    """The tensors of a .safetensors file or of a .pth/.bin file, the latter without running code in it."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(
            f"There is no checkpoint at '{path}'. Give a .safetensors or .pth file that exists."
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        _refuse_endless_words(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file makes torch and safetensors raise a dozen unrelated types
        raise WeightsError(f"'{path}' cannot be read as a checkpoint ({error}). Fetch it again.") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(f"'{path}' does not hold a plain dict of tensors. Give the file of a state dict.")
    return state


def _refuse_endless_words(path: Path) -> None:
    """What torch cannot read it quotes, and looks for names in the quotation: minutes where that is one word
    of some ten thousand letters."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    with archive.open(name) as file:
                        _check_words(file)
    else:
        with path.open("rb") as file:
            for _ in range(OLD_PICKLES):
                _check_words(file)


def _check_words(pickled: IO[bytes]) -> None:
    for _, value, _ in pickletools.genops(pickled):
        if isinstance(value, (str, bytes)) and len(value) > LONGEST_WORD:
            raise ValueError(f"a word of {len(value)} letters")


def pyramid(stages: Iterable[nn.Module], x: Tensor) -> tuple[Tensor, ...]:
    """What each stage makes of the map of the one before."""
    maps = []
    for stage in stages:
        x = stage(x)
        maps.append(x)
    return tuple(maps)


def initialise_convolutions(module: nn.Module) -> None:
    """He's initialisation by fan-out for every convolution; a depthwise one has the fan of one channel."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            fan_out = part.weight[:, 0].numel() / part.groups
            nn.init.normal_(part.weight, std=math.sqrt(2 / fan_out))
            if part.bias is not None:
                nn.init.zeros_(part.bias)
