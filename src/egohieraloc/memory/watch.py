"""Watching a camera: recorded in segments, each put into the memory as soon as it is whole.

A thread records; this one reads the segments and looks for saved objects. Only paths wait between the two, so
memory stays bounded, and a camera loses nothing while a segment is read. A segment ends when the camera goes
away. What a killed process has recorded but not read is found by the next one; the segment in work is lost.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

from filelock import FileLock, Timeout

from egohieraloc.errors import ConfigError, EgoHieraLocError, QueryError, VideoError
from egohieraloc.memory.asking import sighting_of
from egohieraloc.memory.camera import Camera
from egohieraloc.memory.catalogue import RECORDINGS
from egohieraloc.memory.library import Memory
from egohieraloc.memory.questions import write_sighting
from egohieraloc.memory.recorder import UNFINISHED, Segment
from egohieraloc.memory.values import Sighting, VideoEntry

Event = dict[str, Any]  # goes out as a line of JSON
WAITING_SEGMENTS = 2  # of a file: it can wait, a camera cannot
PATIENCE_S = 0.2
DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """How a camera is recorded and how long its recordings are kept."""

    name: str | None = None  # of the camera; by default from its address
    segment_s: float = 30.0
    fps: float = 5.0
    keep_days: float = math.inf  # of recordings; older ones go
    keep_gb: float = math.inf  # of recordings; the oldest go first

    def __post_init__(self) -> None:
        if not (self.segment_s > 0 and self.fps > 0):
            raise ConfigError("A segment and the rate must be above 0.")
        if not (self.keep_days > 0 and self.keep_gb > 0):
            raise ConfigError("Days and gigabytes of recordings to keep must be above 0.")


def watch(
    memory: Memory,
    camera: Camera,
    options: WatchOptions,
    report: Callable[[Event], None],
    stop: threading.Event,
) -> None:
    """Record a camera into the memory until it ends or `stop` is set; all that was recorded is read."""
    name = options.name or camera.name
    folder = memory.folder / RECORDINGS / name
    with _alone(folder, name):
        for left in _left_behind(memory, folder):
            _take(memory, left, name, options, report)
        recorder = _Recorder(camera, folder, options, report, stop)
        recorder.start()
        try:
            while (path := recorder.next()) is not None:
                _take(memory, path, name, options, report, waiting=recorder.waiting)
        finally:
            stop.set()
            recorder.end()


class _Recorder(threading.Thread):
    """Writes segments; their paths come out of `next`."""

    def __init__(
        self,
        camera: Camera,
        folder: Path,
        options: WatchOptions,
        report: Callable[[Event], None],
        stop: threading.Event,
    ) -> None:
        super().__init__(name="recorder", daemon=True)
        self._camera, self._folder, self._options, self._stop_event = camera, folder, options, stop
        self._report = report
        self._done: Queue[Path] = Queue(WAITING_SEGMENTS if camera.is_file else 0)
        self._segment: Segment | None = None  # in work
        self._error: BaseException | None = None
        self._unread = threading.Event()  # nobody takes segments any more

    @property
    def waiting(self) -> int:
        """Segments that are recorded and not read."""
        return self._done.qsize()

    def next(self) -> Path | None:
        """The next whole segment; None when the camera has ended and none is left."""
        while True:
            ended = not self.is_alive()
            try:
                return self._done.get(timeout=0 if ended else PATIENCE_S)
            except Empty:
                if ended:
                    if self._error is not None:
                        raise self._error from None
                    return None

    def end(self) -> None:
        """Wait until nothing is recorded any more. The next watcher finds the segments that nobody took."""
        self._unread.set()
        self.join()

    def run(self) -> None:
        try:
            for frame in self._camera.frames(self._options.fps, self._stop_event, self._told):
                if self._segment is not None and not self._segment.fits(frame, self._options.segment_s):
                    self._hand_over()
                if self._segment is None:
                    self._segment = Segment(self._folder, frame, self._options.fps)
                else:
                    self._segment.add(frame)
            self._hand_over()
        except BaseException as error:
            self._error = error

    def _hand_over(self) -> None:
        """The segment in work, if any."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        path = segment.close()
        while not self._unread.is_set():
            with suppress(Full):
                self._done.put(path, timeout=PATIENCE_S)
                return

    def _told(self, what: str, why: str) -> None:
        if what == "disconnected":  # it may stay away for long
            self._hand_over()
        self._report(
            {"event": what, "camera": self._folder.name, "time": _now()} | ({"reason": why} if why else {})
        )


