"""`egohieraloc memory`: a library of videos, asked as one."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from egohieraloc.cli import common
from egohieraloc.cli import space_options as space
from egohieraloc.errors import ConfigError, DataError, QueryError, VideoError
from egohieraloc.geometry.given import gaps
from egohieraloc.progress import progress_bars
from egohieraloc.video.folder import ENDINGS
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer, SpaceSources
    from egohieraloc.memory.library import Memory
    from egohieraloc.memory.values import VideoEntry

app = typer.Typer(help="Keep a library of videos and ask where an object was last seen in all of them.")
VIDEO_ENDINGS = {
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ts",
    ".vrs", ".webm", ".wmv",
}  # fmt: skip
Folder = Annotated[
    Path, typer.Option("--memory", envvar="EGOHIERALOC_MEMORY", help="Folder that holds the memory.")
]
DEFAULT_FOLDER = Path("egohieraloc_memory")
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Zone = Annotated[
    str | None,
    typer.Option(help="Time zone of times without one, such as Europe/Berlin; else this machine's."),
]


@app.command()
def add(
    videos: Annotated[
        list[Path], typer.Argument(help="Video files, folders of videos, or folders of images.")
    ],
    memory: Folder = DEFAULT_FOLDER,
    start: Annotated[
        str | None, typer.Option(help="When the video began, such as 2026-03-12T10:15:30; for one video.")
    ] = None,
    zone: Zone = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to read them on; 'local' starts one.")
    ] = None,
    model: common.Model = "mini",
    device: common.Device = None,
    fps: common.Fps = "5",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
) -> None:
    """Add videos; those that are known are skipped, and one that was stopped goes on."""
    from egohieraloc.memory.wall_clock import parse_time

    found = list(_videos_in(videos))
    given = None if start is None else parse_time(start, _zone(zone))
    if given is not None and len(found) != 1:
        raise ConfigError(f"--start is for one video, got {len(found)}. Add them one by one.")
    opened = open_memory(memory, model, device, fps, settings, create=True)
    if ray is not None:
        from egohieraloc.memory.cluster import System, read_on_ray

        chosen = str(Path(model).resolve()) if Path(model).is_file() else model
        rate = opened.localizer.config.search.fps
        system = System(chosen, device, rate, tuple(settings or ()), opened.cache)
        readable = [video for video in map(partial(_opened, folder_fps), found) if video is not None]
        with progress_bars() as progress:
            read_on_ray(opened, readable, system, ray, progress=progress)
    failed = 0
    for path in found:
        try:
            video = Video.open(path, folder_fps=folder_fps)
            known = opened.knows(video)
            with progress_bars() as progress:
                entry = opened.add(video, start=given, zone=_zone(zone), progress=progress)
        except VideoError as error:
            failed += 1
            typer.echo(f"Not added: {error}", err=True)
            continue
        print(f"{'Known' if known is not None and known.ready else 'Added'}: {_line(entry)}", flush=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def ask(
    memory: Folder = DEFAULT_FOLDER,
    query: common.QueryImages = None,
    box: common.QueryBoxes = None,
    query_mask: common.QueryMasks = None,
    from_video: Annotated[
        str | None, typer.Option("--from", help="Take the query from this video, with --at and --box.")
    ] = None,
    at: common.Moments = None,
    name: Annotated[str | None, typer.Option("--object", help="Ask for a saved object by its name.")] = None,
    until: Annotated[str | None, typer.Option(help="Only what was before this date and time.")] = None,
    video: Annotated[
        list[str] | None, typer.Option(help="Ask only this video, by id, path or name. Repeatable.")
    ] = None,
    others: Annotated[
        int, typer.Option(min=0, help="Further videos to ask for earlier sightings, once it was found.")
    ] = 3,
    zone: Zone = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for result.json, report.html, overlay.mp4, masks.")
    ] = None,
    in_3d: Annotated[bool, typer.Option("--3d", help="Also say where it is in space.")] = False,
    cameras: space.Cameras = None,
    intrinsics: space.Intrinsics = None,
    time_offset: space.TimeOffset = None,
    cameras_unit: space.CamerasUnit = None,
    depth: space.Depth = None,
    depth_model: space.DepthModel = None,
    positions: space.Positions = None,
    posed_images: space.Posed = None,
    known_length: space.Length = None,
    camera_height: space.Height = None,
    json: Json = False,
    model: common.Model = "mini",
    device: common.Device = None,
    fps: common.Fps = "5",
    settings: common.Settings = None,
) -> None:
    """Find the last appearance of an object in all videos."""
    from egohieraloc.memory.wall_clock import parse_time
    from egohieraloc.report.build import save_report

    opened = open_memory(memory, model, device, fps, settings)
    options = common.QueryOptions(query or (), box or (), at or (), query_mask or ())
    if name is not None and (options.files or box or at):
        raise QueryError("Give --object or --query, not both.")
    source = None if from_video is None else Video.reopen(opened.find(from_video).source)
    moment = None if until is None else parse_time(until, _zone(zone))
    given = space.SpaceOptions(
        cameras, intrinsics, time_offset, cameras_unit, depth, depth_model,
        positions, posed_images, known_length, camera_height,
    )  # fmt: skip
    sources = _sources(given, opened, video, in_3d=in_3d, device=device)
    with progress_bars(enabled=not json) as progress:
        sought = name if name is not None else options.read(source)
        answer = opened.ask(
            sought, until=moment, videos=video, others=others, in_3d=in_3d, space=sources, progress=progress
        )
    if sources is None and answer.result is not None and answer.result.cameras is not None:
        typer.echo(f"{answer.result.video.source.path}: {gaps(answer.result.cameras)}.", err=True)
    if answer.result is None and (json or out):
        raise DataError(
            f"The memory {memory} holds no video to ask. Add some: `egohieraloc memory add VIDEO`."
        )
    if answer.result is not None and out is not None:
        save_report(answer.result, out)
    if json and answer.result is not None:
        print(json_module.dumps(answer.result.to_dict(), allow_nan=False))
        return
    print(answer.summary)
    for other in answer.sightings[1:]:
        first = other.seen_from
        print(f"  also {first:%Y-%m-%d %H:%M:%S} in {other.video.path.name}, confidence {other.score:.2f}")
    if out is not None:
        print(f"Results are in {out}.")


@app.command()
def objects(
    memory: Folder = DEFAULT_FOLDER,
    save: Annotated[
        str | None, typer.Option(help="Save an object under this name, or add images to it: with --query.")
    ] = None,
    query: common.QueryImages = None,
    box: common.QueryBoxes = None,
    query_mask: common.QueryMasks = None,
    remove: Annotated[str | None, typer.Option(help="Forget the object of this name.")] = None,
    json: Json = False,
) -> None:
    """List the saved objects and when each was last seen; save or forget one."""
    from egohieraloc.memory.shelf import Shelf

    opened = Shelf(memory, create=save is not None)
    if save is not None:
        read = common.QueryOptions(query or (), box or (), (), query_mask or ()).read(None)
        opened.objects.save(save, read)
    if remove is not None:
        opened.objects.remove(remove)
    entries = list(opened.objects)
    if json:
        rows = [
            {"name": e.name, "views": e.num_views, "last_seen": e.last_seen and e.last_seen.isoformat()}
            for e in entries
        ]
        print(json_module.dumps(rows))
        return
    for entry in entries:
        seen = f"last seen {entry.last_seen:%Y-%m-%d %H:%M:%S}" if entry.last_seen else "not seen yet"
        print(f"{entry.name}: {entry.num_views} image{'s' * (entry.num_views != 1)}, {seen}")
    if not entries:
        print("No object is saved. Save one: `egohieraloc memory objects --save NAME --query IMAGE`.")


@app.command("map")
def draw_map(
    memory: Folder = DEFAULT_FOLDER,
    out: Annotated[
        Path, typer.Option(help="Folder for map.html, map.ply and map.json; of several videos one for each.")
    ] = Path("map"),
) -> None:
    """Show the last known places of all saved objects in 3D, from answers that were asked with --3d."""
    from egohieraloc.cli.export import write_memory_map

    write_memory_map(memory, out)


@app.command("list")
def list_videos(memory: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """List the videos by when they began."""
    from egohieraloc.memory.shelf import Shelf

    entries = Shelf(memory, create=False).list()
    if json:
        print(json_module.dumps([_row(entry) for entry in entries]))
        return
    for entry in entries:
        print(_line(entry))


@app.command()
def remove(
    videos: Annotated[list[str], typer.Argument(help="Videos by id, path or name.")],
    memory: Folder = DEFAULT_FOLDER,
) -> None:
    """Forget videos and what they answered. Your own files stay; recordings of a camera are deleted."""
    from egohieraloc.memory.shelf import Shelf

    opened = Shelf(memory, create=False)
    for video in videos:
        entry = opened.find(video)
        opened.remove(entry)
        print(f"Removed {entry.path.name}.")


def open_memory(
    folder: Path,
    model: str,
    device: str | None,
    fps: str,
    settings: list[str] | None,
    *,
    create: bool = False,
) -> Memory:
    """The memory in a folder, with a Localizer from the common options."""
    from egohieraloc.memory.library import Memory
    from egohieraloc.memory.shelf import Shelf

    if not create:
        Shelf(folder, create=False)  # says that none is there before seconds are spent on the network
    localizer: Localizer = common.build_localizer(model, device, settings, fps, folder.resolve() / "features")
    return Memory.open(folder, localizer=localizer, create=create)


def _sources(
    given: space.SpaceOptions, opened: Memory, videos: list[str] | None, *, in_3d: bool, device: str | None
) -> SpaceSources | None:
    """What the options of 3D describe. All are of one video, so it must be said which."""
    if not given.given:
        return None
    if not videos or len(videos) > 1:
        raise typer.BadParameter("Poses, depth and what makes them metric are of one video: give --video.")
    return given.sources(Video.reopen(opened.find(videos[0]).source), in_3d=in_3d, device=device)


def _videos_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Files, folders of images, and the videos of other folders however deep, in the order of their names."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else []
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


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            f"There is no time zone '{name}'. Give one such as Europe/Berlin or UTC."
        ) from error


def _line(entry: VideoEntry) -> str:
    notes = [] if entry.start.origin in ("given", "file name") else [f"time from the {entry.start.origin}"]
    notes += [] if entry.ready else ["not complete: add it again"]
    notes += [] if entry.exists else ["the file is gone"]
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
