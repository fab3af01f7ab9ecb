"""The last known places of saved objects, from the answers that were kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from egohieraloc.errors import DataError
from egohieraloc.memory.shelf import Shelf
from egohieraloc.memory.values import Question
from egohieraloc.result import Result
from egohieraloc.types import Localization3D, NotLocalized


@dataclass(frozen=True, eq=False)
class KnownPlaces:
    """Saved objects by name: each has an answer with a place, or a reason why it has none."""

    results: dict[str, Result] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    last_seen: dict[str, datetime] = field(default_factory=dict)  # also where no place is known of it


def last_places(shelf: Shelf) -> KnownPlaces:
    """Of each saved object the answer whose place was seen last, by the wall clock; of equals the newest."""
    asked: dict[str, list[Question]] = {}
    for question in shelf.questions.all():
        if question.object_name is not None:
            asked.setdefault(question.object_name, []).append(question)
    known = KnownPlaces()
    for entry in shelf.objects:
        found = _last_place(shelf, asked.get(entry.name, []))
        if isinstance(found, Result):
            known.results[entry.name] = found
        else:
            known.missing[entry.name] = found
        if entry.last_seen is not None:
            known.last_seen[entry.name] = entry.last_seen
    return known


def _last_place(shelf: Shelf, questions: list[Question]) -> Result | str:
    """An answer with a place, or why there is none. The newest question comes first."""
    if not questions:
        return "not asked for yet"
    seen = [question for question in questions if question.found and question.sightings]
    reason = "its place was not asked for (--3d)" if seen else "not found"
    for question in sorted(seen, key=lambda each: each.sightings[0].seen_until, reverse=True):
        try:
            result = shelf.questions.result(question.id)
        except DataError:  # it went with its video
            continue
        if isinstance(result.place, Localization3D):
            video = question.sightings[0].video  # where its file is now, and when it began
            source = replace(video.source, start=video.start.time)
            return replace(result, video=replace(result.video, source=source))
        if isinstance(result.place, NotLocalized):
            reason = result.place.reason
    return reason