def _take(
    memory: Memory,
    path: Path,
    camera: str,
    options: WatchOptions,
    report: Callable[[Event], None],
    *,
    waiting: int = 0,
) -> None:
    """Put a segment into the memory, tell which saved objects it shows, and forget what is too old."""
    replaced = [entry for entry in memory.list() if entry.path == path]
    try:
        entry = memory.add(path, camera=camera)
    except EgoHieraLocError as error:
        if not path.exists():  # removed meanwhile: too old, or by its owner
            return
        if not isinstance(error, VideoError):
            raise
        path.unlink(missing_ok=True)  # left by a machine that lost its power
        report({"event": "damaged", "camera": camera, "path": str(path), "reason": str(error)})
        return
    for old in replaced:
        if old.id != entry.id:
            memory.remove(old)
    span = {"start": entry.start.time.isoformat(), "end": entry.end.isoformat()}
    report({"event": "segment", "camera": camera, **span, "path": str(path), "waiting": waiting})
    for name, sighting in seen_objects(memory, entry):
        report({"event": "seen", "object": name, "camera": camera, **_details(sighting)})
    for old in outdated(memory.list(), camera, options):
        memory.remove(old)


def seen_objects(memory: Memory, entry: VideoEntry) -> Iterator[tuple[str, Sighting]]:
    """Saved objects that a video shows; each sighting is noted in the catalogue."""
    encoded = memory.encoded(entry)
    for saved in list(memory.objects):
        if encoded is None:
            return
        with suppress(QueryError, VideoError):  # it was forgotten, or the video removed, meanwhile
            result = memory.localizer.ask(memory.objects[saved.name], encoded)
            sighting = sighting_of(entry, result) if result.found else None
            if sighting is not None:
                with memory.catalogue.change() as db:
                    number = memory.objects.id_of(saved.name)
                    write_sighting(db, sighting, sure=True, object_id=number)
                yield saved.name, sighting


def outdated(entries: list[VideoEntry], camera: str, options: WatchOptions) -> list[VideoEntry]:
    """Recordings of a camera that are too old, or too many; the newest always stays."""
    ours = [entry for entry in entries if entry.camera == camera]
    if not ours:
        return []
    newest = ours[-1].end
    old = [e for e in ours[:-1] if (newest - e.end).total_seconds() > options.keep_days * DAY_S]
    kept = [entry for entry in ours if entry not in old]
    sizes = [entry.stamp.size if entry.stamp and entry.exists else 0 for entry in kept]
    while len(kept) > 1 and sum(sizes) > options.keep_gb * 1e9:
        old.append(kept.pop(0))
        sizes.pop(0)
    return old


def _left_behind(memory: Memory, folder: Path) -> list[Path]:
    """Whole segments that nobody has read; one in work when its process was killed is deleted."""
    for path in folder.glob(f"*{UNFINISHED}"):
        path.unlink()
    known = {entry.path for entry in memory.list() if entry.ready}
    return [path for path in sorted(folder.glob("*.mp4")) if path not in known]


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(folder / ".lock"), timeout=0):
            yield
    except Timeout:
        raise ConfigError(f"The camera '{name}' is being watched already. Choose another --name.") from None


def _details(sighting: Sighting) -> Event:
    return {
        "from": sighting.seen_from.isoformat(),
        "until": sighting.seen_until.isoformat(),
        "confidence": round(sighting.score, 4),
        "box": sighting.box and [round(side, 1) for side in sighting.box.xyxy],
        "video": sighting.video.id,
        "path": str(sighting.video.path),
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")
