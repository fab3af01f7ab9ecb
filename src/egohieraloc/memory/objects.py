"""Objects saved by name with their reference images, to be asked for again."""

from __future__ import annotations

from collections.abc import Iterator

from egohieraloc.errors import QueryError
from egohieraloc.memory.catalogue import Catalogue, from_us
from egohieraloc.memory.values import ObjectEntry
from egohieraloc.memory.views import read_views, write_views
from egohieraloc.query import MAX_VIEWS, Query

LISTED = """
SELECT name, (SELECT count(*) FROM views WHERE object_id = objects.id) AS num_views,
    (SELECT max(start_us + CAST(1e6 * end_s AS INTEGER)) FROM sightings JOIN videos ON videos.id = video_id
     WHERE object_id = objects.id AND sure) AS last_us
FROM objects ORDER BY name
"""


class SavedObjects:
    """`save`, `remove`, `memory.objects["keys"]`, and a list of all by iterating. Names differ by more than
    their capitals."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def save(self, name: str, query: Query) -> None:
        """Save an object, or add further views to one of that name."""
        name = " ".join(name.split())
        if not name:
            raise QueryError("An object needs a name.")
        with self._catalogue.change() as db:
            db.execute("INSERT OR IGNORE INTO objects (name) VALUES (?)", (name,))
            number = db.execute("SELECT id FROM objects WHERE name = ?", (name,)).fetchone()[0]
            write_views(db, query, "object_id", number)
            views = db.execute("SELECT count(*) FROM views WHERE object_id = ?", (number,)).fetchone()[0]
            if views > MAX_VIEWS:
                raise QueryError(
                    f"An object has at most {MAX_VIEWS} reference images, {name} would have {views}."
                )

    def remove(self, name: str) -> None:
        """Forget an object and its reference images. Questions about it keep their answers
        and a small image."""
        number = self.id_of(name)
        asked = "UPDATE sightings SET object_id = NULL WHERE object_id = ? AND question_id IS NOT NULL"
        with self._catalogue.change() as db:
            db.execute(asked, (number,))
            db.execute("DELETE FROM objects WHERE id = ?", (number,))
        self._catalogue.shrink()

    def __getitem__(self, name: str) -> Query:
        """All reference images of an object as one query."""
        number = self.id_of(name)
        return read_views(self._catalogue.rows("SELECT * FROM views WHERE object_id = ? ORDER BY id", number))

    def __iter__(self) -> Iterator[ObjectEntry]:
        for row in self._catalogue.rows(LISTED):
            last = None if row["last_us"] is None else from_us(row["last_us"])
            yield ObjectEntry(row["name"], row["num_views"], last)

    def __contains__(self, name: str) -> bool:
        return self._catalogue.row("SELECT 1 FROM objects WHERE name = ?", name) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def id_of(self, name: str) -> int:
        """Number of an object in the catalogue."""
        row = self._catalogue.row("SELECT id FROM objects WHERE name = ?", " ".join(name.split()))
        if row is None:
            known = ", ".join(entry.name for entry in self) or "none yet"
            raise QueryError(f"No object is saved as '{name}'. Saved are: {known}.")
        return int(row["id"])
