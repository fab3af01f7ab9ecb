"""The application: the routes, the page, the guard before them, and one form for all errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHttpError

from egohieraloc import __version__
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.web import downloads, memory_routes, queries, videos
from egohieraloc.web.guard import Guard
from egohieraloc.web.jobs import BROKEN, BusyError, Locates
from egohieraloc.web.library import Library, UnknownIdError
from egohieraloc.web.memory_jobs import MemoryJobs
from egohieraloc.web.process import FullError
from egohieraloc.web.server import THREADS, Server
from egohieraloc.web.values import About, Error

DEFAULT_MAX_VIDEO_BYTES = 2_000_000_000
CSS, JS = "text/css", "text/javascript"
PAGE, REPORT = ("egohieraloc.web", "static"), ("egohieraloc.report", "templates")
SHARED_SCRIPTS = ("answer.js", "curve.js", "marks.js", "scene.js", "tools.js")
OWN_SCRIPTS = (
    "ask.js",
    "drawing.js",
    "kept_views.js",
    "page.js",
    "place.js",
    "requests.js",
    "rows.js",
    "viewer.js",
    "words.js",
)
MEMORY_SCRIPTS = ("library.js", "maps.js", "timeline.js", "views.js")
ASSETS = {
    "report.css": (*REPORT, CSS),
    "page.css": (*PAGE, CSS),
    **dict.fromkeys(SHARED_SCRIPTS, (*REPORT, JS)),
    "library.css": (*PAGE, CSS),
    **dict.fromkeys((*OWN_SCRIPTS, *MEMORY_SCRIPTS), (*PAGE, JS)),
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error} for code in (400, 401, 403, 404, 413, 422, 429, 507)
}


def create_app(
    folder: Path,
    make: Callable[[], Locates],
    *,
    model: str = "mini",
    host: str = "127.0.0.1",
    max_video_bytes: int = DEFAULT_MAX_VIDEO_BYTES,
    workers: int = 2,
    token: str | None = None,
    memory: tuple[Path, Callable[[], Any]] | None = None,
) -> FastAPI:
    """The application. `make` builds a Localizer; it is called in processes of its own, so it must pickle.

    token: who does not know it gets nothing; memory: folder of a memory, shown under /library, and what
    builds the Localizer that asks it.
    """
    server = Server(Library(folder), make, workers)
    jobs = None if memory is None else MemoryJobs(*memory)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        server.start()
        yield
        await run_in_threadpool(server.close)
        if jobs is not None:
            await run_in_threadpool(jobs.close)

    app = FastAPI(
        title="EgoHieraLoc",
        version=__version__,
        description="Where was this object last seen? Send a video, ask about an object, read the answer.",
        lifespan=life,
        docs_url=None,  # these would load scripts from elsewhere
        redoc_url=None,
        responses=REFUSALS,
    )
    app.state.server = server
    app.add_middleware(Guard, host=host, max_video_bytes=max_video_bytes, token=token)
    _add_errors(app, server.library)
    _add_page(app, About(version=__version__, model=model, max_video_bytes=max_video_bytes))
    app.include_router(videos.router)
    app.include_router(queries.router)
    app.include_router(downloads.router)
    if jobs is not None:
        app.state.memory = jobs
        app.include_router(memory_routes.router)
    return app


def _add_page(app: FastAPI, about: About) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _asset(*PAGE, "page.html", "text/html")

    @app.get("/library", include_in_schema=False)
    def library_page() -> Response:
        return _asset(*PAGE, "library.html", "text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in ASSETS:
            raise HTTPException(404, "There is no such file.")
        package, part, media_type = ASSETS[name]
        return _asset(package, part, name, media_type)

    @app.get("/about")
    def get_about() -> About:
        """The version, the model and the limits."""
        return about


def _asset(package: str, folder: str, name: str, media_type: str) -> Response:
    data = resources.files(package).joinpath(folder, name).read_bytes()
    return Response(data, media_type=media_type, headers={"cache-control": "no-cache"})


def _add_errors(app: FastAPI, library: Library) -> None:
    """Whatever goes wrong is answered with `{"error": "..."}`."""
    statuses = {UnknownIdError: 404, BusyError: 429, FullError: 429}

    @app.exception_handler(EgoHieraLocError)
    async def mistake(request: Request, error: EgoHieraLocError) -> JSONResponse:
        return _error(statuses.get(type(error), 422), library.without_paths(str(error)))

    @app.exception_handler(AnyHttpError)
    async def refused(request: Request, error: AnyHttpError) -> JSONResponse:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def misspelt(request: Request, error: RequestValidationError) -> JSONResponse:
        words = (f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors())
        return _error(422, "; ".join(words))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _error(500, BROKEN)


def _error(status: int, words: str) -> JSONResponse:
    return JSONResponse({"error": words}, status)
