"""A small untrained network and short videos, for the tests of the memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import write_recording

from egohieraloc import Localizer
from untrained import untrained_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def localizer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Localizer:
    """With one cache for all tests: the same video is encoded once."""
    return Localizer.from_pretrained(model, device="cpu", cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three recordings of three seconds, each of the day that its name says."""
    folder = tmp_path_factory.mktemp("recordings")
    names = ("VID_20260310_080000.mp4", "20260311_120000.mp4", "20260312_101530.mp4")
    return [write_recording(folder / name, seed) for seed, name in enumerate(names)]
