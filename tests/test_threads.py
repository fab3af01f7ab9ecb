"""How many cores a process takes, and how its threads wait."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from egohieraloc import threads


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight cores, no limit but what a test writes into the folder, no wish of the user."""
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for name in ("OMP_NUM_THREADS", *threads.PATIENT):
        monkeypatch.setenv(name, "to be removed afterwards")
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("nonsense", 8)]
)
def test_a_container_has_fewer_cores_than_its_machine(machine: Path, limit: str, cores: int) -> None:
    (machine / "cpu.max").write_text(limit + "\n")
    assert threads.usable_cores() == cores


def test_the_older_kind_of_limit(machine: Path) -> None:
    (machine / "cpu").mkdir()
    (machine / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    (machine / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert threads.usable_cores() == 2
    (machine / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert threads.usable_cores() == 8


def test_the_users_wish_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.usable_cores() == 3
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    threads.settle()
    assert os.environ["OMP_WAIT_POLICY"] == "active"


def test_processes_side_by_side_share_the_cores(machine: Path) -> None:
    threads.settle(3)
    assert os.environ["OMP_NUM_THREADS"] == "2"
    threads.settle(5)  # of one of the three
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_the_command_line_settles_before_numpy_and_torch_are_imported() -> None:
    code = """
import os, sys
import egohieraloc.cli as cli
assert not {"numpy", "torch"} & {*sys.modules}
cli.app = lambda: print(*map(os.environ.get, ["OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"]))
cli.main()
"""
    environment = {k: v for k, v in os.environ.items() if k not in threads.PATIENT and k != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    policy, products, cores = done.stdout.split()
    assert (policy, products) == ("passive", "1")
    assert 1 <= int(cores) <= (os.cpu_count() or 1)


def test_what_is_settled_here_is_not_passed_on_to_what_a_benchmark_compares_with() -> None:
    fast = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "fast.py"))
    assert {"OMP_NUM_THREADS", *threads.PATIENT} <= {*fast["THREADS"]}
