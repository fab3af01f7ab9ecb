"""A process of its own for work that may hang, crash or eat all memory: the server lives on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from egohieraloc import threads
from egohieraloc.children import end_with_parent, limit_cpu, limit_memory, safe_start
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.progress import Progress

NICENESS = 10  # the page's own answers go before the files of others
STOPPING_S = 5.0  # how long a task may take to notice that it should stop
Make = Callable[[], Any]  # makes the tool, once for each life of the process


class ProcessDiedError(EgoHieraLocError):
    """The process ended in the middle of its work."""


class FullError(EgoHieraLocError):
    """Too many wait already."""


class StoppedError(EgoHieraLocError):
    """The work was given up because somebody asked for it."""


@dataclass(frozen=True)
class Limits:
    """What a process may use: memory as long as it lives, time to compute for each task."""

    memory_bytes: int
    cpu_s: float


class OwnProcess:
    """Runs `task(tool, progress, *arguments)`, one at a time, in a process that is started anew when it died.

    Tasks, arguments and what they return cross a pipe: they must be picklable.
    """

    def __init__(self, make: Make | None = None, limits: Limits | None = None, *, share: int = 1) -> None:
        self._make, self._limits = make, limits
        self._share = share  # processes that share the cores
        self._turn = threading.Lock()
        self._birth = threading.Lock()
        self._closed = False
        self._process: Any = None
        self._connection: Connection | None = None

    def run(
        self,
        task: Callable[..., Any],
        *arguments: Any,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        limit_s: float | None = None,
    ) -> Any:
        """What the task returns. Its own mistakes come back as EgoHieraLocError with their words."""
        with self._turn:
            connection = self._started()
            try:
                connection.send((task, arguments))
                kind, value = self._outcome(connection, progress, stop, limit_s)
            except (EOFError, OSError):
                code = self._end()
                raise ProcessDiedError(
                    f"The process that did the work died (code {code}). The file may be damaged or too large "
                    "for this machine's memory."
                ) from None
        if kind == "done":
            return value
        if kind == "stopped":
            raise StoppedError("The query was cancelled.")
        raise EgoHieraLocError(value)

    def close(self) -> None:
        """End the process, whatever it does, for good."""
        with self._birth:
            self._closed = True
            if self._process is not None:
                _kill(self._process)

    def _outcome(
        self,
        connection: Connection,
        progress: Progress | None,
        stop: threading.Event | None,
        limit_s: float | None,
    ) -> tuple[str, Any]:
        started, stopped_at = time.monotonic(), None
        while True:
            if connection.poll(0.05):
                kind, value = connection.recv()
                if kind != "progress":
                    return kind, value
                if progress is not None:
                    progress(*value)
            now = time.monotonic()
            if stop is not None and stop.is_set() and stopped_at is None:
                stopped_at = now
                connection.send("stop")
            if stopped_at is not None and now - stopped_at > STOPPING_S:
                self._end()
                return "stopped", None
            if limit_s is not None and now - started > limit_s:
                self._end()
                return (
                    "failed",
                    f"This took longer than {limit_s:.0f} s and was given up. Is the file damaged?",
                )

    def _started(self) -> Connection:
        with self._birth:
            if self._closed:
                raise StoppedError("The server is closing.")
            if self._connection is None or not self._process.is_alive():
                context = multiprocessing.get_context("spawn")
                self._connection, theirs = context.Pipe()
                arguments = (theirs, self._make, self._limits, self._share)
                process = context.Process(target=_serve, args=arguments, daemon=True)
                with safe_start():
                    process.start()
                self._process = process
                theirs.close()
            return self._connection

    def _end(self) -> int | None:
        _kill(self._process)
        self._process.join()
        self._connection = None
        code: int | None = self._process.exitcode
        return code


class ProcessPool:
    """A few processes and a short queue before them: who finds it full is told so at once."""

    def __init__(self, size: int, *, waiting: int, limits: Limits) -> None:
        self._free = [OwnProcess(limits=limits) for _ in range(size)]
        self._all = tuple(self._free)
        self._changed = threading.Condition()
        self._inside, self._room = 0, size + waiting

    @contextmanager
    def place(self) -> Iterator[OwnProcess]:
        """A process for a task, perhaps after a wait."""
        with self._changed:
            if self._inside >= self._room:
                raise FullError("The server is busy with the files of others. Try again in a moment.")
            self._inside += 1
        process = None
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._free)
                process = self._free.pop()
            yield process
        finally:
            with self._changed:
                self._inside -= 1
                if process is not None:
                    self._free.append(process)
                self._changed.notify()

    def run(self, task: Callable[..., Any], *arguments: Any, limit_s: float) -> Any:
        """As `OwnProcess.run`."""
        with self.place() as process:
            return process.run(task, *arguments, limit_s=limit_s)

    def close(self) -> None:
        for process in self._all:
            process.close()


def _kill(process: Any) -> None:
    """End a process and those it has started, such as the one that finds camera poses."""
    with suppress(ProcessLookupError, AttributeError):  # not a group yet; a system without groups
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _serve(connection: Connection, make: Make | None, limits: Limits | None, share: int) -> None:
    """The process: one task after the other until the pipe closes."""
    threads.settle(share)
    with suppress(AttributeError):
        os.setsid()  # a group of its own, see `_kill`
    end_with_parent()
    if limits is not None:
        os.nice(NICENESS)
        limit_memory(limits.memory_bytes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end
    tool = None

    def progress(stage: str, done: int, total: int) -> None:
        connection.send(("progress", (stage, done, total)))
        if connection.poll():
            connection.recv()
            raise StoppedError

    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if message == "stop":
            continue  # it came when the work was already done
        task, arguments = message
        if limits is not None:
            limit_cpu(limits.cpu_s)
        try:
            if tool is None and make is not None:
                tool = make()
            outcome = ("done", task(tool, progress, *arguments))
        except StoppedError:
            outcome = ("stopped", None)
        except EgoHieraLocError as error:
            outcome = ("failed", str(error))
        except MemoryError:
            outcome = ("failed", "This needs more memory than it may take. Is the file damaged?")
        except Exception as error:
            traceback.print_exc()
            outcome = (
                "failed",
                f"Something broke ({type(error).__name__}: {error}). The server's log says more.",
            )
        connection.send(outcome)
