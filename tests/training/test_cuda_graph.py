"""A captured step trains like the plain one, and a captured composer composes the same batches."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training import loop
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.cuda_graph import WARM_UP, GraphedComposer
from egohieraloc.training.loop import Run, train
from egohieraloc.training.optim import OptimConfig
from tiny_packs import small_config, tiny_packs

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_cuda
def test_a_captured_step_trains_like_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OptimConfig(steps=WARM_UP + 12, warmup=4, precision="no", negatives=1, log_every=1, seed=3)

    def source(step: int) -> ClipBatch:
        batch = clip_batch(preset("tiny"), clips=4, times=2, seed=step)
        return ClipBatch(*(getattr(batch, f.name).to("cuda") for f in fields(batch)))

    def run(name: str) -> list[float]:
        torch.manual_seed(0)
        train(EgoHieraLocNet(preset("tiny")), source, config, Run(tmp_path / name))
        return [json.loads(line)["total"] for line in (tmp_path / name / "log.jsonl").open()]

    captured = run("captured")
    monkeypatch.setattr(loop, "GraphedStep", lambda take: take)
    plain = run("plain")
    assert plain[-1] < 0.9 * plain[0]
    # Losses, not weights: where rounding decides the sign of a gradient, Adam moves a weight by its whole
    # rate.
    assert captured == pytest.approx(plain, rel=5e-3)


def test_a_captured_composer_needs_a_cuda_device() -> None:
    with pytest.raises(ConfigError, match="CUDA device, this one is on cpu"):
        GraphedComposer(ClipComposer(tiny_packs(), small_config(), "cpu", 3), 4)


@needs_cuda
def test_a_captured_composer_composes_the_same_batches() -> None:
    composer = ClipComposer(tiny_packs(), small_config(), "cuda", 3)
    expected = {step: composer.batch(step, 8) for step in (5, 6)}
    captured = GraphedComposer(composer, 8)
    for step in (6, 5):
        batch = captured.batch(step)
        for f in fields(ClipBatch):
            assert torch.equal(getattr(batch, f.name), getattr(expected[step], f.name)), f.name
