"""Folding leaves the function as it was."""

from __future__ import annotations

import copy

import torch
from torch import nn

from egohieraloc.config import preset
from egohieraloc.models.fold import fold_norms
from egohieraloc.models.network import EgoHieraLocNet


def test_folded_network_computes_the_same() -> None:
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny"))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    network.eval()
    folded = copy.deepcopy(network)
    fold_norms(folded)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    frames = torch.rand(2, 3, 64, 96)
    with torch.inference_mode():
        wanted, got = network.encode_frames(frames), folded.encode_frames(frames)
    for name in ("match", "context", "fine8", "fine4"):
        torch.testing.assert_close(getattr(got, name), getattr(wanted, name), atol=1e-4, rtol=1e-4)
