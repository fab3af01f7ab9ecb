"""Queries being answered: a few processes with a Localizer each, and one queue.

Queries about one video take turns, so that the second finds the features the first has made; queries about
different videos run side by side.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from egohieraloc.errors import EgoHieraLocError
from egohieraloc.geometry.reference import CameraHeight
from egohieraloc.progress import Progress, label, no_progress
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.result_json import foreground_part
from egohieraloc.result_schema import ForegroundPart
from egohieraloc.types import NotFound, QueryMask
from egohieraloc.web.library import Library, UnknownIdError
from egohieraloc.web.media import read_query
from egohieraloc.web.process import OwnProcess, StoppedError
from egohieraloc.web.values import QueryEntry, QueryProgress

if TYPE_CHECKING:
    from egohieraloc.localize import SpaceSources

MAX_WAITING = 200
BROKEN = "Something broke in the server; its log says more."


class Locates(Protocol):
    """What is needed of a Localizer."""

    def locate(
        self,
        query: Query,
        video: str | Path,
        *,
        until_s: float | None = None,
        in_3d: bool = False,
        space: SpaceSources | None = None,
        progress: Progress = no_progress,
    ) -> Result: ...

    def foreground(self, query: Query) -> QueryMask: ...


class BusyError(EgoHieraLocError):
    """Too many queries wait."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} queries are waiting already. Ask again when some are answered.")


@dataclass
class _Running:
    """A query that a process works on."""

    video_id: str
    stop: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    progress: QueryProgress | None = None
    stage_began: tuple[float, int] = (0.0, 0)  # when, and how much was done by then

    def report(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self.progress is None or self.progress.stage != stage:
            self.stage_began = now, done
        began, first = self.stage_began
        left_s = (now - began) / (done - first) * (total - done) if done > first else None
        self.progress = QueryProgress(stage=stage, label=label(stage), done=done, total=total, left_s=left_s)


class Jobs:
    """Answers the library's open queries, the oldest first."""

    def __init__(self, library: Library, make: Callable[[], Locates], *, workers: int) -> None:
        self._library = library
        self._changed = threading.Condition()
        self._waiting = [query.id for query in reversed(library.queries()) if not query.finished]
        self._promised = 0
        self._running: dict[str, _Running] = {}
        self._closing = False
        # The first has all cores while it is alone; others work only beside it.
        self._processes = [OwnProcess(make, share=workers if n else 1) for n in range(workers)]
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def add(self, query_id: str) -> None:
        """Put a stored query into the queue."""
        with self._changed:
            self._waiting.append(query_id)
            self._changed.notify_all()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keep a place in the queue for a query that is being prepared."""
        with self._changed:
            if len(self._waiting) + self._promised >= MAX_WAITING:
                raise BusyError(MAX_WAITING)
            self._promised += 1
        try:
            yield
        finally:
            with self._changed:
                self._promised -= 1

    def seen(self, entry: QueryEntry) -> QueryEntry:
        """A stored query as it stands at this moment."""
        with self._changed:
            running = self._running.get(entry.id)
        if running is None or entry.finished:
            return entry
        return entry.model_copy(update={"status": "running", "progress": running.progress})

    def cancel(self, query_id: str) -> None:
        """Give a query up; one that is finished stays as it is."""
        with self._changed:
            running = self._running.get(query_id)
            if running is not None:
                running.cancelled = True
                running.stop.set()
            elif not (entry := self._library.query(query_id)).finished:
                if query_id in self._waiting:
                    self._waiting.remove(query_id)
                self._library.finish(entry.model_copy(update={"status": "cancelled"}))
            self._changed.wait_for(lambda: query_id not in self._running, timeout=15)

    def renamed(self, query_id: str, name: str | None) -> QueryEntry:
        """Give a query a name, also while it is being answered."""
        with self._changed:
            entry = self._library.query(query_id).model_copy(update={"name": name})
            self._library.finish(entry)
        return self.seen(entry)

    def close(self) -> None:
        """End all processes. Queries that are not finished go on at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            for running in self._running.values():
                running.stop.set()
        for process in self._processes:
            process.close()
        for thread in self._threads:
            thread.join(timeout=15)

    def _work(self, number: int) -> None:
        process = self._processes[number]
        if number == 0:
            with suppress(Exception):  # the first query will tell what is wrong
                process.run(get_ready)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._next(number) is not None)
                entry = self._next(number)
                if self._closing or entry is None:
                    return
                self._waiting.remove(entry.id)
                running = self._running[entry.id] = _Running(entry.video_id)
                self._changed.notify_all()  # now the next worker may have work
            self._answer(process, entry, running)

    def _answer(self, process: OwnProcess, entry: QueryEntry, running: _Running) -> None:
        try:
            with self._library.incoming() as folder:
                outcome = self._answered(process, entry, running, folder)
                if outcome is not None:
                    with self._changed:  # else one that is renamed right now loses its name or its answer
                        outcome = outcome.model_copy(update={"name": self._library.query(entry.id).name})
                        self._library.finish(outcome, folder if outcome.status == "done" else None)
        except Exception:  # as where the disk is full: asked again at the next start
            traceback.print_exc()
        finally:
            with self._changed:
                del self._running[entry.id]
                self._changed.notify_all()

    def _next(self, number: int) -> QueryEntry | None:
        """The oldest query whose video nobody is busy with; queries that are gone are dropped.

        A worker has work only while those before it are busy: one that holds a Localizer already is faster.
        """
        if len(self._running) < number:
            return None
        busy = {running.video_id for running in self._running.values()}
        for query_id in list(self._waiting):
            try:
                entry = self._library.query(query_id)
            except UnknownIdError:
                self._waiting.remove(query_id)
                continue
            if entry.video_id not in busy:
                return entry
        return None

    def _answered(
        self, process: OwnProcess, entry: QueryEntry, running: _Running, folder: Path
    ) -> QueryEntry | None:
        """How the query ended, its answer in the folder, or None when it should go on at the next start."""
        library = self._library
        video, images = library.video_path(entry.video_id), library.query_folder(entry.id)
        try:
            done: QueryEntry = process.run(
                answer_query, video, images, entry, folder, progress=running.report, stop=running.stop
            )
        except Exception as error:
            if running.cancelled:
                return entry.model_copy(update={"status": "cancelled"})
            if self._closing or isinstance(error, StoppedError):
                return None
            message = told(error, library.without_paths)
            return entry.model_copy(update={"status": "failed", "message": message})
        return done


