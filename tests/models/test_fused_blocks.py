"""The kernels do what `cnn.py` does. Without CUDA, Triton's interpreter runs them (TRITON_INTERPRET=1)."""

from __future__ import annotations

import copy
import importlib
import os
from types import ModuleType

import pytest
import torch
from torch import nn

from egohieraloc.config import preset
from egohieraloc.models.cnn import InvertedBottleneck
from egohieraloc.models.fold import fold_norms
from egohieraloc.models.network import EgoHieraLocNet

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def fused_blocks() -> ModuleType:
    pytest.importorskip("triton")
    if DEVICE == "cpu" and not os.environ.get("TRITON_INTERPRET"):
        pytest.skip("needs CUDA, or TRITON_INTERPRET=1 before Triton is imported")
    return importlib.import_module("egohieraloc.models.fused_blocks")


def with_used_norms(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
            nn.init.uniform_(part.bias, -0.2, 0.2)
    fold_norms(module.eval())
    return module.to(DEVICE)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize("expansion", [1, 6])
def test_a_block_computes_the_same(
    fused_blocks: ModuleType, kernel: int, stride: int, expansion: int
) -> None:
    """Sides and channels that fill no tile; large values, so that both limits of ReLU6 matter."""
    torch.manual_seed(0)
    block = with_used_norms(InvertedBottleneck(8, 8, kernel=kernel, stride=stride, expansion=expansion))
    fused = fused_blocks.FusedBottleneck(block, torch.float32)
    x = 10 * torch.randn(2, 8, 6, 20, device=DEVICE)
    if expansion == 1:
        x = x.clamp(0, 6)  # it follows a ReLU6
    with torch.inference_mode():
        torch.testing.assert_close(fused(x), block(x), atol=1e-3, rtol=1e-3)


def test_the_encoder_computes_the_same(fused_blocks: ModuleType) -> None:
    torch.manual_seed(0)
    network = with_used_norms(EgoHieraLocNet(preset("tiny")))
    fused = copy.deepcopy(network)
    fused_blocks.fuse_blocks(fused, torch.float32)
    assert not any(isinstance(module, InvertedBottleneck) for module in fused.modules())
    frames = torch.rand(1, 3, 64, 96, device=DEVICE)
    with torch.inference_mode():
        wanted, got = network.encode_frames(frames), fused.encode_frames(frames)
    for name in ("match", "context", "fine8", "fine4"):
        torch.testing.assert_close(getattr(got, name), getattr(wanted, name), atol=1e-3, rtol=1e-3)
