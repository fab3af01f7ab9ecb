"""The state of a training run, and its checkpoint on disk, from which it resumes exactly."""

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from egohieraloc.errors import ConfigError, WeightsError
from egohieraloc.files import atomic_path
from egohieraloc.models.network import EgoHieraLocNet

CHECKPOINT = "checkpoint.pt"
WEIGHTS = "weights.safetensors"


@dataclass
class TrainState:
    """All state of a run besides its settings. The batch of a step follows from the seed and the step."""

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
        """Update the averaged weights after a step; early in a run the decay is smaller."""
        decay = min(decay, (1 + self.step) / (10 + self.step))
        mine: list[Tensor] = list(self.averaged.parameters())
        new: list[Tensor] = list(network.parameters())
        torch._foreach_lerp_(mine, new, 1 - decay)
        torch._foreach_copy_(list(self.averaged.buffers()), list(network.buffers()))


def require_unused(folder: Path) -> None:
    """Refuse to start a run where another one left a checkpoint or weights."""
    used = next((name for name in (CHECKPOINT, WEIGHTS) if (folder / name).exists()), None)
    if used is not None:
        raise ConfigError(
            f"{folder} has the {used} of another run. Continue it with --resume, or give another --out."
        )


def save_state(state: TrainState, folder: Path, *, keep: int = 1) -> None:
    """Write the checkpoint; an interrupted write leaves the previous one.

    The last `keep` of them stay as `checkpoint-STEP.pt`: to go back to one, copy it to `checkpoint.pt`.
    """
    saved = {
        "step": state.step,
        "network": state.network.state_dict(),
        "averaged": state.averaged.state_dict(),
        "optimizer": state.optimizer.state_dict(),
    }
    with atomic_path(folder / CHECKPOINT, durable=True) as temporary:
        try:
            torch.save(saved, temporary)
        except RuntimeError as error:  # what torch says of a full disk
            raise OSError(str(error).splitlines()[0]) from error
    if keep > 1:
        with atomic_path(folder / f"checkpoint-{state.step:08d}.pt") as temporary:
            _link(folder / CHECKPOINT, temporary)
    for old in sorted(folder.glob("checkpoint-*.pt"))[: -keep or None]:
        old.unlink()


def _link(path: Path, to: Path) -> None:
    """The same file under a second name, which takes no space; a copy where links cannot be made."""
    to.unlink(missing_ok=True)
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)


def load_state(state: TrainState, folder: Path) -> None:
    """Restore the state, in place, from the checkpoint in the folder."""
    saved = _read(folder / CHECKPOINT)
    try:
        state.network.load_state_dict(saved["network"])
        state.averaged.load_state_dict(saved["averaged"])
        moments = {"state": saved["optimizer"]["state"]}  # its settings come from the recipe
        state.optimizer.load_state_dict(state.optimizer.state_dict() | moments)
        state.step = saved["step"]
    except (KeyError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"The checkpoint in {folder} is of another network ({str(error).splitlines()[-1].strip()}). "
            "Resume with the settings of the run that wrote it."
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(f"There is no checkpoint in {path.parent}. Start without --resume.") from error
    except Exception as error:  # for a broken file torch raises a dozen unrelated types
        raise WeightsError(f"{path} cannot be read ({error}). Start again without --resume.") from error
    return saved