def told(error: Exception, without_paths: Callable[[str], str]) -> str:
    """What others hear of an error; of one that nobody expected the log says more."""
    if isinstance(error, EgoHieraLocError):
        return without_paths(str(error))
    traceback.print_exception(error)
    return BROKEN


def query_foreground(localizer: Locates, progress: Progress, query: Query) -> ForegroundPart:
    """What of a query will be searched."""
    return foreground_part(localizer.foreground(query))


def get_ready(localizer: Locates, progress: Progress) -> None:
    """Nothing; but the process now runs and has its Localizer."""


def answer_query(
    localizer: Locates, progress: Progress, video: Path, images: Path, entry: QueryEntry, folder: Path
) -> QueryEntry:
    """Write the answer into a folder; runs in the process that holds the Localizer."""
    query = read_query(images, [entry, *entry.others])
    space = None
    if entry.camera_height_m is not None:
        from egohieraloc.localize import SpaceSources

        space = SpaceSources(reference=CameraHeight(entry.camera_height_m))
    result = localizer.locate(
        query, video, until_s=entry.until_s, in_3d=entry.in_3d, space=space, progress=progress
    )
    result.save(folder)
    track = result.track
    if isinstance(track, NotFound):
        return entry.model_copy(update={"status": "done", "message": track.reason, "found": False})
    span_s = (track.start_s, track.end_s)
    return entry.model_copy(update={"status": "done", "found": True, "span_s": span_s})
