"""The program starts quickly: what is only listed is not imported, and what is listed is there."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest

import egohieraloc
from egohieraloc.cli.commands import COMMANDS, load_command

HEAVY = {"torch", "scipy", "cv2", "av", "matplotlib", "numpy"}
RUN = """
import sys
from egohieraloc.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
WITHOUT_TORCH = ["track", "memory", "watch", "train", "average", "calibrate", "serve", "score", "ablations"]


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)


def seconds(code: str, *words: str) -> float:
    """The best of three, since others may be using the machine."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        python(code, *words)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(word: str) -> None:
    done = python(RUN, word)
    assert not HEAVY & set(done.stderr.split())
    assert done.stdout


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_help_of_a_command_needs_no_torch(name: str) -> None:
    done = python(RUN, name, "--help")
    assert "torch" not in done.stderr.split()
    assert COMMANDS[name].help in " ".join(done.stdout.split())


def test_help_takes_a_moment() -> None:
    """Typer takes about eight times as long as starting Python, torch a hundred times."""
    assert seconds("from egohieraloc.cli import main; main()", "--help") < 30 * seconds("pass")


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_help_is_that_of_the_command(name: str) -> None:
    assert load_command(name).help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


def test_help_lists_every_command() -> None:
    listed = python(RUN, "--help").stdout.split("Commands:\n")[1]
    assert re.findall(r"^  (\S+)", listed, re.M) == list(COMMANDS)
    words = " ".join(listed.split())
    assert all(f"{name} {command.help}" in words for name, command in COMMANDS.items())


@pytest.mark.parametrize("group", ["memory", "eval", "score", "ablations", "figure"])
def test_the_help_of_a_group_is_not_cut_off(group: str) -> None:
    listed = python(RUN, group, "--help").stdout.split("Commands:\n")[1]
    assert len(re.findall(r"^  \S+ +\S", listed, re.M)) > 1
    assert "..." not in listed.replace(" ...`", "")


def test_importing_the_package_imports_nothing_heavy() -> None:
    done = python("import sys, egohieraloc; print(*sys.modules)")
    assert not HEAVY & set(done.stdout.split())


def test_public_names_are_listed_before_they_are_used() -> None:
    done = python("import egohieraloc; print(*dir(egohieraloc))")
    assert [name for name in done.stdout.split() if name[0] != "_"] == sorted(egohieraloc.__all__)


def test_a_name_that_is_not_public_is_an_error() -> None:
    with pytest.raises(AttributeError, match="Boks"):
        egohieraloc.Boks  # noqa: B018
