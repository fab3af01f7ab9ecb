"""Questions and answers, kept: what was asked, what was found, and the whole answer to be shown again."""

from __future__ import annotations

import json
import sqlite3
import zlib
from dataclasses import replace
from datetime import UTC, datetime

from egohieraloc.documents import parse_json
from egohieraloc.errors import DataError
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.images import decode_image
from egohieraloc.memory.asking import MemoryAnswer
from egohieraloc.memory.catalogue import Catalogue, from_us, to_us
from egohieraloc.memory.thumbnails import to_jpeg
from egohieraloc.memory.values import Question, Sighting
from egohieraloc.memory.videos import ENTRY, entry_of
from egohieraloc.memory.views import read_views, scaled, shrunk, write_views
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box

ASKED = """
SELECT questions.id, asked_us, until_us, found, message, name
FROM questions LEFT JOIN objects ON objects.id = object_id
"""
SEEN = f"""
SELECT sightings.*, {", ".join(f"videos.{name.strip()}" for name in ENTRY.split(",") if name.strip() != "id")}
FROM sightings JOIN videos ON videos.id = video_id
"""


class Questions:
    """Reads and writes them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def keep(self, query: Query, answer: MemoryAnswer, object_id: int | None, until: datetime | None) -> int:
        """Keep a question and its answer; the number they are kept under. Images that are not of a saved
        object are kept small."""
        small = shrunk(query) if object_id is None else query
        document = None
        if answer.result is not None:
            result = _with_query(answer.result, small)
            document = zlib.compress(json.dumps(result.to_dict(), allow_nan=False).encode())
        chosen = answer.sightings[0].video.id if answer.sightings else None
        with self._catalogue.change() as db:
            there = db.execute("SELECT id FROM objects WHERE id = ?", (object_id,)).fetchone()
            object_id = there and there["id"]  # it may have been forgotten while it was asked for
            cursor = db.execute(
                "INSERT INTO questions "
                "(asked_us, object_id, until_us, found, message, thumbnail, video_id, document) "
                "VALUES (?, ?, ?, ?, ?, ?, (SELECT id FROM videos WHERE id = ?), ?)",
                (
                    to_us(datetime.now(UTC)), object_id, None if until is None else to_us(until),
                    answer.found, answer.summary, to_jpeg(query.crop), chosen, document,
                ),
            )  # fmt: skip
            number = int(cursor.lastrowid or 0)
            if object_id is None:
                write_views(db, small, "question_id", number)
            for sighting in (*answer.sightings, *answer.remembered):
                sure = answer.found and sighting.box is not None
                write_sighting(db, sighting, sure=sure, object_id=object_id, question_id=number)
        return number

    def all(self) -> list[Question]:
        """The newest first."""
        return self._questions("> 0")

    def get(self, number: int) -> Question:
        self._row(number)
        return self._questions(f"= {number:d}")[0]

    def thumbnail(self, number: int) -> bytes:
        """What was looked for, as a small JPEG."""
        return bytes(self._row(number)["thumbnail"])

    def query(self, number: int) -> Query:
        """What was looked for; of an object that was forgotten, the small image that is left."""
        row = self._row(number)
        owner, owner_id = (
            ("question_id", number) if row["object_id"] is None else ("object_id", row["object_id"])
        )
        views = self._catalogue.rows(f"SELECT * FROM views WHERE {owner} = ? ORDER BY id", owner_id)
        return read_views(views) if views else Query.from_image(decode_image(row["thumbnail"]))

    def result(self, number: int) -> Result:
        """The whole answer, as it was given; of an object that was forgotten, without its images."""
        from egohieraloc.result_schema import ResultDocument

        document = self._row(number)["document"]
        if document is None:
            raise DataError(f"Question {number} has no answer to show, or its video was removed.")
        value = ResultDocument.model_validate(parse_json(zlib.decompress(document)))
        query = self.query(number)
        answer = Result.from_document(value, query)
        same = query.box.xyxy == value.query.box  # else the mask covers an image that is no longer there
        return answer if same else replace(answer, query_mask=None)

    def cameras_of(self, video_id: str) -> Reconstruction | None:
        """The camera poses of a video as the newest answer that needed them has them."""
        newest = "SELECT id FROM questions WHERE video_id = ? AND document IS NOT NULL ORDER BY id DESC"
        results = (self.result(row["id"]) for row in self._catalogue.rows(newest, video_id))
        return next((result.cameras for result in results if result.cameras is not None), None)

    def remove(self, number: int) -> None:
        self._row(number)
        with self._catalogue.change() as db:
            db.execute("DELETE FROM questions WHERE id = ?", (number,))
        self._catalogue.shrink()

    def _row(self, number: int) -> sqlite3.Row:
        row = self._catalogue.row("SELECT * FROM questions WHERE id = ?", number)
        if row is None:
            raise DataError(f"There is no question {number} in the memory.")
        return row

    def _questions(self, numbered: str) -> list[Question]:
        """In short: whole answers may be large."""
        asked = self._catalogue.rows(f"{ASKED} WHERE questions.id {numbered} ORDER BY questions.id DESC")
        seen: dict[int, list[Sighting]] = {row["id"]: [] for row in asked}
        for row in self._catalogue.rows(f"{SEEN} WHERE question_id {numbered} ORDER BY sightings.id"):
            if row["question_id"] in seen:  # it may have been asked meanwhile
                seen[row["question_id"]].append(sighting_of_row(row))
        return [
            Question(
                id=row["id"],
                asked_at=from_us(row["asked_us"]),
                object_name=row["name"],
                until=None if row["until_us"] is None else from_us(row["until_us"]),
                message=row["message"],
                sightings=tuple(seen[row["id"]]),
                found=bool(row["found"]),
            )
            for row in asked
        ]


def _with_query(result: Result, small: Query) -> Result:
    """The answer to a query, told of the same query with smaller images."""
    (height, width), (low, slim) = result.query.image.shape[:2], small.image.shape[:2]
    mask = result.query_mask
    if mask is not None and (height, width) != (low, slim):
        mask = replace(mask, box=scaled(mask.box, slim / width, low / height))
    return replace(result, query=small, query_mask=mask)


def write_sighting(
    db: sqlite3.Connection,
    sighting: Sighting,
    *,
    sure: bool,
    object_id: int | None,
    question_id: int | None = None,
) -> None:
    """Note a sighting, unless its video was removed meanwhile."""
    shown = sighting.shown and json.dumps([sighting.shown[0], *sighting.shown[1].xyxy])
    db.execute(
        "INSERT INTO sightings "
        "(video_id, object_id, question_id, sure, start_s, end_s, score, box, shown) "
        "SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM videos WHERE id = ?",
        (
            object_id, question_id, sure, sighting.start_s, sighting.end_s, sighting.score,
            sighting.box and json.dumps(sighting.box.xyxy), shown, sighting.video.id,
        ),
    )  # fmt: skip


def sighting_of_row(row: sqlite3.Row) -> Sighting:
    entry = entry_of({**dict(row), "id": row["video_id"]})
    box = Box(*parse_json(row["box"])) if row["box"] else None
    time_s, *sides = parse_json(row["shown"]) if row["shown"] else (None,)
    shown = None if time_s is None else (time_s, Box(*sides))
    return Sighting(entry, row["start_s"], row["end_s"], row["score"], box, shown)
