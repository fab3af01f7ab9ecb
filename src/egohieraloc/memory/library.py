"""The library: many videos with wall-clock times, asked as one.

    memory = Memory.open("my_memory")
    memory.add("kitchen.mp4")
    memory.objects.save("keys", Query.of_views(front, back))
    print(memory.ask("keys").summary)

A folder holds one: the catalogue (small, kept for ever), features/ (large, a cache: what was thrown out is
made again from the video) and recordings/ (what `egohieraloc watch` has recorded). Users' videos stay where
they are and are never changed. Any number of processes may use a memory at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import cached_property
from pathlib import Path

import numpy as np
from filelock import FileLock

from egohieraloc.errors import DataError, VideoError
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.localize import Localizer
from egohieraloc.memory.asking import MemoryAnswer, ask_all
from egohieraloc.memory.catalogue import FILE, Catalogue
from egohieraloc.memory.objects import SavedObjects
from egohieraloc.memory.questions import Questions
from egohieraloc.memory.thumbnails import slots, to_jpeg, watched
from egohieraloc.memory.values import VideoEntry
from egohieraloc.memory.videos import Known, Videos
from egohieraloc.memory.wall_clock import Start, aware, start_of
from egohieraloc.progress import Progress, no_progress
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Rgb, SampledVideo
from egohieraloc.video.reader import Video

KEPT_AT_ONCE = 16  # thumbnails in one change of the catalogue


class Memory:
    """Videos, saved objects, questions and answers in a folder; see `Memory.open`."""

    def __init__(self, folder: Path, localizer: Localizer | None = None) -> None:
        self.folder = folder
        self._given = localizer
        self.catalogue = Catalogue(folder)
        self.videos = Videos(self.catalogue)
        self.objects = SavedObjects(self.catalogue)
        self.questions = Questions(self.catalogue)
        self._empty_trash()

    @classmethod
    def open(cls, folder: str | Path, *, localizer: Localizer | None = None, create: bool = True) -> Memory:
        """The memory in a folder; with `create` a new one where there is none.

        localizer: reads and asks the videos, by default the one that ships; it is loaded when first needed.
        """
        folder = Path(folder).resolve()
        if not create and not (folder / FILE).is_file():
            raise DataError(f"There is no memory in {folder}. Make one: `egohieraloc memory add VIDEO`.")
        return cls(folder, localizer)

    @cached_property
    def localizer(self) -> Localizer:
        return self._given or Localizer.from_pretrained(cache=self.folder / "features")

    def add(
        self,
        video: Video | str | Path,
        *,
        start: datetime | None = None,
        zone: tzinfo | None = None,
        camera: str | None = None,
        progress: Progress = no_progress,
    ) -> VideoEntry:
        """Add a video; one that is known is found by its content, and a stopped addition goes on.

        start: when it began, instead of what its name, container or date say; `zone`: of times without one.
        """
        opened = video if isinstance(video, Video) else Video.open(video)
        content = opened.content_hash
        with self._turn(content):
            entry = self.knows(opened)
            if entry is None:
                began = start_of(opened, start, zone=zone)
                entry = self.videos.begin(
                    VideoEntry(
                        "", content, opened.source, opened.info, opened.duration_s, began, camera=camera
                    )
                )
            elif start is not None:
                entry = self.videos.set_start(entry, Start(aware(start, zone), "given"))
            if not entry.ready:
                self._read(entry, opened, progress)
        return self.videos.get(entry.id)

    def knows(self, video: Video) -> VideoEntry | None:
        """The entry of a video that was added before, wherever its file was then."""
        entry = self.videos.with_content(video.content_hash)
        if entry is not None and not entry.exists:
            entry = self.videos.moved(entry, video.source)
        return entry

    def ask(
        self,
        query: Query | str,
        *,
        until: datetime | None = None,
        videos: Iterable[VideoEntry | str] | None = None,
        progress: Progress = no_progress,
    ) -> MemoryAnswer:
        """Where was this last seen, anywhere? The answer equals the latest of the videos' own answers.

        query: a query, or the name of a saved object; until: the query time, by the wall clock; videos: only
        these (entries, ids or paths). The question and its answer are kept in `questions`.
        """
        object_id = self.objects.id_of(query) if isinstance(query, str) else None
        sought = self.objects[query] if isinstance(query, str) else query
        until = None if until is None else aware(until)
        chosen = self.list() if videos is None else [self.find(video) for video in videos]
        answer = ask_all(
            [entry for entry in chosen if entry.ready],
            lambda entry, until_s: self._ask(sought, entry, until_s, progress),
            until=until,
            progress=progress,
        )
        return replace(answer, question=self.questions.keep(sought, answer, object_id, until))

    def list(self) -> list[VideoEntry]:
        """All videos, by when they begin."""
        return self.videos.all()

    def find(self, video: VideoEntry | str | Path) -> VideoEntry:
        """A video by its id, its path, or its name where only one has it."""
        if isinstance(video, VideoEntry):
            return video
        name, entries = str(video), self.list()
        for matching in (
            [e for e in entries if e.id == name],
            [e for e in entries if e.path == Path(name).absolute()],
            [e for e in entries if e.path.name == name],
        ):
            if len(matching) == 1:
                return matching[0]
        raise DataError(f"The memory has no single video '{name}'. `memory list` gives ids, paths and names.")

    def remove(self, video: VideoEntry | str | Path) -> None:
        """Forget a video: its thumbnails, features and answers. A recording of a camera is deleted; a user's
        own file stays."""
        entry = self.find(video)
        files = [entry.source.path] if entry.camera is not None else []
        if entry.ready:
            store = FeatureStore(self.localizer_cache / self.videos.known(entry).store)
            regions = RegionMemory.of(self.localizer_cache, store.key)
            files += [str(store.folder), str(regions.folder)]
        self.videos.remove(entry, files)
        self._empty_trash()

    def thumbnail(self, video: VideoEntry | str, time_s: float = 0.0) -> bytes | None:
        """A small JPEG of a moment; it is there also when the video is not."""
        return self.videos.thumbnail(video if isinstance(video, str) else video.id, time_s)

    def encoded(self, entry: VideoEntry) -> EncodedVideo | None:
        """What is known of a video, without opening it; None where another network made it."""
        known = self.videos.known(entry)
        if known.model != self._model:
            return None
        return self.localizer.reopen(known.video, FeatureStore(Path(known.store)).key)

    @property
    def localizer_cache(self) -> Path:
        """Where features are."""
        return self.folder / "features" if self._given is None else self._given.cache

    @property
    def _model(self) -> str:
        return self.localizer.weights.features_fingerprint

    def _ask(
        self, query: Query, entry: VideoEntry, until_s: float | None, progress: Progress
    ) -> Result | None:
        """What one video answers; None where neither its file nor its features are there."""
        encoded = self.encoded(entry)
        if encoded is not None:
            with suppress(VideoError):  # features were thrown out and the file is not where it was
                return self.localizer.ask(query, before(encoded, until_s), progress=progress)
        if not entry.exists:
            return None
        encoded = self._read(entry, Video.reopen(entry.source), progress)
        return self.localizer.ask(query, before(encoded, until_s), progress=progress)

    def _read(self, entry: VideoEntry, video: Video, progress: Progress) -> EncodedVideo:
        """Encode a video, or what is missing of it, and keep thumbnails of what is decoded."""
        thumbnails = _Thumbnails(self.videos, entry, video.sampled(self.localizer.config.search.fps))
        encoded = self.localizer.encode(watched(video, thumbnails.see), progress=progress)
        thumbnails.finish(video)
        sampled = replace(encoded.video, source=replace(video.source, start=entry.start.time))
        self.videos.finish(entry.id, Known(sampled, encoded.store.folder.name, self._model))
        return replace(encoded, video=sampled)

    def _turn(self, content: str) -> FileLock:
        """Two processes that add the same video take turns; the second finds it done."""
        locks = self.folder / "locks"
        locks.mkdir(exist_ok=True)
        return FileLock(str(locks / f"{content[:2]}.lock"))

    def _empty_trash(self) -> None:
        """Delete the files of what was removed, also by a process that died before it could."""
        for row in self.catalogue.rows("SELECT path FROM trash"):
            path = Path(row["path"])
            if self.catalogue.row("SELECT 1 FROM videos WHERE store = ?", path.name) is None:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink()
            with self.catalogue.change() as db:
                db.execute("DELETE FROM trash WHERE path = ?", (row["path"],))


class _Thumbnails:
    """Keeps a thumbnail of every slot while a video is read."""

    def __init__(self, videos: Videos, entry: VideoEntry, sampled: SampledVideo) -> None:
        self._videos, self._id = videos, entry.id
        self._times_s = dict(zip(sampled.frame_index.tolist(), sampled.time_s.tolist(), strict=True))
        there = videos.thumbnail_slots(entry.id)
        self._wanted = {frame: slot for frame, slot in slots(sampled).items() if slot not in there}
        self._made: list[tuple[int, float, bytes]] = []

    def see(self, index: int, rgb: Rgb) -> None:
        slot = self._wanted.pop(index, None)
        if slot is not None:
            self._made.append((slot, self._times_s[index], to_jpeg(rgb)))
            if len(self._made) >= KEPT_AT_ONCE:
                self._keep()

    def finish(self, video: Video) -> None:
        """Also those of frames that were not decoded this time."""
        for frame in video.frames(sorted(self._wanted)):
            self.see(frame.index, frame.rgb)
        self._keep()

    def _keep(self) -> None:
        self._videos.add_thumbnails(self._id, self._made)
        self._made = []


def before(encoded: EncodedVideo, until_s: float | None) -> EncodedVideo:
    """What was seen before the query time."""
    if until_s is None:
        return encoded
    first = encoded.first(int(np.count_nonzero(encoded.time_s < until_s)))
    return replace(first, video=replace(first.video, until_s=until_s))
