"""What can be asked over HTTP about a memory: its videos, saved objects, questions over all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, HTTPException, Query, Request, UploadFile
from fastapi.responses import JSONResponse, Response

from egohieraloc import query as queries
from egohieraloc.errors import QueryError
from egohieraloc.memory.places import last_places
from egohieraloc.memory.thumbnails import to_jpeg
from egohieraloc.memory.values import VideoEntry
from egohieraloc.memory.wall_clock import parse_time
from egohieraloc.report.map_page import map_scene
from egohieraloc.report.object_map import object_maps
from egohieraloc.types import NotLocalized
from egohieraloc.web.downloads import FILES, VIEWS_LIMIT_S
from egohieraloc.web.library import UnknownIdError
from egohieraloc.web.memory_jobs import MemoryJobs, make_report, read_views
from egohieraloc.web.memory_values import (
    MemoryAsk,
    MemoryMap,
    MemoryObject,
    MemoryQuestion,
    MemoryVideo,
    names_only,
    question_value,
    video_value,
)
from egohieraloc.web.server import FRAME_LIMIT_S, ThisServer

JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}
THUMBNAIL_PX = 192
Images = Annotated[
    list[UploadFile], File(description="Images of the object: crops, or with boxes whole photographs.")
]
Boxes = Annotated[
    list[str], Form(description="x,y,w,h in pixels: one for each image, or an empty text for all of it.")
]
router = APIRouter(prefix="/memory")


def _jobs_of(request: Request) -> MemoryJobs:
    jobs: MemoryJobs = request.app.state.memory
    return jobs


ThisMemory = Annotated[MemoryJobs, Depends(_jobs_of)]


@router.get("/videos")
def list_videos(memory: ThisMemory) -> list[MemoryVideo]:
    """All videos, by when they begin."""
    return [video_value(entry) for entry in memory.shelf.list()]


@router.delete("/videos/{video_id}", status_code=204)
def remove_video(video_id: str, memory: ThisMemory) -> None:
    """Forget a video and what it answered. A recording of a camera is deleted, any other file stays."""
    memory.shelf.remove(_entry(memory, video_id))


@router.get("/videos/{video_id}/thumbnail", response_class=Response, responses=JPEG)
def get_thumbnail(
    video_id: str, memory: ThisMemory, time_s: Annotated[float, Query(allow_inf_nan=False)] = 0.0
) -> Response:
    """A small image of a moment, also where the video itself is gone."""
    jpeg = memory.shelf.thumbnail(video_id, time_s)
    if jpeg is None:
        raise UnknownIdError("There is no image of this video in the memory.")
    return Response(jpeg, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


@router.get("/objects")
def list_objects(memory: ThisMemory) -> list[MemoryObject]:
    """The saved objects, by name."""
    return [
        MemoryObject(name=entry.name, views=entry.num_views, last_seen=entry.last_seen)
        for entry in memory.shelf.objects
    ]


@router.post("/objects", status_code=201)
def save_object(
    name: Annotated[str, Form(max_length=200)],
    images: Images,
    memory: ThisMemory,
    server: ThisServer,
    boxes: Boxes = [],  # noqa: B006
) -> MemoryObject:
    """Save an object under a name, or add images to it."""
    memory.shelf.objects.save(name, _views(server, images, boxes))
    wanted = " ".join(name.split()).casefold()
    return next(o for o in list_objects(memory) if o.name.casefold() == wanted)


@router.delete("/objects/{name:path}", status_code=204)
def remove_object(name: str, memory: ThisMemory) -> None:
    """Forget an object and its images."""
    _known_object(memory, name)
    memory.shelf.objects.remove(name)


@router.get("/objects/{name:path}/thumbnail", response_class=Response, responses=JPEG)
def get_object_thumbnail(name: str, memory: ThisMemory) -> Response:
    """The first image of an object."""
    _known_object(memory, name)
    return _shown(memory.shelf.objects[name])


@router.get("/maps")
def list_maps(memory: ThisMemory) -> list[MemoryMap]:
    """Where the saved objects were last, as far as they were asked with in_3d: one map for each video."""
    known = last_places(memory.shelf)
    maps = object_maps(known.results, known.missing, known.last_seen)
    return [
        MemoryMap(video=video_value(memory.shelf.find(path)), scene=map_scene(mapped))
        for path, mapped in maps.items()
    ]


@router.post("/questions", status_code=201)
def ask(
    memory: ThisMemory,
    server: ThisServer,
    images: Images = [],  # noqa: B006
    boxes: Boxes = [],  # noqa: B006
    object_name: Annotated[str | None, Form(max_length=200)] = None,
    until: Annotated[str | None, Form(max_length=100, description="Date and time; nothing after it.")] = None,
    videos: Annotated[str | None, Form(max_length=100_000, description="Ids, by commas; else all.")] = None,
    in_3d: Annotated[bool, Form(description="Also tell where in space.")] = False,
) -> MemoryAsk:
    """Ask where an object was last seen in all videos or some: a saved one, or one that images show."""
    if object_name is not None:
        _known_object(memory, object_name)
    elif not images:
        raise QueryError("Say what to look for: images, or object_name.")
    sought = object_name if object_name is not None else _views(server, images, boxes)
    chosen = [_entry(memory, part).id for part in videos.split(",")] if videos else None
    return memory.ask(sought, parse_time(until) if until else None, chosen, in_3d=in_3d)


@router.get("/asks")
def list_asks(memory: ThisMemory) -> list[MemoryAsk]:
    """The questions that wait or are being answered, the oldest first."""
    return memory.on_their_way()


@router.get("/asks/{ask_id}")
def get_ask(ask_id: str, memory: ThisMemory) -> MemoryAsk:
    """How far a question is."""
    return _known_ask(memory.get(ask_id), ask_id)


@router.delete("/asks/{ask_id}")
def cancel_ask(ask_id: str, memory: ThisMemory) -> MemoryAsk:
    """Cancel a question. One that is answered stays as it is."""
    return _known_ask(memory.cancel(ask_id), ask_id)


@router.get("/questions")
def list_questions(memory: ThisMemory) -> list[MemoryQuestion]:
    """All questions that were answered, the newest first."""
    return [question_value(question) for question in memory.shelf.questions.all()]


@router.delete("/questions/{number}", status_code=204)
def remove_question(number: int, memory: ThisMemory) -> None:
    """Forget a question and its answer."""
    _known_question(memory, number)
    memory.shelf.questions.remove(number)


@router.get("/questions/{number}/thumbnail", response_class=Response, responses=JPEG)
def get_question_thumbnail(number: int, memory: ThisMemory) -> Response:
    """What a question looked for."""
    _known_question(memory, number)
    return Response(memory.shelf.questions.thumbnail(number), media_type="image/jpeg")


@router.get(
    "/questions/{number}/files/{name}",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in ("text/html", "application/json")}}},
)
def get_file(
    number: int, name: Literal["report.html", "result.json"], memory: ThisMemory, server: ThisServer
) -> Response:
    """The whole answer to keep. The report is made anew, with images where the video is there."""
    _known_question(memory, number)
    result = memory.shelf.questions.result(number)
    for sighting in memory.shelf.questions.get(number).sightings[:1]:
        if sighting.box is not None:  # its video answered; where its file is now, and when it began
            source = replace(sighting.video.source, start=sighting.video.start.time)
            result = replace(result, video=replace(result.video, source=source))
    if isinstance(result.place, NotLocalized):
        result = replace(result, place=replace(result.place, reason=names_only(result.place.reason)))
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-cache"}
    if name == "report.html":
        page: str = server.readers.run(make_report, result, limit_s=VIEWS_LIMIT_S)
        return Response(page, media_type=FILES[name], headers=headers)
    document = result.to_dict()
    document["video"]["path"] = Path(result.video.source.path).name
    return JSONResponse(document, headers=headers)


def _views(server: ThisServer, images: list[UploadFile], boxes: list[str]) -> queries.Query:
    if len(images) > queries.MAX_VIEWS:
        raise HTTPException(422, f"At most {queries.MAX_VIEWS} images are taken.")
    if boxes and len(boxes) != len(images):
        raise QueryError(f"Wanted a box for each image, got {len(boxes)} for {len(images)}.")
    regions = [queries.parse_box(box) if box else None for box in boxes] or [None] * len(images)
    read: queries.Query = server.checkers.run(
        read_views, [image.file.read() for image in images], regions, limit_s=FRAME_LIMIT_S
    )
    return read


def _shown(query: queries.Query) -> Response:
    return Response(
        to_jpeg(query.crop, THUMBNAIL_PX), media_type="image/jpeg", headers={"cache-control": "no-cache"}
    )


def _entry(memory: MemoryJobs, video_id: str) -> VideoEntry:
    if memory.shelf.catalogue.row("SELECT 1 FROM videos WHERE id = ?", video_id) is None:
        raise UnknownIdError(f"There is no video {video_id} here. GET /memory/videos lists them.")
    return memory.shelf.videos.get(video_id)


def _known_ask(found: MemoryAsk | None, ask_id: str) -> MemoryAsk:
    if found is None:
        raise UnknownIdError(f"There is no question {ask_id} on its way. GET /memory/asks lists them.")
    return found


def _known_object(memory: MemoryJobs, name: str) -> None:
    if " ".join(name.split()) not in memory.shelf.objects:
        raise UnknownIdError(f"No object is saved as '{name}'. GET /memory/objects lists them.")


def _known_question(memory: MemoryJobs, number: int) -> None:
    if memory.shelf.catalogue.row("SELECT 1 FROM questions WHERE id = ?", number) is None:
        raise UnknownIdError(f"There is no question {number} here. GET /memory/questions lists them.")
