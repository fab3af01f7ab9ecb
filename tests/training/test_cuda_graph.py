"""A captured step trains like the plain one, and a captured composer composes the same batches."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training import loop
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.shaped_composer import ShapedComposer
from egohieraloc.training.cuda_graph import WARM_UP, GraphedComposer
from egohieraloc.training.loop import Run, train
from egohieraloc.training.optim import OptimConfig
from tiny_packs import small_config, tiny_packs

CANVASES = ((224, 224), (256, 160), (192, 224))
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_cuda
@pytest.mark.parametrize("shapes", [1, 3])
def test_a_captured_step_trains_like_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shapes: int
) -> None:
    """Rounding differs from run to run, and Adam moves a weight by its whole rate where rounding decides the
    sign of a gradient: two plain runs drift apart too. A captured run may not drift further than they do."""
    config = OptimConfig(
        steps=shapes * WARM_UP + 12,
        warmup=4,
        precision="no",
        negatives=1,
        close_ups=shapes == 1,
        log_every=1,
        seed=3,
        freeze_norm="all",
    )
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def source(step: int) -> ClipBatch:
        canvas = CANVASES[step % shapes]
        batch = clip_batch(preset("tiny"), clips=4, times=2, seed=step, canvas=canvas)
        return ClipBatch(*(getattr(batch, f.name).to("cuda") for f in fields(batch)))

    def run(name: str) -> np.ndarray:
        torch.manual_seed(0)
        train(EgoHieraLocNet(preset("tiny")), source, config, Run(tmp_path / name))
        return np.array([json.loads(line)["total"] for line in (tmp_path / name / "log.jsonl").open()])

    captured = run("captured")
    monkeypatch.setattr(loop, "GraphedStep", lambda take: take)
    plain, again = run("plain"), run("again")
    assert plain[-shapes] < 0.95 * plain[0]
    # The first captured step sees weights that only rounding has moved.
    first = shapes * WARM_UP + 1
    assert captured[:first] == pytest.approx(plain[:first], rel=5e-3)
    drift = np.maximum.accumulate(np.abs(plain - again))
    assert (np.abs(captured - plain) <= 5e-3 * plain + 5 * drift).all()


def test_a_captured_composer_needs_a_cuda_device() -> None:
    with pytest.raises(ConfigError, match="CUDA device, this one is on cpu"):
        GraphedComposer(ShapedComposer(tiny_packs(), small_config(), "cpu", 3), 4)


@needs_cuda
@pytest.mark.parametrize("borders", [True, False])
def test_a_captured_composer_composes_the_same_batches(borders: bool) -> None:
    composer = ShapedComposer(tiny_packs(), small_config(borders=borders), "cuda", 3)
    steps = [6, 5, *range(7, 20), 3]
    expected = {step: composer.batch(step, 8) for step in steps}
    captured = GraphedComposer(composer, 8)
    for step in steps:
        batch = captured.batch(step)
        for f in fields(ClipBatch):
            assert torch.equal(getattr(batch, f.name), getattr(expected[step], f.name)), f.name
