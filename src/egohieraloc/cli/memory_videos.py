"""`egohieraloc memory add`, `list` and `remove`: the videos of a memory."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egohieraloc.cli import common
from egohieraloc.cli.memory_folder import DEFAULT_FOLDER, Folder, Json, Zone, open_memory, zone_of
from egohieraloc.errors import ConfigError, VideoError
from egohieraloc.memory.catalogue import FILE, RECORDINGS
from egohieraloc.progress import progress_bars
from egohieraloc.video.folder import ENDINGS
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.memory.library import Memory
    from egohieraloc.memory.values import VideoEntry

VIDEO_ENDINGS = {
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ts",
    ".vrs", ".webm", ".wmv",
}  # fmt: skip


def add(
    videos: Annotated[
        list[Path],
        typer.Argument(metavar="VIDEO", help="Video files, folders of videos, or folders of images."),
    ],
    *,
    memory: Folder = DEFAULT_FOLDER,
    start: Annotated[
        str | None, typer.Option(help="When the video began, such as 2026-03-12T10:15:30; for one video.")
    ] = None,
    zone: Zone = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to read them on; 'local' starts one.")
    ] = None,
    folder_fps: common.FolderFps = 5.0,
    system: common.SystemOptions,
) -> None:
    """Add videos; those that are known are skipped, and one that was stopped goes on."""
    from egohieraloc.memory.wall_clock import parse_time

    found = list(_videos_in(videos))
    given = None if start is None else parse_time(start, zone_of(zone))
    if given is not None and len(found) != 1:
        raise ConfigError(f"--start is for one video, got {len(found)}. Add them one by one.")
    opened = open_memory(memory, system, create=True)
    if ray is not None:
        readable = [video for video in map(partial(_opened, folder_fps), found) if video is not None]
        _read_on_ray(opened, readable, system, ray, start=given, zone=zone_of(zone))
    failed = 0
    for path in found:
        try:
            video = Video.open(path, folder_fps=folder_fps)
            known = opened.knows(video)
            with progress_bars() as progress:
                entry = opened.add(video, start=given, zone=zone_of(zone), progress=progress)
        except VideoError as error:
            failed += 1
            typer.echo(f"Not added: {error}", err=True)
            continue
        print(f"{'Known' if known is not None and known.ready else 'Added'}: {_line(entry)}", flush=True)
    if failed:
        raise typer.Exit(1)


def list_videos(memory: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """List the videos by when they began."""
    from egohieraloc.memory.shelf import Shelf

    entries = Shelf(memory, create=False).list()
    if json:
        print(json_module.dumps([_row(entry) for entry in entries]))
        return
    for entry in entries:
        print(_line(entry))
    if not entries:
        print(f"No video is in it. Add some: `egohieraloc memory add VIDEO --memory {memory}`.")


def remove(
    videos: Annotated[list[str], typer.Argument(metavar="VIDEO", help="Videos by id, path or name.")],
    memory: Folder = DEFAULT_FOLDER,
) -> None:
    """Forget videos and what they answered. Your own files stay; recordings of a camera are deleted."""
    from egohieraloc.memory.shelf import Shelf

    opened = Shelf(memory, create=False)
    found = [opened.find(video) for video in videos]  # all of them, before the first is removed
    for entry in {each.id: each for each in found}.values():
        opened.remove(entry)
        print(f"Removed {entry.path.name}.")


def _read_on_ray(
    opened: Memory, videos: Sequence[Video], given: common.SystemOptions, address: str, **times: Any
) -> None:
    """Workers run the engine that runs here: features of another one are other features."""
    from egohieraloc.memory.cluster import System, read_on_ray

    predictor, rate = opened.localizer.predictor, opened.localizer.config.search.fps
    model = str(Path(given.model).resolve()) if Path(given.model).is_file() else given.model
    device = "cpu" if predictor.engine == "openvino" else given.device
    system = System(model, device, predictor.engine, rate, tuple(given.settings or ()), opened.cache)
    with progress_bars() as progress:
        read_on_ray(opened, videos, system, address, progress=progress, **times)


def _videos_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Files, folders of images, and the videos of other folders however deep, in the order of their names.
    An answer that was saved among them is no video: its overlay would answer later questions. Nor is what a
    camera recorded into a memory."""
    for path in paths:
        others = {file.parent for file in path.rglob("result.json")}
        others |= {file.parent / RECORDINGS for file in path.rglob(FILE)}
        inside = sorted(file for file in path.rglob("*") if others.isdisjoint(file.parents))
        videos = [p for p in inside if p.suffix.lower() in VIDEO_ENDINGS and p.is_file()]
        if path.is_dir() and not videos and not any(p.suffix.lower() in ENDINGS for p in inside):
            raise VideoError(f"The folder {path} holds neither videos nor images.")
        yield from videos or [path]


def _opened(folder_fps: float, path: Path) -> Video | None:
    """The video, or None where it cannot be read: adding it says why."""
    try:
        return Video.open(path, folder_fps=folder_fps)
    except VideoError:
        return None


def _line(entry: VideoEntry) -> str:
    notes = [] if entry.start.origin in ("given", "file name") else [f"time from the {entry.start.origin}"]
    notes += [] if entry.ready else ["not complete: add it again"]
    notes += {"gone": ["the file is gone"], "replaced": ["the file is another one now"]}.get(entry.state, [])
    note = f" ({', '.join(notes)})" if notes else ""
    minutes, seconds = divmod(round(entry.duration_s), 60)
    return f"{entry.id}  {entry.start.time:%Y-%m-%d %H:%M:%S}  {minutes:3d}:{seconds:02d}  {entry.path}{note}"


def _row(entry: VideoEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "path": str(entry.path),
        "start": entry.start.time.isoformat(),
        "start_origin": entry.start.origin,
        "duration_s": entry.duration_s,
        "camera": entry.camera,
        "ready": entry.ready,
        "exists": entry.exists,
    }
