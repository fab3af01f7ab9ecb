"""What can be asked over HTTP about queries and their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Query, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import Field

from egohieraloc.errors import QueryError
from egohieraloc.query import MAX_VIEWS, parse_box
from egohieraloc.report.scene import Scene
from egohieraloc.web import media
from egohieraloc.web.library import UnknownIdError
from egohieraloc.web.media import VIEW, QuerySource
from egohieraloc.web.server import FRAME_LIMIT_S, KEEP, ThisServer
from egohieraloc.web.values import QueryEntry, QueryWithAnswer

EVENT_PAUSE_S, EVENT_SILENCE_S = 0.1, 15.0
FormSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
router = APIRouter()


@dataclass(frozen=True)
class QueryForm:
    """What comes with a query."""

    image: Sequence[UploadFile]
    time_s: Sequence[float]
    box: Sequence[str]
    until_s: float | None
    in_3d: bool
    camera_height_m: float | None

    def received(self, video: Path, folder: Path) -> list[QuerySource]:
        """The views of the object, images first; their files are written into the folder."""
        count = len(self.image) + len(self.time_s)
        if not 0 < count <= MAX_VIEWS:
            raise QueryError(f"Say what to look for: {VIEW}; of one object at most {MAX_VIEWS} views.")
        boxes = [parse_box(box) if box else None for box in self.box] or [None] * count
        if len(boxes) != count:
            raise QueryError(
                f"Wanted a box for each of the {count} views, images first, got {len(boxes)}. "
                "An empty one stands for a whole image."
            )
        files = [folder / f"given-{number}" for number in range(len(self.image))]
        for path, image in zip(files, self.image, strict=True):
            path.write_bytes(image.file.read())
        images: list[tuple[Path | None, float | None]] = [(path, None) for path in files]
        views = images + [(None, time_s) for time_s in self.time_s]
        return [QuerySource(video, *view, box) for view, box in zip(views, boxes, strict=True)]


def query_form(
    image: Annotated[
        list[UploadFile], File(description="The object: a crop, or with box a frame. Repeat it for others.")
    ] = [],  # noqa: B006
    time_s: Annotated[
        list[FormSeconds], Form(description="Moments of the video that show it, each with a box.")
    ] = [],  # noqa: B006
    box: Annotated[
        list[Annotated[str, Field(max_length=200)]],
        Form(description="x,y,w,h in pixels, for each image and then each moment; empty: a whole image."),
    ] = [],  # noqa: B006
    until_s: Annotated[float | None, Form(ge=0, allow_inf_nan=False)] = None,
    in_3d: Annotated[bool, Form(description="Also tell where in space.")] = False,
    camera_height_m: Annotated[
        float | None, Form(gt=0, le=10, allow_inf_nan=False, description="With in_3d: for metres.")
    ] = None,
) -> QueryForm:
    return QueryForm(image, time_s, box, until_s, in_3d, camera_height_m)


@router.post("/videos/{video_id}/queries", status_code=201)
def ask(video_id: str, form: Annotated[QueryForm, Depends(query_form)], server: ThisServer) -> QueryEntry:
    """Ask where an object was last seen: give images of it, or moments of the video and a box in each.

    `until_s` is the query time: nothing after it is looked at. With `in_3d` the answer also tells
    where the object is in space, seen from the camera at the query time; the first such query about
    a video takes minutes.
    """
    library = server.library
    library.video(video_id)
    with server.jobs.place(), server.checkers.place() as checker, library.incoming() as folder:
        sources = form.received(library.video_path(video_id), folder)
        first, *others = checker.run(media.prepare_query, folder, sources, limit_s=FRAME_LIMIT_S)
        entry = QueryEntry(
            id=folder.name,
            video_id=video_id,
            created_at=time.time(),
            box=first.box,
            seen_at_s=first.seen_at_s,
            others=others,
            until_s=form.until_s,
            in_3d=form.in_3d,
            camera_height_m=form.camera_height_m if form.in_3d else None,
        )
        library.add_query(folder, entry)
        server.jobs.add(entry.id)
    return entry


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
