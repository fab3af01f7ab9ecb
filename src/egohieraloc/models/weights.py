"""Weights on disk: one safetensors file that carries its own settings, loaded strictly.

The header holds a format number, the network's settings as JSON and the calibration of the answer's score.
Matrices and convolutions are stored in 8 bits with a scale for each output channel, or in half precision;
statistics and other vectors in full.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from egohieraloc.config import NetworkConfig, QueryMaskConfig
from egohieraloc.documents import parse_json
from egohieraloc.errors import ConfigError, WeightsError
from egohieraloc.files import atomic_path
from egohieraloc.models.compiled import SUFFIX
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.processor import avoid_broken_tiles
from egohieraloc.settings import from_dict, to_dict

FORMAT = 1
COUNTER = "num_batches_tracked"  # of training alone
MAX_SIDE, MAX_LAYERS = 8192, 100  # of images and of attention, whatever a file claims
DTYPES = {"F64", "F32", "F16", "BF16", "I8", "I64"}  # as `save_weights` and training write them
Shapes = Mapping[str, tuple[int, ...]]
SCALE = ":scale"  # ends the name of an 8-bit tensor's scales


@dataclass(frozen=True, kw_only=True)
class BothLooks:
    """Turns the logits of two looks at an appearance into the probability that it shows the object.

    Weights whose `second` is 0 were not calibrated for a further look of that kind: none is taken.
    """

    first: float = 1.0
    second: float = 0.0
    offset: float = 0.0
    threshold: float = 0.5

    def confidence(self, first: float, second: float) -> float:
        return _sigmoid(self.first * first + self.second * second + self.offset)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Turns the highest score of an answer's samples into the probability that the answer is right."""

    slope: float = 1.0
    offset: float = 0.0
    threshold: float = 0.5  # answers below it are `NotFound`
    looks: BothLooks = field(default_factory=BothLooks)  # the same where a second look was taken ...
    back: BothLooks = field(default_factory=BothLooks)  # ... and where only a look back was

    def confidence(self, first: float) -> float:
        """From the logit of the highest score."""
        return _sigmoid(self.slope * first + self.offset)


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def fill(network: EgoHieraLocNet, tensors: Mapping[str, Tensor]) -> None:
    """Give a network its tensors; settings that need others are refused."""
    wrong = _misfits(_shapes(network), {name: tuple(value.shape) for name, value in tensors.items()})
    if wrong:
        raise ConfigError(
            f"These network settings need other weights: {wrong[0]} does not fit ({len(wrong)} such). "
            "Leave out what changes the network's layers, or train with it: `egohieraloc train`."
        )
    network.load_state_dict(tensors)


@dataclass(frozen=True)
class Weights:
    """A network ready for use, and what is known about it."""

    network: EgoHieraLocNet
    calibration: Calibration
    fingerprint: str  # of the file
    parts: Path | None = None  # its encoder and decoder for OpenVINO, see `compiled.py`

    def with_settings(self, config: NetworkConfig) -> Weights:
        """The same weights under other settings of the network; those that need other weights are refused."""
        if config == self.network.config:
            return self
        network = EgoHieraLocNet(config)
        fill(network, self.network.state_dict())
        return replace(self, network=network.eval().requires_grad_(False))

    @cached_property
    def features_fingerprint(self) -> str:
        """Of all that decides what the network says of a frame; part of the key of stored features."""
        network, config = self.network, self.network.config
        digest = hashlib.blake2b(digest_size=8)
        decisive = [config.input_size, to_dict(config.backbone), to_dict(config.neck)]
        # Named only where it is set: codewords from before it was there are still found.
        digest.update(json.dumps(decisive + ["square canvas"] * config.square_canvas).encode())
        for part in (network.backbone, network.neck):
            for name, value in part.state_dict().items():
                digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()


def save_weights(
    path: str | Path,
    network: EgoHieraLocNet,
    calibration: Calibration | None = None,
    *,
    bits: Literal[8, 16] = 16,
) -> None:
    """Write the network with its settings."""
    header = {
        "format": str(FORMAT),
        "network": json.dumps(to_dict(network.config)),
        "calibration": json.dumps(to_dict(calibration or Calibration())),
    }
    tensors: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        if name.endswith(COUNTER):
            continue
        if value.ndim < 2:
            tensors[name] = value
        elif bits == 16:
            tensors[name] = value.half()
        else:
            tensors[name], tensors[f"{name}{SCALE}"] = _to_8_bits(value.float())
    _write(path, {n: v.cpu().contiguous() for n, v in tensors.items()}, header)


