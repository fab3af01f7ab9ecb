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
        for frames in (torch.rand(2, 3, 96, 160), torch.rand(1, 3, 96, 160)):
            wanted, got = plain.encode_frames(frames), network.encode_frames(frames)
            for name in ("match", "context", "fine8", "fine4"):
                assert torch.equal(getattr(got, name), getattr(wanted, name))
        assert len(traced) == 1
        side = network.config.query_sizes[0]
        window = torch.rand(2, 3, side, side), torch.tensor([[0.2, 0.2, 0.8, 0.8]] * 2)
        queries = [one.encode_query(*window, torch.ones(2, 1, side, side)) for one in (plain, network)]
        assert torch.equal(queries[0].mask_logits, queries[1].mask_logits)
        assert len(traced) == 1  # as many windows as a batch, and plain
        network.encode_frames(window[0])
        assert len(traced) == 2  # frames may be as large as windows
