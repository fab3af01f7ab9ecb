"""What can be asked over HTTP about queries and their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Query, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, StreamingResponse

from egohieraloc.query import parse_box
from egohieraloc.report.scene import Scene
from egohieraloc.types import Box
from egohieraloc.web import media
from egohieraloc.web.library import UnknownIdError
from egohieraloc.web.media import QuerySource
from egohieraloc.web.server import FRAME_LIMIT_S, KEEP, ThisServer
from egohieraloc.web.values import QueryEntry, QueryWithAnswer

EVENT_PAUSE_S, EVENT_SILENCE_S = 0.1, 15.0
FormSeconds = Annotated[float | None, Form(ge=0, allow_inf_nan=False)]
router = APIRouter()


@dataclass(frozen=True)
class QueryForm:
    """What comes with a query."""

    image: UploadFile | None
    time_s: float | None
    box: str | None
    until_s: float | None
    in_3d: bool
    camera_height_m: float | None


def query_form(
    image: Annotated[UploadFile | None, File(description="The object: a crop, or with box a frame.")] = None,
    time_s: FormSeconds = None,
    box: Annotated[str | None, Form(description="x,y,w,h in pixels", max_length=200)] = None,
    until_s: FormSeconds = None,
    in_3d: Annotated[bool, Form(description="Also tell where in space.")] = False,
    camera_height_m: Annotated[
        float | None, Form(gt=0, le=10, allow_inf_nan=False, description="With in_3d: for metres.")
    ] = None,
) -> QueryForm:
    return QueryForm(image, time_s, box, until_s, in_3d, camera_height_m)


@router.post("/videos/{video_id}/queries", status_code=201)
def ask(video_id: str, form: Annotated[QueryForm, Depends(query_form)], server: ThisServer) -> QueryEntry:
    """Ask where an object was last seen: give an image of it, or a moment of the video and a box.

    `until_s` is the query time: nothing after it is looked at. With `in_3d` the answer also tells
    where the object is in space, seen from the camera at the query time; the first such query about
    a video takes minutes.
    """
    library = server.library
    library.video(video_id)
    region = parse_box(form.box) if form.box else None
    with server.jobs.place(), server.checkers.place() as checker, library.incoming() as folder:
        image = received(form.image, folder)
        source = QuerySource(library.video_path(video_id), image, form.time_s, region)
        prepared: tuple[Box, float | None] = checker.run(
            media.prepare_query, folder, source, limit_s=FRAME_LIMIT_S
        )
        box, seen_at_s = prepared
        entry = QueryEntry(
            id=folder.name,
            video_id=video_id,
            created_at=time.time(),
            box=box.xyxy,
            seen_at_s=seen_at_s,
            until_s=form.until_s,
            in_3d=form.in_3d,
            camera_height_m=form.camera_height_m if form.in_3d else None,
        )
        library.add_query(folder, entry)
        server.jobs.add(entry.id)
    return entry


def received(image: UploadFile | None, folder: Path) -> Path | None:
    if image is None:
        return None
    path = folder / "given"
    path.write_bytes(image.file.read())
    return path


@router.get("/videos/{video_id}/queries")
def list_queries(video_id: str, server: ThisServer) -> list[QueryEntry]:
    """All queries about a video, the newest first."""
    server.library.video(video_id)
    return [server.jobs.seen(entry) for entry in server.library.queries(video_id)]


@router.get("/queries/{query_id}")
def get_query(query_id: str, server: ThisServer) -> QueryWithAnswer:
    """A query, how far it is and, once it is done, its answer as in result.json."""
    entry = server.jobs.seen(server.library.query(query_id))
    answer = server.library.answer(query_id) if entry.status == "done" else None
    return QueryWithAnswer(**dict(entry), answer=answer)


@router.get("/queries/{query_id}/scene")
def get_scene(
    query_id: str, server: ThisServer, candidate: Annotated[int | None, Query(ge=0, le=1000)] = None
) -> Scene:
    """What the 3D view of an answer draws, or of one of its alternatives; 404 where nothing is known."""
    server.library.query(query_id)
    scene = server.library.scene(query_id, candidate)
    if scene is None:
        raise UnknownIdError(f"Query {query_id} has no answer in space: ask with in_3d=true.")
    return scene


@router.delete("/queries/{query_id}")
def cancel_query(query_id: str, server: ThisServer, forget: bool = False) -> QueryEntry:
    """Cancel a query. One that is finished stays as it is, unless it is to be forgotten."""
    server.library.query(query_id)
    server.jobs.cancel(query_id)
    entry = server.jobs.seen(server.library.query(query_id))
    if forget:
        server.library.remove_query(query_id)
    return entry


@router.patch("/queries/{query_id}")
def name_query(query_id: str, name: Annotated[str, Form(max_length=100)], server: ThisServer) -> QueryEntry:
    """Give a query a name; an empty one takes it away."""
    shown = "".join(c for c in name if c.isprintable()).strip() or None
    return server.jobs.renamed(query_id, shown)


@router.get("/queries/{query_id}/thumbnail", response_class=FileResponse)
def get_thumbnail(query_id: str, server: ThisServer) -> FileResponse:
    """What is looked for, as a small JPEG."""
    server.library.query(query_id)
    path = server.library.query_folder(query_id) / "thumbnail.jpg"
    return FileResponse(path, media_type="image/jpeg", headers=KEEP)


@router.get(
    "/queries/{query_id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
def follow_query(query_id: str, server: ThisServer) -> StreamingResponse:
    """Server-sent events: `progress` at every change and `end` at last, each with the query."""
    server.library.query(query_id)
    events = _events(lambda: server.jobs.seen(server.library.query(query_id)))
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _events(look: Callable[[], QueryEntry]) -> AsyncIterator[str]:
    last, silent_since = None, time.monotonic()
    while True:
        try:
            entry = await run_in_threadpool(look)
        except UnknownIdError:  # removed with its video
            return
        if entry != last:
            last, silent_since = entry, time.monotonic()
            yield f"event: {'end' if entry.finished else 'progress'}\ndata: {entry.model_dump_json()}\n\n"
        elif time.monotonic() - silent_since > EVENT_SILENCE_S:
            silent_since = time.monotonic()
            yield ": still here\n\n"
        if entry.finished:
            return
        await asyncio.sleep(EVENT_PAUSE_S)