def _write(path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    with atomic_path(path, durable=True) as temporary:
        save_file(dict(tensors), temporary, metadata={**header, "checksum": _checksum(tensors)})


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()


def load_weights(path: str | Path) -> Weights:
    """Read a file written by `save_weights`; the network comes in full precision, for inference.

    The header is checked before anything is made: a file gets no more memory than it has bytes for.
    """
    avoid_broken_tiles()
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"There is no weights file at {path}. Give a preset's name or an existing file.")
    try:
        with safe_open(path, "pt") as file:
            header, stored = file.metadata() or {}, _Stored.of(file)
            config, calibration = _settings(path, header)
            _check_fit(path, config, stored)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError) as error:
        raise WeightsError(f"{path} cannot be read as weights ({error}). Fetch or train it again.") from error
    if "checksum" in header and header["checksum"] != _checksum(tensors):
        raise WeightsError(f"{path} is damaged: its checksum is wrong. Fetch or train it again.")
    for name in stored.scales:
        codes, scale = tensors[name], tensors.pop(f"{name}{SCALE}")
        tensors[name] = codes.float() * scale.view(-1, *[1] * (codes.ndim - 1))
    if not all(torch.isfinite(value).all() for value in tensors.values()):
        raise WeightsError(f"{path} holds values that are not finite. Fetch or train it again.")
    network = EgoHieraLocNet(config)
    full = {name: value.float() for name, value in tensors.items()}
    network.load_state_dict({**network.state_dict(), **full})
    parts = path.with_suffix(SUFFIX)
    found = parts if parts.is_file() else None
    return Weights(network.eval().requires_grad_(False), calibration, _fingerprint(path), found)


@dataclass(frozen=True)
class _Stored:
    """What a file says of its tensors."""

    shapes: dict[str, tuple[int, ...]]
    scales: dict[str, tuple[int, ...]]  # by the tensor they belong to
    dtypes: dict[str, str]

    @classmethod
    def of(cls, file: Any) -> _Stored:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        return cls(
            {name: shape for name, shape in shapes.items() if not name.endswith(SCALE)},
            {name.removesuffix(SCALE): shape for name, shape in shapes.items() if name.endswith(SCALE)},
            {name: part.get_dtype() for name, part in slices.items()},
        )

    def misfits(self) -> list[str]:
        """Names of tensors of another type than is written, and of scales without their tensor."""
        wrong = [name for name, dtype in self.dtypes.items() if dtype not in DTYPES]
        return wrong + [n for n, shape in self.scales.items() if shape != self.shapes.get(n, ())[:1]]


def _settings(path: Path, header: Mapping[str, str]) -> tuple[NetworkConfig, Calibration]:
    if header.get("format") != str(FORMAT):
        raise WeightsError(
            f"{path} is not a weights file of this package (format {header.get('format', 'unknown')}, "
            f"wanted {FORMAT}). Backbone checkpoints are given to training, not here."
        )
    try:
        config = from_dict(NetworkConfig, parse_json(header["network"]))
        calibration = from_dict(Calibration, parse_json(header["calibration"]))
    except (KeyError, ValueError, ConfigError) as error:
        raise WeightsError(_broken_settings(path, error)) from error
    return config, calibration


def _check_fit(path: Path, config: NetworkConfig, stored: _Stored) -> None:
    """Compare the file's tensors with those of its settings, none of which is made."""
    sizes = (*config.query_sizes, config.input_size, config.backbone.image_size)
    if max(sizes) > MAX_SIDE or config.ram.attention_layers > MAX_LAYERS:
        raise WeightsError(_broken_settings(path, ValueError("they are beyond all measure.")))
    try:
        own = _shapes_of(config)
    except (ValueError, RuntimeError, TypeError, OverflowError, ConfigError) as error:
        raise WeightsError(_broken_settings(path, error)) from error
    wrong = stored.misfits() or _misfits(own, stored.shapes)
    if wrong:
        raise WeightsError(
            f"{path} does not fit its own settings: see {wrong[0]} ({len(wrong)} such). "
            "Fetch or train it again."
        )


