"""What the commands of a memory share: its folder, times without a zone, opening it."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from egohieraloc.cli.common import NetworkOptions
from egohieraloc.errors import ConfigError, EgoHieraLocError

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer
    from egohieraloc.memory.library import Memory

Folder = Annotated[
    Path, typer.Option("--memory", envvar="EGOHIERALOC_MEMORY", help="Folder that holds the memory.")
]
DEFAULT_FOLDER = Path("egohieraloc_memory")
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Zone = Annotated[
    str | None,
    typer.Option(help="Time zone of times without one, such as Europe/Berlin; else this machine's."),
]
FromVideo = Annotated[
    str | None,
    typer.Option("--from", help="Take the query from this video of the memory, with --at and --box."),
]


def open_memory(folder: Path, system: NetworkOptions, *, create: bool = False) -> Memory:
    """The memory in a folder. Unless an engine is given it is the one that read the videos, so that none has
    to be read again."""
    from egohieraloc.memory.shelf import Shelf

    shelf = Shelf(folder, create=create)  # says that none is there before seconds are spent on the network
    from egohieraloc.memory.library import Memory

    localizer = choose_localizer(system, shelf.cache, shelf.videos.engine())
    return Memory.open(folder, localizer=localizer, create=create)


def choose_localizer(system: NetworkOptions, cache: Path, usual: str | None) -> Localizer:
    """With the engine that was given, or else the usual one where it runs here."""
    if system.engine is None and usual is not None:
        try:
            return system.localizer(cache, engine=usual)
        except EgoHieraLocError:  # it does not run here
            pass
    return system.localizer(cache)


def zone_of(name: str | None) -> tzinfo | None:
    """The time zone of that name."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            f"There is no time zone '{name}'. Give one such as Europe/Berlin or UTC."
        ) from error
