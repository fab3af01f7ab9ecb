"""Questions to a memory on their way: one process that holds it, one question after the other."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from egohieraloc.files import scratch_folder
from egohieraloc.memory.shelf import Shelf
from egohieraloc.progress import Progress, label
from egohieraloc.query import Query
from egohieraloc.report.build import write_views
from egohieraloc.result import Result
from egohieraloc.types import Box
from egohieraloc.web.jobs import MAX_WAITING, BusyError, told
from egohieraloc.web.memory_values import MemoryAsk, names_only
from egohieraloc.web.process import OwnProcess
from egohieraloc.web.values import QueryProgress

if TYPE_CHECKING:
    from egohieraloc.memory.library import Memory

MAX_KEPT = 1000  # questions on their way and just finished; more than may wait


class MemoryJobs:
    """The memory of a server. `shelf` shows what is there; a process of its own answers questions."""

    def __init__(self, folder: Path, make: Callable[[], Any]) -> None:
        self.shelf = Shelf(folder)
        self._process = OwnProcess(_Opened(folder, make))
        self._worker = ThreadPoolExecutor(1, "memory")
        self._changed = threading.RLock()
        self._asks: dict[str, MemoryAsk] = {}
        self._stops: dict[str, threading.Event] = {}

    def ask(
        self, sought: Query | str, until: datetime | None, videos: list[str] | None, *, in_3d: bool = False
    ) -> MemoryAsk:
        """Put a question into the queue."""
        entry = MemoryAsk(id=secrets.token_hex(8), object_name=sought if isinstance(sought, str) else None)
        stop = threading.Event()
        with self._changed:
            if sum(not ask.finished for ask in self._asks.values()) >= MAX_WAITING:
                raise BusyError(MAX_WAITING)
            if len(self._asks) >= MAX_KEPT:
                old = next(ask.id for ask in self._asks.values() if ask.finished)
                del self._asks[old], self._stops[old]
            self._asks[entry.id], self._stops[entry.id] = entry, stop
        self._worker.submit(self._answer, entry, stop, sought, until, videos, in_3d)
        return entry

    def get(self, ask_id: str) -> MemoryAsk | None:
        with self._changed:
            return self._asks.get(ask_id)

    def on_their_way(self) -> list[MemoryAsk]:
        """The questions that are not finished, the oldest first."""
        with self._changed:
            return [ask for ask in self._asks.values() if not ask.finished]

    def cancel(self, ask_id: str) -> MemoryAsk | None:
        """Give a question up; one that is finished stays as it is."""
        with self._changed:
            if ask_id in self._stops:
                self._stops[ask_id].set()
                self._put(self._asks[ask_id].model_copy(update={"status": "cancelled", "progress": None}))
            return self._asks.get(ask_id)

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._process.close()

    def _answer(self, entry: MemoryAsk, stop: threading.Event, *question: Any) -> None:
        def report(stage: str, done: int, total: int) -> None:
            now = QueryProgress(stage=stage, label=label(stage), done=done, total=total)
            self._put(entry.model_copy(update={"status": "running", "progress": now}))

        if stop.is_set():
            return
        self._put(entry.model_copy(update={"status": "running"}))
        try:
            number = self._process.run(answer_question, *question, progress=report, stop=stop)
        except Exception as error:
            self._put(entry.model_copy(update={"status": "failed", "message": told(error, names_only)}))
        else:
            self._put(entry.model_copy(update={"status": "done", "question": number}))

    def _put(self, entry: MemoryAsk) -> None:
        with self._changed:
            before = self._asks.get(entry.id)
            if before is not None and not before.finished:  # what was cancelled stays so
                self._asks[entry.id] = entry


class _Opened:
    """Opens the memory with its Localizer; called in the process that answers."""

    def __init__(self, folder: Path, make: Callable[[], Any]) -> None:
        self._folder, self._make = folder, make

    def __call__(self) -> Memory:
        from egohieraloc.memory.library import Memory

        return Memory.open(self._folder, localizer=self._make())


def answer_question(
    memory: Memory,
    progress: Progress,
    sought: Query | str,
    until: datetime | None,
    videos: list[str] | None,
    in_3d: bool,
) -> int | None:
    """Ask; the number of the question. Runs in the process that holds the memory."""
    return memory.ask(sought, until=until, videos=videos, in_3d=in_3d, progress=progress).question


def read_views(tool: None, progress: Progress, images: list[bytes], boxes: list[Box | None]) -> Query:
    """The query that some image files show. Runs in the process that touches the bytes of others."""
    with scratch_folder() as folder:
        views = []
        for number, (data, box) in enumerate(zip(images, boxes, strict=True)):
            path = Path(folder) / str(number)
            path.write_bytes(data)
            views.append(Query.from_image(path, box=box))
    return Query.of_views(*views)


def make_report(tool: None, progress: Progress, result: Result) -> str:
    """The report of an answer. Runs in the process that touches the bytes of others."""
    with scratch_folder() as folder:
        write_views(result, Path(folder))
        return (Path(folder) / "report.html").read_text(encoding="utf-8")