@lru_cache(maxsize=4)
def _shapes_of(config: NetworkConfig) -> Shapes:
    with torch.device("meta"), _WithoutValues():
        return _shapes(EgoHieraLocNet(config))


def _shapes(network: EgoHieraLocNet) -> Shapes:
    return {name: tuple(value.shape) for name, value in network.state_dict().items()}


class _WithoutValues(TorchFunctionMode):
    """Passes over what fills tensors in place: one without values needs none, and torch would take seconds
    to import what pretends to."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name.endswith("_") and not name.endswith("__"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _broken_settings(path: Path, error: Exception) -> str:
    return f"{path} has broken settings: {error} It may be of another version; fetch or train it again."


def read_network_config(path: str | Path) -> NetworkConfig:
    """The network's settings in a weights file, without reading its tensors."""
    try:
        with safe_open(path, "pt") as file:
            return from_dict(NetworkConfig, parse_json((file.metadata() or {})["network"]))
    except (SafetensorError, OSError, KeyError, ValueError, ConfigError) as error:
        raise WeightsError(f"{path} cannot be read as weights ({error}). Fetch or train it again.") from error


def _misfits(network: Shapes, file: Shapes) -> list[str]:
    """Names of tensors that the network or the file lacks, or that have another shape."""
    own, given = (
        {name: shape for name, shape in shapes.items() if not name.endswith(COUNTER)}
        for shapes in (network, file)
    )
    return sorted(own.keys() ^ given.keys()) or [n for n in own if own[n] != given[n]]


def copy_weights(
    source: str | Path,
    path: str | Path,
    calibration: Calibration,
    *,
    query_mask: QueryMaskConfig | None = None,
) -> None:
    """Write a weights file anew with another calibration, and of the segmenter's quality if one is given; its
    tensors stay as they are to the bit."""
    config = load_weights(source).network.config  # refuses what is not a weights file
    config = replace(config, query_mask=query_mask or config.query_mask)
    with safe_open(source, "pt") as file:
        header = file.metadata() | {
            "calibration": json.dumps(to_dict(calibration)),
            "network": json.dumps(to_dict(config)),
        }
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    _write(path, tensors, header)


def average_networks(paths: Sequence[str | Path]) -> EgoHieraLocNet:
    """A network whose weights and statistics are the average of those in several files.

    How the query's mask is judged is fitted afterwards, by `calibrate`, and may differ.
    """
    networks = [load_weights(path).network for path in paths]
    averaged = networks[0]
    mask = averaged.config.query_mask
    for path, network in zip(paths, networks, strict=True):
        if replace(network.config, query_mask=mask) != averaged.config:
            raise WeightsError(
                f"{path} has other network settings than {paths[0]}. "
                "Only weights of one network, trained from one start, can be averaged."
            )
    states = [network.state_dict() for network in networks]
    for name, value in averaged.state_dict().items():
        value.copy_(torch.stack([state[name].double() for state in states]).mean(0))
    return averaged


def _to_8_bits(value: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (C, ...) and scales (C,): the largest value of each output channel becomes 127."""
    scale = value.flatten(1).abs().amax(1).clamp(min=1e-12) / 127
    codes = (value / scale.view(-1, *[1] * (value.ndim - 1))).round().to(torch.int8)
    return codes, scale


def find_weights(name: str | Path) -> Path:
    """The file of a shipped preset, or the path itself."""
    path = Path(name)
    if path.suffix == ".safetensors" or path.is_file():
        return path
    shipped = resources.files("egohieraloc") / "weights"
    files = [Path(str(f)) for f in shipped.iterdir()] if shipped.is_dir() else []
    known = sorted(f.stem for f in files if f.suffix == ".safetensors")
    if str(name) not in known:
        raise WeightsError(
            f"No trained weights '{name}' come with this package (there are: {', '.join(known) or 'none'}). "
            "Train some with `egohieraloc train`, or give the path of a .safetensors file."
        )
    return Path(str(shipped / f"{name}.safetensors"))


def _fingerprint(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
