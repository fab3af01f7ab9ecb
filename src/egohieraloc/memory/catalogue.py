"""One SQLite file for everything that cannot be made again: videos and their times, thumbnails, objects,
questions, answers.

It is in WAL mode: readers never wait, writers take turns, and what was committed survives the death of any
process. Every change is one transaction. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock

from egohieraloc.errors import DataError, EgoHieraLocError, OutputError
from egohieraloc.files import private_folder

VERSION = 3
FILE = "catalogue.sqlite"
RECORDINGS = "recordings"  # the folder beside it, of what cameras recorded
APPLICATION = 0x45474F4C  # "EGOL", in the header of the file
WAIT_S = 60.0  # for other writers
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = """
CREATE TABLE videos (
    id TEXT PRIMARY KEY,
    content TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    folder_fps REAL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    fps TEXT NOT NULL,               -- as a fraction
    num_frames INTEGER NOT NULL,
    duration_s REAL NOT NULL,
    start_us INTEGER NOT NULL,
    start_offset_s INTEGER NOT NULL, -- of the zone it was recorded in
    start_origin TEXT NOT NULL,
    camera TEXT,
    size INTEGER,                    -- of the file when it was last seen to hold this video, in bytes
    mtime_ns INTEGER,                -- when it had been written
    added_us INTEGER NOT NULL,
    ready INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX videos_by_start ON videos (start_us);
CREATE TABLE readings (              -- a video as one network knows it
    video_id TEXT NOT NULL REFERENCES videos ON DELETE CASCADE,
    model TEXT NOT NULL,             -- fingerprint of what makes its features: weights, settings, engine
    engine TEXT NOT NULL,
    sample_fps REAL,
    samples BLOB NOT NULL,           -- numbers (int64) and times (float64) of the sampled frames, compressed
    store TEXT NOT NULL,             -- key of its features and of what is remembered of it
    PRIMARY KEY (video_id, model)
) STRICT;
CREATE TABLE thumbnails (
    video_id TEXT NOT NULL REFERENCES videos ON DELETE CASCADE,
    slot INTEGER NOT NULL,
    time_s REAL NOT NULL,
    jpeg BLOB NOT NULL,
    PRIMARY KEY (video_id, slot)
) STRICT;
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE
) STRICT;
CREATE TABLE questions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    asked_us INTEGER NOT NULL,
    object_id INTEGER REFERENCES objects ON DELETE SET NULL,
    until_us INTEGER,
    found INTEGER NOT NULL,
    message TEXT NOT NULL,
    thumbnail BLOB NOT NULL,         -- JPEG of what was looked for
    video_id TEXT REFERENCES videos ON DELETE SET NULL,
    document BLOB                    -- result.json, compressed; gone with its video
) STRICT;
CREATE TABLE views (                 -- reference images, of a saved object or of a question
    id INTEGER PRIMARY KEY,
    object_id INTEGER REFERENCES objects ON DELETE CASCADE,
    question_id INTEGER REFERENCES questions ON DELETE CASCADE,
    image BLOB NOT NULL,             -- PNG
    mask BLOB,                       -- PNG
    x1 REAL NOT NULL, y1 REAL NOT NULL, x2 REAL NOT NULL, y2 REAL NOT NULL,
    seen_at_s REAL,
    CHECK ((object_id IS NULL) <> (question_id IS NULL))
) STRICT;
CREATE TABLE sightings (
    id INTEGER PRIMARY KEY,
    video_id TEXT NOT NULL REFERENCES videos ON DELETE CASCADE,
    object_id INTEGER REFERENCES objects ON DELETE CASCADE,
    question_id INTEGER REFERENCES questions ON DELETE CASCADE,
    sure INTEGER NOT NULL,           -- whether its confidence reaches the threshold
    start_s REAL NOT NULL,
    end_s REAL NOT NULL,
    score REAL NOT NULL,
    box TEXT,                        -- JSON: x1, y1, x2, y2 at the end; none where only memory is left
    shown TEXT                       -- JSON: seconds, x1, y1, x2, y2 where a thumbnail shows it
) STRICT;
CREATE INDEX sightings_by_object ON sightings (object_id);
CREATE INDEX sightings_by_question ON sightings (question_id);
CREATE INDEX sightings_by_video ON sightings (video_id);
CREATE TABLE trash (path TEXT PRIMARY KEY) STRICT; -- files of what was removed, until they are gone
"""


def to_us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def from_us(value: int, offset_s: int | None = None) -> datetime:
    """In the zone with that offset, or in this machine's."""
    zone = None if offset_s is None else timezone(timedelta(seconds=offset_s))
    return (EPOCH + timedelta(microseconds=value)).astimezone(zone)


class Catalogue:
    """The file. One object may serve several threads: each has a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._local = threading.local()
        try:
            private_folder(folder)
            with FileLock(str(folder / "catalogue.lock"), timeout=WAIT_S), self._told():
                self._prepare(self._connection())
        except OSError as error:
            raise OutputError(
                f"The memory cannot be kept in {folder}: {error}. Choose another: --folder of a server, or "
                "--memory."
            ) from error

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """What a question to the tables finds."""
        with self._told():
            return self._connection().execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        found = self.rows(sql, *values)
        return found[0] if found else None

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Changes that happen together or not at all; other writers wait."""
        with self._told():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def shrink(self) -> None:
        """Give back the room of what was removed; the file is shorter once no reader looks at the old one."""
        with self._told():  # a script goes through all pages, `execute` stops after the first
            self._connection().executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(PASSIVE)")

    def check(self) -> list[str]:
        """What is wrong with the file: nothing, in a sound one."""
        broken = [row[0] for row in self.rows("PRAGMA integrity_check") if row[0] != "ok"]
        return broken + [
            f"a row of {row[0]} refers to nothing" for row in self.rows("PRAGMA foreign_key_check")
        ]

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version == 0 and tables == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"BEGIN; {SCHEMA}; PRAGMA application_id = {APPLICATION}; "
                f"PRAGMA user_version = {VERSION}; COMMIT"
            )
        elif connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise DataError(f"{self.path} is not a memory's catalogue. Choose another folder.")
        elif version != VERSION:
            raise DataError(
                f"{self.path} has version {version}, wanted {VERSION}. "
                + (
                    "Update egohieraloc to use it."
                    if version > VERSION
                    else "Add its videos to a new memory."
                )
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what SQLite says into an error of ours."""
        try:
            yield
        except EgoHieraLocError:
            raise
        except sqlite3.OperationalError as error:
            raise OutputError(f"The memory's catalogue {self.path} cannot be used: {error}.") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # also of what SQLite quotes
            raise DataError(
                f"The memory's catalogue {self.path} is damaged: {error}. Restore it from a copy."
            ) from error
