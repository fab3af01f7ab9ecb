"""The server's folder. Everything in it lies under generated ids, and is there whole or not at all.

videos/ID/    video, video.json
queries/ID/   image.png, image-1.png ..., thumbnail.jpg, query.json; once done, answer/: see `Result.save`
incoming/ID/  what is being received or written; forgotten at the next start
features/     the Localizer's cache
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from egohieraloc.documents import read_json
from egohieraloc.errors import DataError, EgoHieraLocError, OutputError
from egohieraloc.files import atomic_path, locked, private_folder, to_disk
from egohieraloc.report.scene import Scene, scene_of
from egohieraloc.result import Result
from egohieraloc.result_schema import ResultDocument
from egohieraloc.web.values import QueryEntry, Value, VideoEntry

ANSWER = "answer"
Stored = TypeVar("Stored", bound=Value)


class UnknownIdError(EgoHieraLocError):
    """There is no such video or query."""


class Library:
    """Videos, queries and answers on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = ExitStack()
        self._is_open = False

    def open(self) -> None:
        """Take the folder, which one server has at a time, and forget what was being received."""
        if self._is_open:
            return
        try:
            private_folder(self.folder)
            self._lock.enter_context(locked(self.folder, wait=False))
            shutil.rmtree(self.folder / "incoming", ignore_errors=True)
            for kind in ("incoming", "videos", "queries", "features"):
                private_folder(self.folder / kind)
        except BlockingIOError as error:
            raise OutputError(
                f"Another server uses the folder {self.folder}. Stop it, or choose another: --folder."
            ) from error
        except OSError as error:
            raise OutputError(
                f"Cannot use the folder {self.folder}: {error}. Choose another: --folder."
            ) from error
        self._is_open = True

    def close(self) -> None:
        """Let others have the folder."""
        self._is_open = False
        self._lock.close()

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A new folder, named by a new id, to write into; it is gone afterwards unless it became part of
        the library."""
        path = self.folder / "incoming" / secrets.token_hex(8)
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def videos(self) -> list[VideoEntry]:
        """All videos, the newest first."""
        found = (_read(path, VideoEntry) for path in self.folder.glob("videos/*/video.json"))
        return sorted((v for v in found if v), key=lambda video: -video.added_at)

    def video(self, video_id: str) -> VideoEntry:
        entry = _read(self._folder("videos", video_id) / "video.json", VideoEntry)
        if entry is None:
            raise UnknownIdError(f"There is no video {video_id} here. GET /videos lists them.")
        return entry

    def video_path(self, video_id: str) -> Path:
        return self._folder("videos", video_id) / "video"

    def add_video(self, received: Path, entry: VideoEntry) -> None:
        to_disk(received / "video")
        _write(received / "video.json", entry.model_dump_json())
        received.rename(self._folder("videos", entry.id))

    def remove_video(self, video_id: str) -> None:
        """Forget a video, its queries and their answers."""
        folders = [self.query_folder(query.id) for query in self.queries(video_id)]
        with self.incoming() as away:  # first out of sight, each in one moment
            for folder in (*folders, self._folder("videos", video_id)):
                with suppress(FileNotFoundError):
                    folder.rename(away / folder.name)

    def remove_query(self, query_id: str) -> None:
        """Forget a query and its answer."""
        with self.incoming() as away, suppress(FileNotFoundError):
            self.query_folder(query_id).rename(away / query_id)

    def queries(self, video_id: str | None = None) -> list[QueryEntry]:
        """All queries, or those about a video, the newest first."""
        found = (_read(path, QueryEntry) for path in self.folder.glob("queries/*/query.json"))
        wanted = (q for q in found if q and video_id in (None, q.video_id))
        return sorted(wanted, key=lambda query: -query.created_at)

    def query(self, query_id: str) -> QueryEntry:
        entry = _read(self.query_folder(query_id) / "query.json", QueryEntry)
        if entry is None:
            raise UnknownIdError(f"There is no query {query_id} here. GET /videos/ID/queries lists them.")
        return entry

    def query_folder(self, query_id: str) -> Path:
        return self._folder("queries", query_id)

    def add_query(self, received: Path, entry: QueryEntry) -> None:
        _write(received / "query.json", entry.model_dump_json())
        received.rename(self.query_folder(entry.id))

    def finish(self, entry: QueryEntry, answer: Path | None = None) -> None:
        """Store how a query ended, and the folder of its answer, first, so that a done one always has it."""
        folder = self.query_folder(entry.id)
        if not folder.exists():  # its video was removed meanwhile
            return
        if answer is not None:
            shutil.rmtree(folder / ANSWER, ignore_errors=True)  # of a server that was stopped right here
            answer.rename(folder / ANSWER)
        _write(folder / "query.json", entry.model_dump_json())

    def answer(self, query_id: str) -> ResultDocument | None:
        """As in result.json, but for where the server keeps its files; None where it is damaged."""
        name = self.video(self.query(query_id).video_id).name
        try:
            value = read_json(self.query_folder(query_id) / ANSWER / "result.json")
            document = ResultDocument.model_validate(self._hide_paths(value))
        except (OSError, ValueError):
            return None
        return document.model_copy(update={"video": document.video.model_copy(update={"path": name})})

    def scene(self, query_id: str, candidate: int | None = None) -> Scene | None:
        """What the 3D view of an answer, or of another candidate, draws; None where nothing is known."""
        try:
            result = Result.load(self.query_folder(query_id) / ANSWER)
        except DataError:
            return None
        if candidate is not None:
            if candidate >= len(result.alternative_places):
                return None
            result = replace(result, place=result.alternative_places[candidate])
        scene = scene_of(result)
        return scene and scene.model_copy(update={"words": self._hide_paths(scene.words)})

    def without_paths(self, text: str) -> str:
        """A message for others: where the folder lies is nobody's business."""
        plain: str = self._hide_paths(text)
        return plain[:1].upper() + plain[1:]

    def _hide_paths(self, value: Any) -> Any:
        """The same JSON value with no path of this folder in any of its texts."""
        if isinstance(value, str):
            return hide_paths(value, self.folder)
        if isinstance(value, list):
            return [self._hide_paths(part) for part in value]
        if isinstance(value, dict):
            return {key: self._hide_paths(part) for key, part in value.items()}
        return value

    def _folder(self, kind: str, name: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{16}", name):
            raise UnknownIdError(f"'{name}' is not an id: ids are 16 of the digits 0-9 and a-f.")
        return self.folder / kind / name


def hide_paths(text: str, folder: Path) -> str:
    """The same text with no path of a server's folder."""
    return re.sub(re.escape(str(folder)) + r"(?:[\\/][\w-]+(?:\.\w+)*)*", "the file", text)


def _read(path: Path, kind: type[Stored]) -> Stored | None:
    try:
        return kind.model_validate(read_json(path))
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> None:
    with atomic_path(path, durable=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
