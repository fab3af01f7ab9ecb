"""`egohieraloc memory ask`: where was this object last seen, in any video?"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.cli.locate import NOT_FOUND
from egohieraloc.cli.memory_folder import DEFAULT_FOLDER, Folder, FromVideo, Json, Zone, open_memory, zone_of
from egohieraloc.cli.space_options import SpaceOptions
from egohieraloc.errors import DataError, QueryError
from egohieraloc.files import atomic_path
from egohieraloc.geometry.given import gaps
from egohieraloc.progress import progress_bars

if TYPE_CHECKING:
    from egohieraloc.localize import SpaceSources
    from egohieraloc.memory.asking import MemoryAnswer
    from egohieraloc.memory.library import Memory


def ask(
    *,
    memory: Folder = DEFAULT_FOLDER,
    asked: common.QueryOptions,
    from_video: FromVideo = None,
    name: Annotated[str | None, typer.Option("--object", help="Ask for a saved object by its name.")] = None,
    until: Annotated[str | None, typer.Option(help="Only what was before this date and time.")] = None,
    video: Annotated[
        list[str] | None,
        typer.Option(metavar="VIDEO", help="Ask only this video, by id, path or name. Repeatable."),
    ] = None,
    others: Annotated[
        int, typer.Option(min=0, help="Further videos to ask for earlier sightings, once it was found.")
    ] = 3,
    zone: Zone = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for result.json, report.html, overlay.mp4, masks.")
    ] = None,
    in_3d: Annotated[bool, typer.Option("--3d", help="Also say where it is in space.")] = False,
    space: SpaceOptions,
    json: Json = False,
    system: common.NetworkOptions,
) -> None:
    """Find the last appearance of an object in all videos.

    Exit code 0: found; 3: not found; 2: a mistake in the command or a file, or no video to ask.
    """
    from egohieraloc.memory.shelf import Shelf
    from egohieraloc.memory.wall_clock import parse_time

    if name is not None and asked.given:
        raise QueryError("Give --object or --query, not both.")
    moment = None if until is None else parse_time(until, zone_of(zone))
    if name is not None:
        Shelf(memory, create=False).objects.id_of(name)  # before seconds are spent on the network
    opened = open_memory(memory, system)
    source = None if from_video is None else opened.open_video(from_video)
    sources = _sources(space, opened, video, in_3d=in_3d, device=system.device)
    with progress_bars(enabled=not json) as progress:
        sought = name if name is not None else asked.read(source)
        answer = opened.ask(
            sought, until=moment, videos=video, others=others, in_3d=in_3d, space=sources, progress=progress
        )
    if sources is None and answer.result is not None and answer.result.cameras is not None:
        typer.echo(f"{answer.result.video.source.path}: {gaps(answer.result.cameras)}.", err=True)
    _show(answer, opened, out, json=json)


def _show(answer: MemoryAnswer, opened: Memory, out: Path | None, *, json: bool) -> None:
    if answer.nothing_asked:
        raise DataError(answer.summary)
    if out is not None:
        _save(answer, opened, out)
    if json:
        if answer.result is None:
            raise DataError(f"There is no whole answer to print. {answer.summary}")
        print(json_module.dumps(answer.result.to_dict(), allow_nan=False))
    else:
        print(answer.summary)
        for other in answer.sightings[1:] if answer.found else ():
            when, where = f"{other.seen_from:%Y-%m-%d %H:%M:%S}", other.video.path.name
            print(f"  also {when} in {where}, confidence {other.score:.2f}")
        if out is not None:
            print(f"Results are in {out}.")
    if not answer.found:
        raise typer.Exit(NOT_FOUND)


def _save(answer: MemoryAnswer, opened: Memory, out: Path) -> None:
    """The report; of a video that is gone also the thumbnail that is left of the moment."""
    from egohieraloc.report.build import save_report

    if answer.result is not None:
        there = answer.video is not None and answer.video.exists
        save_report(answer.result, out, with_video=there)
    shown = next((s for s in (*answer.sightings[:1], *answer.remembered) if not s.video.exists), None)
    jpeg = shown and opened.thumbnail(shown.video, shown.shown[0] if shown.shown else shown.end_s)
    if jpeg:
        with atomic_path(out / "thumbnail.jpg") as temporary:
            temporary.write_bytes(jpeg)


def _sources(
    given: SpaceOptions, opened: Memory, videos: list[str] | None, *, in_3d: bool, device: str | None
) -> SpaceSources | None:
    """What the options of 3D describe. All are of one video, so it must be said which."""
    if not given.given:
        return None
    if not videos or len(videos) > 1:
        raise typer.BadParameter("Poses, depth and what makes them metric are of one video: give --video.")
    return given.sources(opened.open_video(videos[0]), in_3d=in_3d, device=device)
