"""The same function in fewer passes: folded norms, and for CUDA fused blocks."""

from __future__ import annotations

from itertools import pairwise

import torch
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


def fuse_for_cuda(network: nn.Module, device: torch.device) -> None:
    """Put fused blocks in the place of those there are kernels for, in place; after `fold_norms`."""
    try:  # Triton comes with CUDA builds of torch alone
        from egohieraloc.models.fused_blocks import fuse_blocks
    except ImportError:
        return
    if torch.cuda.get_device_capability(device) >= (8, 0):  # older ones have no bfloat16
        fuse_blocks(network, torch.bfloat16)
