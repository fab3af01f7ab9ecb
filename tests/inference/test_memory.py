"""Bounded memory: the length of a video does not show in what `locate` needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_times_the_video_takes_the_same_memory() -> None:
    command = [sys.executable, str(SCRIPT), "--model", "tiny", "--minutes", "2", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peaks_mb = [[float(mb) for mb in re.findall(r"(\d+) MB", line)] for line in done.stdout.splitlines()]
    (first, again), (first_long, again_long) = peaks_mb
    assert first_long < 1.1 * first
    assert again_long < 1.1 * again
