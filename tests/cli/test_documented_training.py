"""Every command of docs/training.md and the model card exists, with every option, also under an ablation."""

import re
import shlex
from pathlib import Path

import pytest

from documented import check_command
from egohieraloc.ablations import find_ablation
from egohieraloc.settings import override
from egohieraloc.training.distill import DistillConfig
from egohieraloc.training.recipe import Recipe

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "\n".join((DOCS / name).read_text() for name in ("training.md", "model_card.md"))
COMMANDS = sorted(set(re.findall(r"(?:^ *|`)(egohieraloc [a-z][^`\n]*)", TEXT, re.M)))


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 7


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_exists(command: str) -> None:
    words = shlex.split(re.sub(r"[\[\]]", "", command))[1:]
    if words[:2] == ["ablations", "run"]:
        find_ablation(words[2])
        words = words[3:]
    check_command(words)


def test_documented_settings_exist() -> None:
    setting = r"--set[\s\n]+([a-z_.]+=[\w.]+)"
    distill = [command for command in COMMANDS if command.startswith("egohieraloc distill")]
    override(DistillConfig(), re.findall(setting, "\n".join(distill)))
    text = re.sub("|".join(map(re.escape, distill)), "", TEXT)
    words = re.findall(setting, text) + re.findall(r"`([a-z]+\.[a-z_]+=\w+)`", text)
    assert len(words) > 3
    override(Recipe(), words)
