"""Matrix instructions that a processor announces but cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from egohieraloc import processor

AMX = "flags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv(processor.LIMIT, "to be removed afterwards")
    monkeypatch.delenv(processor.LIMIT)
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("flags", "tables", "limited"),
    [(AMX, 0, True), (AMX, 1, False), (AMX, None, False), ("flags\t\t: fpu avx2\n", 0, False)],
)
def test_tiles_without_a_description_are_not_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch, flags: str, tables: int | None, limited: bool
) -> None:
    machine.write_text(flags)
    monkeypatch.setattr(processor, "_tile_tables", lambda: tables)
    processor.avoid_broken_tiles()
    assert (processor.LIMIT in os.environ) == limited
    assert processor.without_tiles() == limited


def test_a_wish_of_the_user_stays(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write_text(AMX)
    monkeypatch.setenv(processor.LIMIT, "AVX512_CORE_AMX")
    monkeypatch.setattr(processor, "_tile_tables", lambda: 0)
    processor.avoid_broken_tiles()
    assert os.environ[processor.LIMIT] == "AVX512_CORE_AMX"


def test_a_system_without_a_list_of_flags_is_left_alone() -> None:
    processor.avoid_broken_tiles()
    assert processor.LIMIT not in os.environ


def test_16_bit_products_run_on_this_machine() -> None:
    """In a process of its own, which may die."""
    code = (
        "from egohieraloc.processor import avoid_broken_tiles; avoid_broken_tiles(); import torch;"
        "a = torch.ones(256, 256, dtype=torch.bfloat16); print(float((a @ a).max()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 256
