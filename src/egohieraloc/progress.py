"""How a long job tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, total


def no_progress(stage: str, done: int, total: int) -> None:
    """Says nothing."""
