"""docs/tutorial.md, done as it is written: every command and every line of Python, with what they print."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from documented import check_command
from untrained import run_command

DOCS = Path(__file__).parent.parent / "docs"
Step = tuple[str, str]  # kind (python, shell or text), what stands in the block


def blocks(document: str) -> list[Step]:
    text = (DOCS / document).read_text(encoding="utf-8")
    return [(kind or "shell", body) for kind, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)]


def is_told(line: str, printed: str) -> bool:
    """Whether a line was printed; a confidence may differ by 0.02, as it does between processors."""
    before, word, wanted = line.partition(" Confidence ")
    found = re.search(re.escape(before + word) + (r"(\d\.\d\d)\." if word else ""), printed)
    return found is not None and (not word or abs(float(found[1]) - float(wanted.rstrip("."))) < 0.0201)


def test_a_confidence_may_differ_a_little() -> None:
    line = "at the end in the box 0,349,40,51 (x,y,w,h). Confidence 1.00."
    assert is_told(line, line.replace("1.00", "0.98"))
    assert not is_told(line, line.replace("1.00", "0.97"))
    assert not is_told(line, line.replace("349", "350"))
    assert is_told("(29, 4) (480, 640)", "29 samples\n(29, 4) (480, 640)\n")


def walk(steps: list[Step], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> int:
    """Does the steps one after the other; a text block is what the one before it has printed."""
    names: dict[str, Any] = {}
    printed, compared = "", 0
    for kind, body in steps:
        if kind == "text":
            for line in body.splitlines():
                assert is_told(line, printed), f"{line}\nis not in\n{printed}"
                compared += 1
        elif kind == "python":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(body, "tutorial", "exec"), names)
            printed = out.getvalue()
        else:
            for command in body.splitlines():
                assert run_command(shlex.split(command)[1:], monkeypatch) == 0
            printed = capsys.readouterr().out
    return compared


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EGOHIERALOC_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_the_walk(at_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All but the page, which other tests open, and the camera path, which takes a minute."""
    quick = [step for step in blocks("tutorial.md") if "--3d" not in step[1] and "serve" not in step[1]]
    assert walk(quick, monkeypatch, capsys) == 6
    assert {"result.json", "report.html", "overlay.mp4"} <= {
        path.name for path in (at_home / "answer").iterdir()
    }
    assert (at_home / "report" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute or two of camera path on idle cores, many more on busy ones
def test_the_walk_in_space(
    at_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = blocks("tutorial.md")
    (command,) = [body for kind, body in steps if "--3d" in body]
    assert walk([steps[0]], monkeypatch, capsys) == 0
    assert run_command(shlex.split(command)[1:], monkeypatch) == 0
    told = r"at the query time it is 2\.\d m \(± 0\.\d m\), behind you, to your left and below\."
    assert re.search(told, capsys.readouterr().out)
    assert re.search(told, " ".join((DOCS / "tutorial.md").read_text(encoding="utf-8").split()))


def test_every_command_exists() -> None:
    commands = [line for kind, body in blocks("tutorial.md") if kind == "shell" for line in body.splitlines()]
    assert len(commands) == 4
    for command in commands:
        check_command(shlex.split(command)[1:])


def test_the_live_page_is_sound_python() -> None:
    """It needs a camera to run; what it calls is run by examples/live_camera.py, see test_examples.py."""
    (program,) = [body for kind, body in blocks("live.md") if kind == "python"]
    subprocess.run([sys.executable, "-c", f"compile({program!r}, 'live', 'exec')"], check=True)
    assert {"localizer.live(fps=5)", "live.add(", "live.ask(query)"} <= set(
        re.findall(r"localizer\.live\(fps=5\)|live\.add\(|live\.ask\(query\)", program)
    )
