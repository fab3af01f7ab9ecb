"""The compiled encoder computes what the plain one does. Tracing is tested; generating code needs a GPU."""

from __future__ import annotations

import copy

import torch

from egohieraloc.config import preset
from egohieraloc.models.fold import fold_norms
from egohieraloc.models.jit import compile_encoder
from egohieraloc.models.network import EgoHieraLocNet


def test_whole_batches_are_compiled_and_give_the_same() -> None:
    torch.manual_seed(0)
    plain = EgoHieraLocNet(preset("tiny")).eval()
    fold_norms(plain)
    network, traced = copy.deepcopy(plain), []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        traced.append(tuple(inputs[-1].shape))
        return graph.forward

    compile_encoder(network, 2, backend=backend)
    with torch.inference_mode():
        for frames in (torch.rand(2, 3, 96, 160), torch.rand(1, 3, 96, 160), torch.rand(2, 3, 64, 64)):
            wanted, got = plain.encode_frames(frames), network.encode_frames(frames)
            for name in ("match", "context", "fine8", "fine4"):
                assert torch.equal(getattr(got, name), getattr(wanted, name))
    assert len(traced) == 1
