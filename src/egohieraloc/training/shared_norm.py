"""BatchNorm whose statistics are those of the whole batch, also when several processes train together.

Like `torch.nn.SyncBatchNorm`, which needs a GPU; this one also runs, and is tested, on CPUs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        distributed.all_reduce(total)
        return total


def _sum(values: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm2d(nn.BatchNorm2d):
    """The same parameters and buffers as `nn.BatchNorm2d`; frozen (in eval mode) it is one."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name of the parent)
        """Normalise (B, C, H, W)."""
        if not self.training:
            return super().forward(input)
        values = input if input.dtype == torch.float64 else input.float()
        count = values.new_tensor(values.numel() / values.shape[1])
        distributed.all_reduce(count)
        mean = _sum(values.sum((0, 2, 3))) / count
        centred = values - mean[:, None, None]
        variance = _sum(centred.square().sum((0, 2, 3))) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        scale = (variance + self.eps).rsqrt() * self.weight
        normed: Tensor = centred * scale[:, None, None] + self.bias[:, None, None]
        return normed.to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


def share_norms(network: nn.Module) -> None:
    """Make all BatchNorms of a network shared ones, in place: parameters, buffers and their names stay."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
