"""What can be asked over HTTP about videos and questions."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, File, Form, HTTPException, Query, Request, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response, StreamingResponse

from egohieraloc.query import parse_box
from egohieraloc.web import media
from egohieraloc.web.jobs import Jobs, Locates
from egohieraloc.web.library import Library, UnknownIdError
from egohieraloc.web.process import OwnProcess
from egohieraloc.web.values import QueryEntry, QueryWithAnswer, VideoEntry

INSPECT_LIMIT_S, FRAME_LIMIT_S = 300.0, 30.0
EVENT_PAUSE_S, EVENT_SILENCE_S = 0.1, 15.0
KEEP = {"cache-control": "private, max-age=86400, immutable"}
Seconds = Annotated[float, Query(ge=0, allow_inf_nan=False)]
FormSeconds = Annotated[float | None, Form(ge=0, allow_inf_nan=False)]


class Server:
    """What the routes share. `checker` opens what is new; `reader` gives frames of what was checked."""

    def __init__(self, library: Library, make: Callable[[], Locates], workers: int) -> None:
        self.library = library
        self._make, self._workers = make, workers
        self.checker, self.reader = OwnProcess(), OwnProcess()
        self.jobs: Jobs

    def start(self) -> None:
        self.jobs = Jobs(self.library, self._make, workers=self._workers)

    def close(self) -> None:
        self.jobs.close()
        self.checker.close()
        self.reader.close()

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A folder to receive into; it is gone afterwards unless it became part of the library."""
        folder = self.library.incoming()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def add_video_routes(app: FastAPI, server: Server) -> None:
    library, jobs = server.library, lambda: server.jobs

    @app.post(
        "/videos",
        status_code=201,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def add_video(
        request: Request, name: Annotated[str, Query(max_length=1000)] = "video"
    ) -> VideoEntry:
        """Send a video: the body is the file itself. It is opened before it is taken."""
        claim = int(request.headers.get("content-length", 0))
        if claim > shutil.disk_usage(library.folder).free:
            raise HTTPException(507, "There is not enough room on the disk for this video.")
        with server.incoming() as folder:
            path = folder / "video"
            with path.open("wb") as file:
                async for chunk in request.stream():
                    await run_in_threadpool(file.write, chunk)
            facts = await run_in_threadpool(
                server.checker.run, media.inspect_video, path, limit_s=INSPECT_LIMIT_S
            )
            size = path.stat().st_size
            entry = VideoEntry(
                id=folder.name, name=_shown_name(name), added_at=time.time(), size_bytes=size, **facts
            )
            library.add_video(folder, entry)
        return entry

    @app.get("/videos")
    def list_videos() -> list[VideoEntry]:
        """All videos, the newest first."""
        return library.videos()

    @app.get("/videos/{video_id}")
    def get_video(video_id: str) -> VideoEntry:
        """What is known of a video."""
        return library.video(video_id)

    @app.delete("/videos/{video_id}", status_code=204)
    def remove_video(video_id: str) -> None:
        """Forget a video and all questions about it."""
        library.video(video_id)
        for query in library.queries(video_id):
            jobs().cancel(query.id)
        library.remove_video(video_id)

    @app.get("/videos/{video_id}/file", response_class=FileResponse)
    def get_file(video_id: str) -> FileResponse:
        """The file, whole or by ranges of bytes."""
        entry = library.video(video_id)
        return FileResponse(library.video_path(video_id), media_type=entry.media_type, headers=KEEP)

    @app.get(
        "/videos/{video_id}/frame",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}},
    )
    def get_frame(video_id: str, time_s: Seconds) -> Response:
        """The frame shown at a time, as JPEG of at most 1280 pixels' width."""
        library.video(video_id)
        path = library.video_path(video_id)
        jpeg = server.reader.run(media.frame_jpeg, path, time_s, limit_s=FRAME_LIMIT_S)
        return Response(jpeg, media_type="image/jpeg", headers=KEEP)


def add_query_routes(app: FastAPI, server: Server) -> None:
    library, jobs = server.library, lambda: server.jobs

    @app.post("/videos/{video_id}/queries", status_code=201)
    def ask(
        video_id: str,
        image: Annotated[
            UploadFile | None, File(description="The object: a crop, or with box a frame.")
        ] = None,
        time_s: FormSeconds = None,
        box: Annotated[str | None, Form(description="x,y,w,h in pixels", max_length=200)] = None,
        until_s: FormSeconds = None,
        in_3d: Annotated[bool, Form(description="Also tell where in space.")] = False,
    ) -> QueryEntry:
        """Ask where an object was last seen: give an image of it, or a moment of the video and a box.

        `until_s` is the query time: nothing after it is looked at. With `in_3d` the answer also tells
        where the object is in space, seen from the camera at the query time; the first such question about
        a video takes minutes.
        """
        library.video(video_id)
        jobs().check_room()
        region = parse_box(box) if box else None
        with server.incoming() as folder:
            given = None
            if image is not None:
                given = folder / "given"
                given.write_bytes(image.file.read())
            placed, seen_at_s = server.checker.run(
                media.prepare_query,
                folder,
                library.video_path(video_id),
                time_s,
                region,
                given,
                limit_s=FRAME_LIMIT_S,
            )
            entry = QueryEntry(
                id=folder.name,
                video_id=video_id,
                created_at=time.time(),
                box=placed.xyxy,
                seen_at_s=seen_at_s,
                until_s=until_s,
                in_3d=in_3d,
            )
            library.add_query(folder, entry)
        jobs().add(entry.id)
        return entry

    @app.get("/videos/{video_id}/queries")
    def list_queries(video_id: str) -> list[QueryEntry]:
        """All questions about a video, the newest first."""
        library.video(video_id)
        return [jobs().seen(entry) for entry in library.queries(video_id)]

    @app.get("/queries/{query_id}")
    def get_query(query_id: str) -> QueryWithAnswer:
        """A question, how far it is and, once it is done, its answer."""
        entry = jobs().seen(library.query(query_id))
        answer = library.answer(query_id) if entry.status == "done" else None
        return QueryWithAnswer(**dict(entry), answer=answer)

    @app.delete("/queries/{query_id}")
    def cancel_query(query_id: str) -> QueryEntry:
        """Cancel a question. One that is finished stays as it is."""
        library.query(query_id)
        jobs().cancel(query_id)
        return jobs().seen(library.query(query_id))

    @app.get("/queries/{query_id}/thumbnail", response_class=FileResponse)
    def get_thumbnail(query_id: str) -> FileResponse:
        """What is looked for, as a small JPEG."""
        library.query(query_id)
        path = library.query_folder(query_id) / "thumbnail.jpg"
        return FileResponse(path, media_type="image/jpeg", headers=KEEP)

    @app.get(
        "/queries/{query_id}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    def follow_query(query_id: str) -> StreamingResponse:
        """Server-sent events: `progress` at every change and `end` at last, each with the question."""
        library.query(query_id)
        events = _events(lambda: jobs().seen(library.query(query_id)))
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"cache-control": "no-store"}
        )


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


def _shown_name(name: str) -> str:
    """The last part of a file name, for people to read."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:200] or "video"
