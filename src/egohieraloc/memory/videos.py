"""The videos of the catalogue: rows and values."""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.memory.catalogue import Catalogue, from_us, to_us
from egohieraloc.memory.values import FileStamp, VideoEntry
from egohieraloc.memory.wall_clock import Start
from egohieraloc.types import SampledVideo, VideoInfo, VideoSource

ID_BYTES = 8
REMOVED = "What was answered went with its video, which was removed."
ENTRY = (
    "id, content, path, folder_fps, width, height, fps, num_frames, duration_s, "
    "start_us, start_offset_s, start_origin, camera, ready, size, mtime_ns"
)


@dataclass(frozen=True, eq=False)
class Known:
    """What one network knows of a video besides its entry: the samples, and where their features are."""

    video: SampledVideo
    store: str  # the key of its features and of what is remembered of it
    model: str  # fingerprint of what makes them: weights, settings, engine
    engine: str


class Videos:
    """Reads and writes them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def all(self) -> list[VideoEntry]:
        """By when they begin."""
        rows = self._catalogue.rows(f"SELECT {ENTRY} FROM videos ORDER BY start_us, id")
        return [entry_of(row) for row in rows]

    def get(self, video_id: str) -> VideoEntry:
        row = self._catalogue.row(f"SELECT {ENTRY} FROM videos WHERE id = ?", video_id)
        if row is None:
            raise DataError(f"The memory has no video {video_id}. `egohieraloc memory list` names them.")
        return entry_of(row)

    def with_content(self, content: str) -> VideoEntry | None:
        row = self._catalogue.row(f"SELECT {ENTRY} FROM videos WHERE content = ?", content)
        return None if row is None else entry_of(row)

    def begin(self, entry: VideoEntry) -> VideoEntry:
        """Note that a video is being added; the entry under its id, also where another process was first."""
        entry = replace(entry, id=secrets.token_hex(ID_BYTES), ready=False)
        offset, stamp = entry.start.time.utcoffset(), FileStamp.of(entry.path)
        insert = f"INSERT OR IGNORE INTO videos ({ENTRY}, added_us) VALUES"
        with self._catalogue.change() as db:
            db.execute(
                f"{insert} (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    entry.id, entry.content, entry.source.path, entry.source.folder_fps, entry.info.width,
                    entry.info.height, str(entry.info.fps), entry.info.num_frames, entry.duration_s,
                    to_us(entry.start.time), round(offset.total_seconds()) if offset else 0,
                    entry.start.origin, entry.camera, 0, stamp and stamp.size, stamp and stamp.mtime_ns,
                    to_us(datetime.now(UTC)),
                ),
            )  # fmt: skip
        return self.with_content(entry.content) or entry

    def finish(self, video_id: str, known: Known) -> None:
        """All of it is known to a network now."""
        video = known.video
        samples = zlib.compress(
            video.frame_index.astype("<i8").tobytes() + video.time_s.astype("<f8").tobytes()
        )
        with self._catalogue.change() as db:
            db.execute("UPDATE videos SET ready = 1 WHERE id = ?", (video_id,))
            db.execute(
                "INSERT OR REPLACE INTO readings SELECT id, ?, ?, ?, ?, ? FROM videos WHERE id = ?",
                (known.model, known.engine, video.sample_fps, samples, known.store, video_id),
            )

    def known(self, entry: VideoEntry) -> list[Known]:
        """A video as the networks that read it know it; of one that is still being added nothing."""
        rows = self._catalogue.rows("SELECT * FROM readings WHERE video_id = ? ORDER BY rowid", entry.id)
        return [_known(entry, row) for row in rows]

    def engine(self) -> str | None:
        """The engine that read the most videos; None before the first."""
        row = self._catalogue.row(
            "SELECT engine FROM readings GROUP BY engine ORDER BY count(*) DESC, max(rowid) DESC LIMIT 1"
        )
        return None if row is None else str(row["engine"])

    def found(self, entry: VideoEntry, source: VideoSource) -> VideoEntry:
        """The same content was found, elsewhere or written anew."""
        stamp = FileStamp.of(Path(source.path))
        with self._catalogue.change() as db:
            db.execute(
                "UPDATE videos SET path = ?, size = ?, mtime_ns = ? WHERE id = ?",
                (source.path, stamp and stamp.size, stamp and stamp.mtime_ns, entry.id),
            )
        return self.get(entry.id)

    def set_start(self, entry: VideoEntry, start: Start) -> VideoEntry:
        """It began at another time than was thought."""
        offset = start.time.utcoffset()
        with self._catalogue.change() as db:
            db.execute(
                "UPDATE videos SET start_us = ?, start_offset_s = ?, start_origin = ? WHERE id = ?",
                (to_us(start.time), round(offset.total_seconds()) if offset else 0, start.origin, entry.id),
            )
        return self.get(entry.id)

    def remove(self, entry: VideoEntry, files: Iterable[str]) -> None:
        """Forget a video and what it answered. Its files are noted as trash in the same breath."""
        with self._catalogue.change() as db:
            db.execute(
                "UPDATE questions SET document = NULL, message = ? WHERE video_id = ?", (REMOVED, entry.id)
            )
            seen = "SELECT question_id FROM sightings WHERE video_id = ?"
            db.execute(  # also what was only remembered of it
                f"UPDATE questions SET message = ? WHERE id IN ({seen}) AND instr(message, ?)",
                (REMOVED, entry.id, entry.path.name),
            )
            db.execute("DELETE FROM videos WHERE id = ?", (entry.id,))
            db.executemany("INSERT OR IGNORE INTO trash VALUES (?)", [(path,) for path in files])
        self._catalogue.shrink()

    def add_thumbnails(self, video_id: str, made: Iterable[tuple[int, float, bytes]]) -> None:
        """Slot, time in seconds and JPEG of each."""
        with self._catalogue.change() as db:
            db.executemany(
                "INSERT OR IGNORE INTO thumbnails VALUES (?,?,?,?)", [(video_id, *each) for each in made]
            )

    def thumbnail_slots(self, video_id: str) -> set[int]:
        return {
            row[0] for row in self._catalogue.rows("SELECT slot FROM thumbnails WHERE video_id = ?", video_id)
        }

    def thumbnail(self, video_id: str, time_s: float) -> bytes | None:
        """The JPEG nearest to a moment."""
        row = self._catalogue.row(
            "SELECT jpeg FROM thumbnails WHERE video_id = ? ORDER BY abs(time_s - ?) LIMIT 1",
            video_id,
            time_s,
        )
        return None if row is None else bytes(row["jpeg"])


def _known(entry: VideoEntry, row: sqlite3.Row) -> Known:
    data = zlib.decompress(row["samples"])
    half = len(data) // 2
    index, time_s = np.frombuffer(data[:half], "<i8"), np.frombuffer(data[half:], "<f8")
    source = replace(entry.source, start=entry.start.time)
    sampled = SampledVideo(source, entry.info, row["sample_fps"], index.copy(), time_s.copy())
    return Known(sampled, row["store"], row["model"], row["engine"])


def entry_of(row: sqlite3.Row | Mapping[str, Any]) -> VideoEntry:
    try:
        fps = Fraction(row["fps"])
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise DataError(
            f"The memory's catalogue is damaged: video {row['id']} has a rate of {row['fps']!r}. "
            "Restore it from a copy."
        ) from error
    return VideoEntry(
        id=row["id"],
        content=row["content"],
        source=VideoSource(row["path"], row["folder_fps"]),
        info=VideoInfo(row["width"], row["height"], fps, row["num_frames"]),
        duration_s=row["duration_s"],
        start=Start(from_us(row["start_us"], row["start_offset_s"]), row["start_origin"]),
        camera=row["camera"],
        ready=bool(row["ready"]),
        stamp=None if row["mtime_ns"] is None else FileStamp(row["size"], row["mtime_ns"]),
    )
