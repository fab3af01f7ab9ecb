"""Random numbers on one device, from one seeded generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mixed_seed(seed: int, step: int) -> int:
    """One seed for a run's seed and a step; neighbouring steps get unrelated seeds."""
    return (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % (1 << 62)


class RandomNumbers:
    """Tensors of random numbers, drawn on the generator's device."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._device = generator.device

    def uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        return torch.empty(shape, device=self._device).uniform_(*span, generator=self._generator)

    def log_uniform(self, span: tuple[float, float], *shape: int) -> Tensor:
        return self.uniform((math.log(span[0]), math.log(span[1])), *shape).exp()

    def normal(self, deviation: float, *shape: int) -> Tensor:
        return torch.empty(shape, device=self._device).normal_(0, deviation, generator=self._generator)

    def noise_like(self, image: Tensor) -> Tensor:
        return torch.empty_like(image).normal_(generator=self._generator)

    def chance(self, share: float, *shape: int) -> Tensor:
        """Booleans, true with probability `share`."""
        flags = torch.empty(shape, device=self._device, dtype=torch.bool)
        return flags.bernoulli_(share, generator=self._generator)

    def integers(self, count: int, *shape: int) -> Tensor:
        """From 0 to `count` - 1."""
        return torch.randint(count, shape, generator=self._generator, device=self._device)

    def choice(self, weights: Tensor, *shape: int) -> Tensor:
        """Indices drawn with probabilities `weights` (K,), a tensor on the same device that adds up to 1."""
        return torch.searchsorted(weights.cumsum(0), self.uniform((0.0, 0.9999), *shape))

    def subset(self, share: float, count: int) -> Tensor:
        """Indices of a random subset of `count` samples, for effects too costly to apply to all of them.

        Its size is always round(share * count), so shapes are fixed and the host need not wait for the
        device.
        """
        number = min(count, round(share * count))
        return torch.rand(count, generator=self._generator, device=self._device).argsort()[:number]
