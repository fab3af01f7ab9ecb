"""An untrained network of the test size that takes everything for an answer, and the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from egohieraloc.cli import main
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, save_weights


def untrained_model(folder: Path) -> Path:
    torch.manual_seed(0)
    path = folder / "tiny.safetensors"
    save_weights(path, EgoHieraLocNet(preset("tiny")), Calibration(threshold=0.0))
    return path


def run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """What `egohieraloc ...` ends with."""
    monkeypatch.setattr(sys, "argv", ["egohieraloc", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0
