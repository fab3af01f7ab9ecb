"""`egohieraloc export` and `egohieraloc map`: what is known in space, for other programs and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.errors import DataError, OutputError
from egohieraloc.export import Form, write_map
from egohieraloc.export import export as write_export
from egohieraloc.files import atomic_folder
from egohieraloc.memory.places import last_places
from egohieraloc.memory.shelf import Shelf
from egohieraloc.report.map_page import write_map_page
from egohieraloc.report.object_map import ObjectMap, object_map, object_maps
from egohieraloc.result import Result

ENDINGS = {
    Form.TUM: "trajectory.txt",
    Form.PLY: "space.ply",
    Form.RERUN: "space.rrd",
    Form.JSON: "space.json",
}
RESULT_HELP = "An answer's folder, or the result.json in it."


def export(
    result: Annotated[Path, typer.Argument(help=RESULT_HELP)],
    to: Annotated[Form, typer.Option(help="The form to write.")],
    out: Annotated[
        Path | None, typer.Option(help="File, or folder for colmap and nerfstudio; default: in RESULT.")
    ] = None,
    name: Annotated[str, typer.Option(help="What the object is called.")] = "object",
) -> None:
    """Write an answer's cameras, points and object for other programs."""
    answer = Result.load(result)
    folder = result if result.is_dir() else result.parent
    target = out or folder / ENDINGS.get(to, to.value)
    if target.is_dir() and to in ENDINGS:
        raise OutputError(f"{target} is a folder. Give the name of a file, such as {target / ENDINGS[to]}.")
    write_export(answer, to, target, name=name)
    print(f"Wrote {target}.")


def draw_map(
    results: Annotated[
        list[Path],
        typer.Argument(help="Folders of answers from one video, asked with --3d.", metavar="RESULT"),
    ],
    out: Annotated[Path, typer.Option(help="Folder for map.html, map.ply and map.json.")] = Path("map"),
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What each object is called, in order; default: its folder."),
    ] = None,
) -> None:
    """Show the last known places of several objects in one 3D view."""
    names = name or [(path if path.is_dir() else path.parent).resolve().name for path in results]
    if len(names) != len(results) or len(set(names)) != len(names):
        raise typer.BadParameter(f"Give {len(results)} different --name, one for each answer, got {names}.")
    write_object_map(
        object_map({word: Result.load(path) for word, path in zip(names, results, strict=True)}), out
    )


def write_object_map(mapped: ObjectMap, out: Path) -> None:
    """The page, PLY and JSON of a map, and its objects in words."""
    with atomic_folder(out) as folder:
        write_map_page(folder / "map.html", mapped)
        write_map(mapped, Form.PLY, folder / "map.ply")
        write_map(mapped, Form.JSON, folder / "map.json")
    for each in mapped.objects:
        x, y, z = each.point_world
        at = f"{each.last_seen_at:%Y-%m-%d %H:%M:%S}" if each.last_seen_at else f"at {each.last_seen_s:.1f} s"
        later = f"; again {each.seen_later_at:%Y-%m-%d %H:%M:%S}, place unknown" if each.seen_later_at else ""
        print(f"{each.name}: {x:.2f}, {y:.2f}, {z:.2f} {mapped.unit}, last seen {at}{later}")
    for word, reason in mapped.without_place:
        print(f"{word}: no place ({reason})")
    print(f"The map is in {out / 'map.html'}.")


def write_memory_map(memory: Path, out: Path) -> None:
    """The maps of a memory: of several videos each in a folder of its own."""
    opened = Shelf(memory, create=False)
    known = last_places(opened)
    maps = object_maps(known.results, known.missing, known.last_seen)
    if not maps:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in known.missing.items())
        raise DataError(
            f"No saved object has a place ({reasons or 'none is saved'}). "
            "Ask for one: `egohieraloc memory ask --object NAME --3d`."
        )
    for path, mapped in maps.items():
        entry = opened.find(path)
        write_object_map(mapped, out if len(maps) == 1 else out / f"{entry.path.stem}_{entry.id}")
