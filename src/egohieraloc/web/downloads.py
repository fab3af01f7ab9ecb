"""What can be had besides answers: the demo video, what of a query will be searched, and files to keep."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, JSONResponse, Response

from egohieraloc import demo
from egohieraloc.errors import DataError
from egohieraloc.files import atomic_folder
from egohieraloc.progress import Progress
from egohieraloc.report.build import write_views
from egohieraloc.result import Result
from egohieraloc.result_schema import ForegroundPart
from egohieraloc.web import media
from egohieraloc.web.jobs import query_foreground
from egohieraloc.web.library import ANSWER, hide_paths
from egohieraloc.web.queries import QueryForm, query_form
from egohieraloc.web.server import FRAME_LIMIT_S, INSPECT_LIMIT_S, ThisServer
from egohieraloc.web.values import VideoEntry, VideoFacts

PREVIEW_LIMIT_S, VIEWS_LIMIT_S = 60.0, 600.0
FILES = {"report.html": "text/html", "overlay.mp4": "video/mp4", "result.json": "application/json"}
router = APIRouter()


@router.post("/demo", status_code=201)
def add_demo(server: ThisServer) -> VideoEntry:
    """Add the bundled video, a rendered walk through a room."""
    library = server.library
    with library.incoming() as folder:
        shutil.copyfile(demo.CLIP, folder / "video")
        facts: VideoFacts = server.checkers.run(
            media.inspect_video, folder / "video", limit_s=INSPECT_LIMIT_S
        )
        entry = VideoEntry(
            id=folder.name,
            name="demo: a walk through a room",
            added_at=time.time(),
            size_bytes=demo.CLIP.stat().st_size,
            **dict(facts),
        )
        library.add_video(folder, entry)
    return entry


@router.post("/videos/{video_id}/foreground")
def preview(
    video_id: str, form: Annotated[QueryForm, Depends(query_form)], server: ThisServer
) -> ForegroundPart:
    """What of a query's first view will be searched, before it is asked: a form as of
    `POST /videos/{id}/queries`."""
    server.library.video(video_id)
    with server.library.incoming() as folder:
        sources = form.received(server.library.video_path(video_id), folder)[:1]
        views = server.checkers.run(media.prepare_query, folder, sources, limit_s=FRAME_LIMIT_S)
        query = media.read_query(folder, views)
        found: ForegroundPart = server.previewer.run(query_foreground, query, limit_s=PREVIEW_LIMIT_S)
    return found


@router.get(
    "/queries/{query_id}/files/{name}",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in FILES.values()}}},
)
def get_file(
    query_id: str, name: Literal["report.html", "overlay.mp4", "result.json"], server: ThisServer
) -> Response:
    """A file of an answer to keep. Report and overlay are made when they are first wanted."""
    library = server.library
    entry = library.query(query_id)
    answer = library.answer(query_id) if entry.status == "done" else None
    if answer is None:
        raise DataError(f"Query {query_id} has no answer yet.")
    if name == "overlay.mp4" and not entry.found:
        raise DataError("There is no overlay.mp4: nothing was found that could be drawn.")
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-cache"}
    if name == "result.json":
        return JSONResponse(answer.model_dump(mode="json"), headers=headers)
    views = library.query_folder(query_id) / "views"
    if not (views / "report.html").exists():
        shown = library.video(entry.video_id).name
        server.readers.run(
            make_views, library.query_folder(query_id) / ANSWER, views, shown, limit_s=VIEWS_LIMIT_S
        )
    return FileResponse(views / name, media_type=FILES[name], headers=headers)


def make_views(tool: None, progress: Progress, answer: Path, folder: Path, video_name: str) -> None:
    """Write report.html and overlay.mp4 of a stored answer; the report names the video, not its path."""
    result = Result.load(answer)
    with atomic_folder(folder) as temporary:
        write_views(result, temporary)
        page = temporary / "report.html"
        stored, name = (json.dumps(text) for text in (Path(result.video.source.path).name, video_name))
        safe = name.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        text = page.read_text(encoding="utf-8").replace(f'"path":{stored}', f'"path":{safe}')
        page.write_text(hide_paths(text, folder.parents[2]), encoding="utf-8")  # such as that of a log
