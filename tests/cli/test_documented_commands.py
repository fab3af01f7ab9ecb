"""Every command of the docs exists, with every option it is given."""

import re
import shlex
from pathlib import Path

import pytest

from documented import check_command
from egohieraloc.ablations import find_ablation
from egohieraloc.config import PRESETS
from egohieraloc.localize import LocalizerConfig
from egohieraloc.settings import to_dict
from egohieraloc.training.recipe import Recipe

NAMES = ("benchmarks.md", "devices.md", "experiments.md", "figures.md", "results.md")
PAGES = [Path(__file__).parents[2] / "docs" / name for name in NAMES]
TEXT = "\n".join(page.read_text() for page in PAGES)
SET = r"--set ([a-z0-9_.]+)="
COMMANDS = sorted({" ".join(c.split()) for c in re.findall(r"(?:^|`)(egohieraloc [a-z][^`\n]*)", TEXT, re.M)})


def test_there_are_commands():
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_exists(command):
    words = shlex.split(command, comments=True)[1:]
    if words[:2] == ["ablations", "run"]:
        if words[2] != "NAME":
            find_ablation(words[2])
        words = words[3:]
    check_command(words)


SETTINGS = {  # of the commands that train, and of all others
    True: to_dict(Recipe()),
    False: to_dict(LocalizerConfig(network=PRESETS["mini"])),
}
WORDS = sorted({(" train" in line, word) for line in TEXT.splitlines() for word in re.findall(SET, line)})


@pytest.mark.parametrize(("trains", "path"), WORDS)
def test_a_documented_setting_exists(trains, path):
    values = SETTINGS[trains]
    for key in path.split("."):
        assert key in values
        values = values[key]
