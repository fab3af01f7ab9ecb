"""Random draws on one device from one seeded generator."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor


class Dice:
    """All randomness of one batch: the same seed and step give the same draws."""

    def __init__(self, device: torch.device, seed: int, step: int) -> None:
        mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % (1 << 62)
        self._generator = torch.Generator(device).manual_seed(mixed)
        self._host = random.Random(mixed)
        self._device = device

    def uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        unit = torch.rand(shape, generator=self._generator, device=self._device)
        return span[0] + (span[1] - span[0]) * unit

    def log_uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        return self.uniform((math.log(span[0]), math.log(span[1])), *shape).exp()

    def normal(self, deviation: float, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self._device) * deviation

    def chance(self, share: float, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, device=self._device) < share

    def below(self, count: int, *shape: int) -> Tensor:
        return torch.randint(count, shape, generator=self._generator, device=self._device)

    def choice(self, weights: Tensor, *shape: int) -> Tensor:
        """Indices drawn with the given weights (K,) on the device, which add up to one."""
        return torch.searchsorted(weights.cumsum(0), self.uniform((0.0, 0.9999), *shape))

    def some(self, share: float, count: int) -> Tensor:
        """Which of `count` samples get a costly effect: about a share of them, chosen at random.

        The number is drawn on the host, so that the work has a known size and nothing waits for the device.
        """
        number = min(count, math.floor(share * count + self._host.random()))
        return torch.rand(count, generator=self._generator, device=self._device).argsort()[:number]
