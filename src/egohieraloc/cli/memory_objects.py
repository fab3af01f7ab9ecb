"""`egohieraloc memory objects` and `map`: saved objects, and where they were last."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.cli.memory_folder import DEFAULT_FOLDER, Folder, FromVideo, Json
from egohieraloc.errors import QueryError


def objects(
    *,
    memory: Folder = DEFAULT_FOLDER,
    save: Annotated[
        str | None,
        typer.Option(help="Save an object under this name, or add images to it: with --query, or --from."),
    ] = None,
    asked: common.QueryOptions,
    from_video: FromVideo = None,
    remove: Annotated[str | None, typer.Option(help="Forget the object of this name.")] = None,
    json: Json = False,
) -> None:
    """List the saved objects and when each was last seen; save or forget one."""
    from egohieraloc.memory.shelf import Shelf

    if save is None and asked.given:
        raise QueryError("Say under which name to save it: --save NAME.")
    opened = Shelf(memory, create=save is not None)
    if save is not None:
        source = None if from_video is None else opened.open_video(from_video)
        opened.objects.save(save, asked.read(source))
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


def draw_map(
    memory: Folder = DEFAULT_FOLDER,
    out: Annotated[
        Path, typer.Option(help="Folder for map.html, map.ply and map.json; of several videos one for each.")
    ] = Path("map"),
) -> None:
    """Show the last known places of all saved objects in 3D, from answers that were asked with --3d."""
    from egohieraloc.cli.export import write_memory_map

    write_memory_map(memory, out)
