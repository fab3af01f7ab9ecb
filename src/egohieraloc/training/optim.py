"""Optimization: its settings, the learning rate schedule, the optimizer, and which parameters are frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from egohieraloc.errors import ConfigError
from egohieraloc.models.network import EgoHieraLocNet


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimization. The paper's: `schedule="paper"`, 20k steps, learning rate 1.5e-3, weight decay 0.02."""

    steps: int = 20_000
    batch: int = 64  # clips per step, over all processes
    learning_rate: float = 1e-3
    backbone_rate: float = 0.3  # share of the learning rate for a pretrained backbone
    weight_decay: float = 0.02
    warmup: int = 250
    schedule: Literal["cosine", "paper"] = "cosine"
    clip_norm: float = 1.0
    ema: float = 0.999  # decay of the averaged weights, which are the result of the run
    precision: Literal["bf16", "no"] = "bf16"
    compile: bool = False
    freeze_norm: Literal["none", "backbone", "all"] = "backbone"  # whose BatchNorm statistics are frozen
    freeze_gain: bool = False  # also freeze gain and bias of those norms
    freeze_stages: int = 0  # first stages of a pretrained backbone that are frozen
    negatives: int = 2  # frames of other clips per query: the most similar ones
    close_ups: bool = False  # also one image per query as a second look sees it
    seed: int = 0
    checkpoint_every: int = 500
    keep_checkpoints: int = 3  # so many of the last ones are kept
    validate_every: int = 1000
    log_every: int = 20
    wait_minutes: float = 120.0  # how long processes wait for one another, as for the slowest to validate


def learning_rate_factor(step: int, config: OptimConfig) -> float:
    """Share of the peak learning rate at a step (from 0): linear warm-up, then a step or cosine schedule."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "paper":
        return 0.1 ** sum(step >= milestone for milestone in (2_000, 4_000, 11_000))
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_optimizer(network: EgoHieraLocNet, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW; the backbone learns more slowly, and vectors (norms, biases) have no weight decay.

    On a GPU learning rates are tensors, which a CUDA graph reads at every replay.
    """
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = config.backbone_rate if name.startswith("backbone.") else 1.0
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    device = next(network.parameters()).device
    cuda = device.type == "cuda"

    def start(rate: float) -> Tensor | float:
        return torch.tensor(rate, device=device) if cuda else rate

    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": start(rate * config.learning_rate),
                "weight_decay": decay,
                "peak": rate,
            }
            for (rate, decay), parameters in groups.items()
        ],
        lr=start(config.learning_rate),
        fused=cuda,
        capturable=cuda,
    )


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group to its share of `rate`."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["peak"])
        else:
            group["lr"] = rate * group["peak"]


def freeze_parameters(network: EgoHieraLocNet, config: OptimConfig) -> None:
    """Freeze the first stages of the backbone, generic and costly to train, and the gains of frozen norms."""
    stages = len(network.backbone.channels)
    if not 0 <= config.freeze_stages <= stages:
        raise ConfigError(f"optim.freeze_stages must lie between 0 and {stages}, got {config.freeze_stages}.")
    for part in network.backbone.first(config.freeze_stages):
        part.requires_grad_(False)
    if config.freeze_gain:
        for norm in _norms(network, config.freeze_norm):
            norm.requires_grad_(False)


def freeze_norms(network: EgoHieraLocNet, where: str) -> None:
    """Freeze the BatchNorm statistics of a part of the network."""
    for norm in _norms(network, where):
        norm.eval()


def _norms(network: EgoHieraLocNet, where: str) -> list[nn.BatchNorm2d]:
    part = {"none": nn.Identity(), "backbone": network.backbone, "all": network}[where]
    return [module for module in part.modules() if isinstance(module, nn.BatchNorm2d)]
