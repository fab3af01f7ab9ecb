"""What can be asked over HTTP about videos."""

from __future__ import annotations

import shutil
import time
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response

from egohieraloc.web import media
from egohieraloc.web.server import FRAME_LIMIT_S, INSPECT_LIMIT_S, KEEP, ThisServer
from egohieraloc.web.values import VideoEntry, VideoFacts

Seconds = Annotated[float, Query(ge=0, allow_inf_nan=False)]
FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
router = APIRouter()


@router.post("/videos", status_code=201, openapi_extra=FILE_BODY)
async def add_video(
    request: Request, server: ThisServer, name: Annotated[str, Query(max_length=1000)] = "video"
) -> VideoEntry:
    """Send a video: the body is the file itself. It is opened before it is taken."""
    library = server.library
    claim = int(request.headers.get("content-length", 0))
    if claim > shutil.disk_usage(library.folder).free:
        raise HTTPException(507, "There is not enough room on the disk for this video.")
    with library.incoming() as folder:
        path = folder / "video"
        with path.open("wb") as file:
            async for chunk in request.stream():
                await run_in_threadpool(file.write, chunk)
        facts: VideoFacts = await run_in_threadpool(
            server.checkers.run, media.inspect_video, path, limit_s=INSPECT_LIMIT_S
        )
        entry = VideoEntry(
            id=folder.name,
            name=_shown_name(name),
            added_at=time.time(),
            size_bytes=path.stat().st_size,
            **dict(facts),
        )
        await run_in_threadpool(library.add_video, folder, entry)
    return entry


@router.get("/videos")
def list_videos(server: ThisServer) -> list[VideoEntry]:
    """All videos, the newest first."""
    return server.library.videos()


@router.get("/videos/{video_id}")
def get_video(video_id: str, server: ThisServer) -> VideoEntry:
    """What is known of a video."""
    return server.library.video(video_id)


@router.delete("/videos/{video_id}", status_code=204)
def remove_video(video_id: str, server: ThisServer) -> None:
    """Forget a video and all queries about it."""
    server.library.video(video_id)
    for query in server.library.queries(video_id):
        server.jobs.cancel(query.id)
    server.library.remove_video(video_id)


@router.get("/videos/{video_id}/file", response_class=FileResponse)
def get_file(video_id: str, server: ThisServer) -> FileResponse:
    """The file, whole or by ranges of bytes."""
    entry = server.library.video(video_id)
    return FileResponse(server.library.video_path(video_id), media_type=entry.media_type, headers=KEEP)


@router.get(
    "/videos/{video_id}/frame",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}},
)
def get_frame(video_id: str, time_s: Seconds, server: ThisServer) -> Response:
    """The frame shown at a time, as JPEG of at most 1280 pixels' width."""
    server.library.video(video_id)
    path = server.library.video_path(video_id)
    jpeg = server.readers.run(media.frame_jpeg, path, time_s, limit_s=FRAME_LIMIT_S)
    return Response(jpeg, media_type="image/jpeg", headers=KEEP)


def _shown_name(name: str) -> str:
    """The last part of a file name, for people to read."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:200] or "video"
