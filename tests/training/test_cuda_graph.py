"""A recorded step is the step."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from egohieraloc.training.recorded import WARM_UP

from clips import clip_batch
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.training import loop
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.loop import OptimConfig, train

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="only a CUDA device records")


@needs_cuda
def test_a_recorded_run_is_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OptimConfig(steps=WARM_UP + 12, warmup=4, precision="no", negatives=1, log_every=1, seed=3)

    def source(step: int) -> ClipBatch:
        batch = clip_batch(preset("tiny"), clips=4, times=2, seed=step)
        return ClipBatch(*(getattr(batch, f.name).to("cuda") for f in fields(batch)))

    def run(name: str) -> list[float]:
        torch.manual_seed(0)
        train(EgoHieraLocNet(preset("tiny")), source, config, tmp_path / name)
        return [json.loads(line)["total"] for line in (tmp_path / name / "log.jsonl").open()]

    recorded = run("recorded")
    monkeypatch.setattr(loop, "RecordedStep", lambda take: take)
    plain = run("plain")
    assert plain[-1] < 0.9 * plain[0]
    # Losses, not weights: Adam moves a weight by its whole rate where rounding decides the gradient's sign.
    assert recorded == pytest.approx(plain, rel=5e-3)
