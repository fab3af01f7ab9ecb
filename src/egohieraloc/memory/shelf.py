"""What can be done with a memory without a network: list, show, save and forget."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from egohieraloc.errors import DataError, VideoError
from egohieraloc.memory.catalogue import FILE, Catalogue
from egohieraloc.memory.objects import SavedObjects
from egohieraloc.memory.questions import Questions
from egohieraloc.memory.values import VideoEntry
from egohieraloc.memory.videos import Videos
from egohieraloc.video.reader import Video


class Shelf:
    """The folder of a memory: its catalogue, and the files that belong to it."""

    def __init__(self, folder: str | Path, *, create: bool = True) -> None:
        self.folder = Path(folder).resolve()
        if not create and not (self.folder / FILE).is_file():
            make = f"egohieraloc memory add VIDEO --memory {folder}"
            raise DataError(f"There is no memory in {folder}. Make one: `{make}`.")
        self.catalogue = Catalogue(self.folder)
        self.videos = Videos(self.catalogue)
        self.objects = SavedObjects(self.catalogue)
        self.questions = Questions(self.catalogue)
        self._empty_trash()

    @property
    def cache(self) -> Path:
        """Where features are."""
        return self.folder / "features"

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
            by_path := [e for e in entries if e.path == Path(name).absolute()],
            [e for e in by_path if e.exists],  # of two the one that is there now
            [e for e in entries if e.path.name == name],
        ):
            if len(matching) == 1:
                return matching[0]
        raise DataError(f"The memory has no single video '{name}'. `memory list` gives ids, paths and names.")

    def open_video(self, video: VideoEntry | str | Path) -> Video:
        """The video itself, where it is still there."""
        entry = self.find(video)
        if not entry.exists:
            raise VideoError(
                f"The video {entry.path} was moved, deleted or replaced. Add it where it is now."
            )
        return Video.reopen(entry.source)

    def remove(self, video: VideoEntry | str | Path) -> None:
        """Forget a video: its thumbnails, features and answers. A recording of a camera is deleted, unless
        another has taken its place; a user's own file stays."""
        entry = self.find(video)
        taken = any(other.path == entry.path for other in self.list() if other.id != entry.id)
        files = [] if taken or entry.camera is None else [entry.source.path]
        for known in self.videos.known(entry):
            files += [str(path) for path in self.cache.glob(f"*-{known.store}")]
        self.videos.remove(entry, files)
        self._empty_trash()

    def thumbnail(self, video: VideoEntry | str, time_s: float = 0.0) -> bytes | None:
        """A small JPEG of a moment; it is there also when the video is not."""
        return self.videos.thumbnail(video if isinstance(video, str) else video.id, time_s)

    def _empty_trash(self) -> None:
        """Delete the files of what was removed, also by a process that died before it could; none outside of
        this folder and the cache, whoever wrote the catalogue."""
        ours = {self.folder, self.cache.resolve()}
        for row in self.catalogue.rows("SELECT path FROM trash"):
            path = Path(row["path"])
            if ours.isdisjoint(path.resolve().parents):
                continue
            if self.catalogue.row("SELECT 1 FROM readings WHERE ? LIKE '%-' || store", path.name) is None:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink()
            with self.catalogue.change() as db:
                db.execute("DELETE FROM trash WHERE path = ?", (row["path"],))
