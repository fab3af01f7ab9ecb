"""Processes we start: they run no code of the current folder, end with their parent, and may have limits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"  # Python then leaves the current folder out of where it looks for modules
_environment = threading.Lock()


@contextmanager
def safe_start() -> Iterator[None]:
    """Processes started in here by `multiprocessing` import nothing from the current folder."""
    with _environment:
        before = os.environ.get(SAFE_PATH)
        os.environ[SAFE_PATH] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[SAFE_PATH]
            else:
                os.environ[SAFE_PATH] = before


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment() -> dict[str, str]:
    """The environment for it: what this process imports from, but for the current folder."""
    ours = str(Path(__file__).parents[1])
    others = [path for path in sys.path if os.path.isabs(path) and not _is_here(path)]
    path = os.pathsep.join(dict.fromkeys([*others, ours]))
    return {**os.environ, "PYTHONPATH": path, SAFE_PATH: "1"}


def _is_here(path: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(path, os.curdir)
    return False


def end_with_parent() -> None:
    """In a process of `multiprocessing`: end it, and what it has started, when its parent has ended."""
    import multiprocessing  # most commands start no process
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is not None:
        _when(lambda: wait([parent.sentinel]))


def end_with_input() -> None:
    """In a process whose standard input is a pipe: end it when the other end is closed."""
    _when(_input_ended)


def _input_ended() -> None:
    """Read past `sys.stdin`, whose lock would be held when the interpreter ends: Python then aborts."""
    while os.read(0, 4096):
        pass


def _when(over: Callable[[], Any]) -> None:
    def end() -> None:
        over()
        with suppress(AttributeError, OSError):
            if os.getpgrp() == os.getpid():  # a group of its own: its children are in it
                os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def limit_memory(max_bytes: int) -> None:
    """This process gets no more memory than that; what asks for more fails."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def limit_cpu(seconds: float) -> None:
    """From now on this process may compute for so many seconds; then it is ended."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        end = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))
