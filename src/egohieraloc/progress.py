"""How far long work has come: the callback that every part reports to, and bars for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # stage, done, total
LABELS = {
    "encode": "Reading the video",
    "look": "Searching",
    "decode": "Searching closely",
    "follow": "Tracking",
    "poses: reading": "Where you walked: reading",
    "poses: features": "Where you walked: finding landmarks",
    "poses: calibrating": "Where you walked: measuring the lens",
    "poses: matching": "Where you walked: comparing images",
    "poses: mapping": "Where you walked: building a map",
    "poses: attaching": "Where you walked: comparing with the map",
    "poses: registering": "Where you walked: filling gaps",
    "videos": "Videos",
}


def label(stage: str) -> str:
    """What a stage is called for people."""
    return LABELS.get(stage, stage)


def no_progress(stage: str, done: int, total: int) -> None:
    """Shows nothing."""


@contextmanager
def progress_bars(*, enabled: bool = True) -> Iterator[Progress]:
    """A bar per stage with the time left, on standard error; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:36}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = not (enabled and console.is_terminal)
    with Bars(*columns, console=console, disable=hidden, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:  # what was done before counts for the bar, not for its speed
                tasks[stage] = bars.add_task(label(stage), total=total, completed=done)
            bars.update(tasks[stage], completed=done, total=total)

        yield show
