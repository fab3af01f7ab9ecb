"""Loader workers and the process they work for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

TRAINING = """
import multiprocessing, sys, time
from egohieraloc.training.footage import loading

def work(start):
    loading._start_worker(0)
    start.send(multiprocessing.current_process().pid)
    time.sleep(600)

if __name__ == "__main__":
    context = loading._worker_context()
    ours, theirs = context.Pipe()
    context.Process(target=work, args=(theirs,), daemon=True).start()
    print(ours.recv(), flush=True)
    time.sleep(600)
"""


def lives(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
def test_workers_end_when_the_training_process_is_killed(tmp_path) -> None:
    (tmp_path / "training.py").write_text(TRAINING)
    training = subprocess.Popen([sys.executable, tmp_path / "training.py"], stdout=subprocess.PIPE, text=True)
    assert training.stdout is not None
    worker = int(training.stdout.readline())
    assert lives(worker)
    training.send_signal(signal.SIGKILL)
    training.wait()
    deadline = time.monotonic() + 120
    while lives(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    alive = lives(worker)
    if alive:
        os.kill(worker, signal.SIGKILL)
    assert not alive
