"""The command line: `egohieraloc`."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Annotated

import typer

from egohieraloc import __version__, threads
from egohieraloc.children import SAFE_PATH
from egohieraloc.cli.commands import LazyGroup, add_commands
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.processor import avoid_broken_tiles

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
add_commands(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"egohieraloc {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Where was this object last seen? Visual query localization in first-person video."""


def main() -> None:
    """Run a command; mistakes end in one clear line."""
    threads.settle()
    avoid_broken_tiles()
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    os.environ[SAFE_PATH] = "1"  # for every process started from here on
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary files are removed
    try:
        app()
    except EgoHieraLocError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if not _was_interrupted(end):
            raise
        print("Stopped. What was finished is kept; run the same command to go on.", file=sys.stderr)
        sys.exit(130)
    finally:
        _leave_graphs()


def _leave_graphs() -> None:
    """Graphs being compiled cannot be interrupted and take some tenths of a second; those still waiting are
    dropped."""
    graphs = sys.modules.get("egohieraloc.models.graphs")
    if graphs is not None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        graphs.stop_compiling()
        signal.signal(signal.SIGINT, before)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what ended the program: Typer turns it into an exit, each version in its own way."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
