"""Batch normalisation folded into the convolution before it: the same function in fewer passes."""

from __future__ import annotations

from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fold_norms(module: nn.Module) -> None:
    """Fold every convolution that a BatchNorm follows in an nn.Sequential, in place; in eval mode only."""
    for child in module.children():
        fold_norms(child)
    if isinstance(module, nn.Sequential):
        names = list(module._modules)
        for name, after in pairwise(names):
            conv, norm = module._modules[name], module._modules[after]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                module._modules[name] = fuse_conv_bn_eval(conv, norm)
                module._modules[after] = nn.Identity()
