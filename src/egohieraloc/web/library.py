"""The server's folder. Everything in it lies under generated ids, and is there whole or not at all.

videos/ID/    video, video.json
queries/ID/   image.png, thumbnail.jpg, query.json, answer.json
incoming/ID/  what is being received; forgotten at the next start
features/     the Localizer's cache
"""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path
from typing import TypeVar

from egohieraloc.errors import EgoHieraLocError, OutputError
from egohieraloc.files import atomic_path
from egohieraloc.web.values import Answer, QueryEntry, Value, VideoEntry

Stored = TypeVar("Stored", bound=Value)


class UnknownIdError(EgoHieraLocError):
    """There is no such video or question."""


class Library:
    """Videos, questions and answers on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.features = self.folder / "features"
        shutil.rmtree(self.folder / "incoming", ignore_errors=True)
        try:
            for kind in ("incoming", "videos", "queries"):
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"Cannot use the folder {folder}: {error}. Choose another: --folder."
            ) from error

    def incoming(self) -> Path:
        """A new folder, named by a new id, for what is being received."""
        path = self.folder / "incoming" / secrets.token_hex(8)
        path.mkdir()
        return path

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
        _write(received / "video.json", entry.model_dump_json())
        received.rename(self._folder("videos", entry.id))

    def remove_video(self, video_id: str) -> None:
        """Forget a video, its questions and their answers."""
        for query in self.queries(video_id):
            shutil.rmtree(self.query_folder(query.id), ignore_errors=True)
        shutil.rmtree(self._folder("videos", video_id), ignore_errors=True)

    def queries(self, video_id: str | None = None) -> list[QueryEntry]:
        """All questions, or those about a video, the newest first."""
        found = (_read(path, QueryEntry) for path in self.folder.glob("queries/*/query.json"))
        wanted = (q for q in found if q and video_id in (None, q.video_id))
        return sorted(wanted, key=lambda query: -query.created_at)

    def query(self, query_id: str) -> QueryEntry:
        entry = _read(self.query_folder(query_id) / "query.json", QueryEntry)
        if entry is None:
            raise UnknownIdError(f"There is no question {query_id} here. GET /videos/ID/queries lists them.")
        return entry

    def query_folder(self, query_id: str) -> Path:
        return self._folder("queries", query_id)

    def add_query(self, received: Path, entry: QueryEntry) -> None:
        _write(received / "query.json", entry.model_dump_json())
        received.rename(self.query_folder(entry.id))

    def finish(self, entry: QueryEntry, answer: Answer | None = None) -> None:
        """Store how a question ended; the answer comes first, so that a done one always has it."""
        folder = self.query_folder(entry.id)
        if folder.exists():  # its video may have been removed meanwhile
            if answer is not None:
                _write(folder / "answer.json", self._hide_paths(answer.model_dump_json()))
            _write(folder / "query.json", entry.model_dump_json())

    def answer(self, query_id: str) -> Answer | None:
        return _read(self.query_folder(query_id) / "answer.json", Answer)

    def without_paths(self, text: str) -> str:
        """A message for others: where the folder lies is nobody's business."""
        plain = self._hide_paths(text)
        return plain[:1].upper() + plain[1:]

    def _hide_paths(self, text: str) -> str:
        return re.sub(re.escape(str(self.folder)) + r"(?:[\\/][\w-]+(?:\.\w+)*)*", "the file", text)

    def _folder(self, kind: str, name: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{16}", name):
            raise UnknownIdError(f"'{name}' is not an id: ids are 16 of the digits 0-9 and a-f.")
        return self.folder / kind / name


def _read(path: Path, kind: type[Stored]) -> Stored | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
