"""Folding leaves the function as it was."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn

from egohieraloc.config import preset
from egohieraloc.models.cnn import InvertedBottleneck
from egohieraloc.models.fold import fold_norms, fuse_for_cuda
from egohieraloc.models.network import EgoHieraLocNet


def network_with_used_norms() -> EgoHieraLocNet:
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny"))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return network


def test_folded_network_computes_the_same() -> None:
    network = network_with_used_norms().eval()
    folded = copy.deepcopy(network)
    fold_norms(folded)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    frames = torch.rand(2, 3, 64, 96)
    with torch.inference_mode():
        wanted, got = network.encode_frames(frames), folded.encode_frames(frames)
    for name in ("match", "context", "fine8", "fine4"):
        torch.testing.assert_close(getattr(got, name), getattr(wanted, name), atol=1e-4, rtol=1e-4)


def test_without_triton_the_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_with_used_norms().eval()
    fold_norms(network)
    monkeypatch.setitem(sys.modules, "egohieraloc.models.fused_blocks", None)
    fuse_for_cuda(network, torch.device("cpu"))
    assert any(isinstance(module, InvertedBottleneck) for module in network.modules())


def test_frozen_norms_are_folded_while_training() -> None:
    """With the same features and the same gradients as a norm that is applied by itself."""
    folded = network_with_used_norms().double().backbone.train()
    for module in folded.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    apart = copy.deepcopy(folded).eval()
    frames = torch.rand(2, 3, 64, 96, dtype=torch.double)
    for backbone in (folded, apart):
        torch.stack([stage.square().mean() for stage in backbone(frames)]).sum().backward()
    for (name, one), other in zip(folded.named_parameters(), apart.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for one, other in zip(folded(frames), apart(frames), strict=True):
        torch.testing.assert_close(one, other)
