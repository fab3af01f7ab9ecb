"""The state of a run on disk: exact for resuming, or small and inexact for moving to another machine."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from egohieraloc.errors import WeightsError
from egohieraloc.files import atomic_path
from egohieraloc.models.network import EgoHieraLocNet

CHECKPOINT = "checkpoint.pt"
SHARD_BYTES = 14_800_000  # with the names in its header a file stays under 15 MB


@dataclass
class TrainState:
    """All that a run is, besides its settings. The batch of a step follows from the seed and the step."""

    step: int
    network: EgoHieraLocNet
    optimizer: torch.optim.Optimizer
    averaged: EgoHieraLocNet  # exponential moving average of the weights

    @classmethod
    def start(cls, network: EgoHieraLocNet, optimizer: torch.optim.Optimizer) -> TrainState:
        averaged = copy.deepcopy(network).eval().requires_grad_(False)
        return cls(0, network, optimizer, averaged)

    @torch.no_grad()
    def average(self, network: EgoHieraLocNet, decay: float) -> None:
        """Move the averaged weights by one step; early on the average is shorter."""
        decay = min(decay, (1 + self.step) / (10 + self.step))
        mine: list[Tensor] = list(self.averaged.parameters())
        new: list[Tensor] = list(network.parameters())
        torch._foreach_lerp_(mine, new, 1 - decay)
        torch._foreach_copy_(list(self.averaged.buffers()), list(network.buffers()))


def save_state(state: TrainState, folder: Path) -> None:
    """Write the whole state, exactly."""
    with atomic_path(folder / CHECKPOINT) as temporary:
        torch.save(
            {
                "step": state.step,
                "network": state.network.state_dict(),
                "averaged": state.averaged.state_dict(),
                "optimizer": state.optimizer.state_dict(),
            },
            temporary,
        )


def load_state(state: TrainState, folder: Path) -> None:
    """Go on from the exact state, or from a portable one when there is no other; in place."""
    path = folder / CHECKPOINT
    if not path.exists() and (folder / "portable.json").exists():
        saved = _read_portable(folder)
    else:
        saved = _read_exact(path)
    try:
        state.network.load_state_dict(saved["network"])
        state.averaged.load_state_dict(saved["averaged"])
        moments = {"state": saved["optimizer"]["state"]}  # the settings are the recipe's
        state.optimizer.load_state_dict(state.optimizer.state_dict() | moments)
        state.step = saved["step"]
    except (KeyError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"The checkpoint in {folder} is of another network ({str(error).splitlines()[-1].strip()}). "
            "Resume with the settings it was started with."
        ) from error


def _read_exact(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(f"There is nothing to resume in {path.parent}. Start without --resume.") from error
    except Exception as error:  # a broken file makes torch raise a dozen unrelated types
        raise WeightsError(f"{path} cannot be read ({error}). Start again without --resume.") from error


def export_portable(state: TrainState, folder: Path) -> list[Path]:
    """Write the state in half precision in files of at most 15 MB. Inexact: for moving, not for resuming."""
    tensors: dict[str, Tensor] = {}
    for part, module in (("network", state.network), ("averaged", state.averaged)):
        tensors |= {f"{part}.{name}": _half(value) for name, value in module.state_dict().items()}
    for index, moments in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": _half(value) for name, value in moments.items()}
    paths: list[Path] = []
    shard: dict[str, Tensor] = {}
    size = 0

    def flush() -> None:
        path = folder / f"portable-{len(paths)}.safetensors"
        with atomic_path(path) as temporary:
            save_file(shard, temporary)
        paths.append(path)

    for name, value in tensors.items():
        bytes_ = value.numel() * value.element_size()
        if shard and size + bytes_ > SHARD_BYTES:
            flush()
            shard, size = {}, 0
        shard[name] = value.cpu().contiguous()
        size += bytes_
    flush()
    with atomic_path(folder / "portable.json") as temporary:
        temporary.write_text(json.dumps({"step": state.step, "shards": [p.name for p in paths]}))
    return [*paths, folder / "portable.json"]


def _half(value: Tensor) -> Tensor:
    """bf16 keeps the range of second moments; statistics and counters stay exact, they are small."""
    return value.bfloat16() if value.is_floating_point() and value.ndim > 1 else value


def _read_portable(folder: Path) -> dict[str, Any]:
    tensors: dict[str, Tensor] = {}
    try:
        index = json.loads((folder / "portable.json").read_text())
        for name in index["shards"]:
            tensors |= load_file(folder / name)
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(
            f"The portable checkpoint in {folder} cannot be read ({error}). Copy all of its files again."
        ) from error

    def part(prefix: str) -> dict[str, Tensor]:
        cut = len(prefix) + 1
        return {n[cut:]: v for n, v in tensors.items() if n.startswith(f"{prefix}.")}

    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in part("optimizer").items():
        number, key = name.split(".", 1)
        moments.setdefault(int(number), {})[key] = value
    return {
        "step": index["step"],
        "network": part("network"),
        "averaged": part("averaged"),
        "optimizer": {"state": moments},
    }
