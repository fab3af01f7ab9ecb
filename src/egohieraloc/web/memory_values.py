"""What the server says of a memory. Times of day are ISO 8601 with the zone they were recorded in."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import AwareDatetime

from egohieraloc.memory.asking import seen_words
from egohieraloc.memory.values import Question, Sighting, VideoEntry
from egohieraloc.report.map_page import MapScene
from egohieraloc.result_schema import BoxXyxy
from egohieraloc.web.values import QueryProgress, Value


class MemoryVideo(Value):
    """A video of the memory. `exists` tells whether its file is still there; the memory answers without."""

    id: str
    name: str
    start: AwareDatetime
    start_origin: str
    duration_s: float
    width: int
    height: int
    camera: str | None
    ready: bool
    exists: bool


class MemorySighting(Value):
    """An appearance of what was looked for.

    `box` is where it was at the end, in pixels of the video; null: its video is gone and only a memory of
    something like it is left. `shown_s` and `shown_box` are a moment that a thumbnail shows.
    """

    video: MemoryVideo
    seen_from: AwareDatetime
    seen_until: AwareDatetime
    start_s: float
    end_s: float
    score: float
    box: BoxXyxy | None
    shown_s: float
    shown_box: BoxXyxy | None


class MemoryQuestion(Value):
    """A question that was answered; where `found` the first sighting is the answer.

    `message` is the answer in words, `notes` what of it no sighting says, such as where in space it is.
    """

    id: int
    asked_at: AwareDatetime
    object_name: str | None
    until: AwareDatetime | None
    message: str
    notes: str
    found: bool
    sightings: list[MemorySighting]


class MemoryObject(Value):
    """A saved object."""

    name: str
    views: int
    last_seen: AwareDatetime | None


class MemoryMap(Value):
    """Last known places of saved objects in the space of a video, as the 3D view draws them."""

    video: MemoryVideo
    scene: MapScene


class MemoryAsk(Value):
    """A question on its way; `question` is its number once it is done."""

    id: str
    object_name: str | None = None
    status: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    progress: QueryProgress | None = None
    message: str | None = None
    question: int | None = None

    @property
    def finished(self) -> bool:
        return self.status not in ("waiting", "running")


def video_value(entry: VideoEntry) -> MemoryVideo:
    return MemoryVideo(
        id=entry.id,
        name=entry.path.name,
        start=entry.start.time,
        start_origin=entry.start.origin,
        duration_s=entry.duration_s,
        width=entry.info.width,
        height=entry.info.height,
        camera=entry.camera,
        ready=entry.ready,
        exists=entry.exists,
    )


def sighting_value(sighting: Sighting) -> MemorySighting:
    return MemorySighting(
        video=video_value(sighting.video),
        seen_from=sighting.seen_from,
        seen_until=sighting.seen_until,
        start_s=sighting.start_s,
        end_s=sighting.end_s,
        score=sighting.score,
        box=None if sighting.box is None else sighting.box.xyxy,
        shown_s=sighting.shown[0] if sighting.shown else sighting.end_s,
        shown_box=sighting.shown[1].xyxy if sighting.shown else None,
    )


def names_only(text: str) -> str:
    """Names instead of paths: where files lie is nobody's business."""
    return re.sub(r"/(?:[^\s/]+/)+", "", text)


def question_value(question: Question) -> MemoryQuestion:
    message = question.message
    for sighting in question.sightings:
        message = message.replace(str(sighting.video.path), sighting.video.path.name)
    message = names_only(message)  # also where its video was removed
    return MemoryQuestion(
        id=question.id,
        asked_at=question.asked_at,
        object_name=question.object_name,
        until=question.until,
        message=message,
        notes=_notes(question, message),
        found=question.found,
        sightings=[sighting_value(sighting) for sighting in question.sightings],
    )


def _notes(question: Question, message: str) -> str:
    """What follows the first sighting in the message; nothing once the video of that sighting was removed."""
    sightings = tuple(sighting for sighting in question.sightings if sighting.box is not None)
    if question.found and not sightings:
        return ""
    said = seen_words(sightings, question.found)
    return message[len(said) :].strip() if message.startswith(said) else ""
