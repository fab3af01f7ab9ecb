"""Options written once as a dataclass: what a command gets of them, and what its help lists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from egohieraloc.cli.memory_folder import choose_localizer
from egohieraloc.cli.option_groups import spread
from egohieraloc.errors import ConfigError

got: list[object] = []


@dataclass(frozen=True)
class Lens:
    focal: Annotated[float, typer.Option(help="In pixels.")]
    name: Annotated[str | None, typer.Option("--lens", help="Its name.")] = None


@dataclass(frozen=True)
class Light:
    colours: Annotated[list[str] | None, typer.Option("--colour")] = None
    out: Annotated[Path, typer.Option()] = Path("light.txt")


def look(
    path: Annotated[Path, typer.Argument()], *, lens: Lens, times: int = 1, light: Light, dark: bool = False
) -> None:
    """Look at it."""
    got.append((path, lens, times, light, dark))


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(spread(look, out=Path("other.txt")))
    return app


def test_a_command_gets_its_groups(app: typer.Typer) -> None:
    words = "room --focal 500 --lens wide --colour red --colour blue --dark --times 2"
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    assert got.pop() == (
        Path("room"), Lens(500.0, "wide"), 2, Light(["red", "blue"], Path("other.txt")), True,
    )  # fmt: skip


def test_what_a_group_demands_is_demanded(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["room"]).exit_code == 2
    assert got == []


def test_the_help_lists_options_in_the_order_of_the_parameters(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["--help"], env={"TERM": "dumb"}).output
    places = [text.index(name) for name in ("--focal", "--lens", "--times", "--colour", "--out", "--dark")]
    assert places == sorted(places)
    assert "Look at it." in text


class Machine:
    """Stands for SystemOptions on a machine without OpenVINO."""

    def __init__(self, engine: str | None = None) -> None:
        self.engine = engine

    def localizer(self, cache: Path, *, engine: str | None = None) -> str:
        if (self.engine or engine) == "openvino":
            raise ConfigError("OpenVINO is not installed.")
        return self.engine or engine or "the best there is"


@pytest.mark.parametrize(
    ("given", "usual", "chosen"),
    [
        (None, None, "the best there is"),
        (None, "torch", "torch"),
        (None, "openvino", "the best there is"),
        ("torch", "openvino", "torch"),
    ],
)
def test_a_memory_is_asked_with_the_engine_that_read_it(
    given: str | None, usual: str | None, chosen: str
) -> None:
    assert choose_localizer(Machine(given), Path("cache"), usual) == chosen


def test_an_engine_that_was_given_and_does_not_run_is_told() -> None:
    with pytest.raises(ConfigError):
        choose_localizer(Machine("openvino"), Path("cache"), "torch")
