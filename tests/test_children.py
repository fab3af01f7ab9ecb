"""Processes we start: what lies in the current folder is not run, and none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import egohieraloc
from egohieraloc.children import python_environment, python_module

SOURCE = Path(egohieraloc.__file__).parents[1]
TRAP = "import pathlib, os; pathlib.Path({!r}).touch(); os._exit(66)\n"
START = {
    "camera poses": """
from egohieraloc.config import SfmConfig
from egohieraloc.geometry.sfm_process import reconstruct
from egohieraloc.types import Frame
import numpy as np
frames = [Frame(n, n / 5, np.zeros((48, 64, 3), np.uint8)) for n in range(4)]
print(reconstruct(frames, sys.argv[1] + "/poses.npz", config=SfmConfig()))
""",
    "the page": """
from egohieraloc.web.process import OwnProcess
from egohieraloc.web.jobs import get_ready
process = OwnProcess()
process.run(get_ready)
process.close()
""",
    "evaluation": """
from children_work import Clips, clips
from egohieraloc.evaluation.workers import answer_in_processes
print(list(answer_in_processes(clips(1), Clips(), 1)))
""",
    "Ray": """
from children_work import Clips, clips
from egohieraloc.evaluation.workers import answer_on_ray
print(list(answer_on_ray(clips(1), Clips(), "local")))
""",
}


def environment() -> dict[str, str]:
    """As an installed package would have it: the source is found, the current folder is not in the path."""
    path = os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.parametrize(
    "kind", [*(k for k in START if k != "Ray"), pytest.param("Ray", marks=pytest.mark.slow)]
)
def test_code_in_the_current_folder_is_not_run(tmp_path: Path, kind: str) -> None:
    if kind == "Ray":
        pytest.importorskip("ray")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("numpy.py", "socket.py", "random.py", "pycolmap.py", "cv2.py"):
        (here / name).write_text(TRAP.format(str(tmp_path / "trapped")))
    code = "import sys; sys.path = [p for p in sys.path if p]\nif __name__ == '__main__':\n"
    script = tmp_path / "start.py"
    script.write_text(code + "".join(f"    {line}\n" for line in START[kind].splitlines()))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / "trapped").exists(), kind
    assert done.returncode == 0, done.stderr


def test_the_command_and_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), "/elsewhere"])
    path = python_environment()["PYTHONPATH"].split(os.pathsep)
    assert path == ["/elsewhere", str(SOURCE)]
    assert python_module("egohieraloc.geometry.sfm", "a")[1:] == ["-P", "-m", "egohieraloc.geometry.sfm", "a"]


PARENTS = {
    "camera poses": """
import subprocess
from egohieraloc.children import python_environment
from children_work import UNTIL_INPUT_ENDS
command = [sys.executable, "-c", UNTIL_INPUT_ENDS]
child = subprocess.Popen(command, stdin=subprocess.PIPE, env=python_environment())
""",
    "the page": """
from children_work import wait
from egohieraloc.web.process import OwnProcess
OwnProcess().run(wait)
""",
    "evaluation": """
from children_work import Clips, clips
from egohieraloc.evaluation.workers import answer_in_processes
list(answer_in_processes(clips(1), Clips(slow=True), 1))
""",
    "training": """
from children_work import load_slowly
load_slowly()
""",
}


@pytest.mark.parametrize("kind", PARENTS)
def test_children_end_with_their_parent(tmp_path: Path, kind: str) -> None:
    """The child says its number and then sleeps for a minute; its parent is killed."""
    script = tmp_path / "start.py"
    lines = "import sys, time\nif __name__ == '__main__':\n"
    script.write_text(lines + "".join(f"    {x}\n" for x in f"{PARENTS[kind]}\ntime.sleep(60)".splitlines()))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environment(), text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # it is alive
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < until, f"the child of {kind} lives on"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_watches_its_input_ends_without_an_abort() -> None:
    """Python aborts at its end where another thread holds the lock of an input that is then closed."""
    code = (
        "import sys, time\n"
        "from egohieraloc.children import end_with_input\n"
        "end_with_input()\n"
        "time.sleep(0.2)\n"
        "sys.stdin = sys.__stdin__ = None\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.wait(20) == 0
