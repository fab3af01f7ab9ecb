"""Random draws on one device from one seeded generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mixed_seed(seed: int, step: int) -> int:
    """One number for a seed and a step, so that neighbouring ones have nothing in common."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % (1 << 62)


class Dice:
    """All randomness of one batch, drawn where the generator lives."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._device = generator.device

    def uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        return torch.empty(shape, device=self._device).uniform_(*span, generator=self._generator)

    def log_uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        return self.uniform((math.log(span[0]), math.log(span[1])), *shape).exp()

    def normal(self, deviation: float, *shape: int) -> Tensor:
        return torch.empty(shape, device=self._device).normal_(0, deviation, generator=self._generator)

    def chance(self, share: float, *shape: int) -> Tensor:
        flags = torch.empty(shape, device=self._device, dtype=torch.bool)
        return flags.bernoulli_(share, generator=self._generator)

    def noise_like(self, image: Tensor) -> Tensor:
        return torch.empty_like(image).normal_(generator=self._generator)

    def below(self, count: int, *shape: int) -> Tensor:
        return torch.randint(count, shape, generator=self._generator, device=self._device)

    def choice(self, weights: Tensor, *shape: int) -> Tensor:
        """Indices drawn with the given weights (K,) on the device, which add up to one."""
        return torch.searchsorted(weights.cumsum(0), self.uniform((0.0, 0.9999), *shape))

    def some(self, share: float, count: int) -> Tensor:
        """Which of `count` samples get a costly effect: about a share of them, chosen at random.

        Their number is fixed, so that shapes do not change and nothing waits for the device.
        """
        number = min(count, round(share * count))
        return torch.rand(count, generator=self._generator, device=self._device).argsort()[:number]
