"""`egohieraloc locate`: where was this object last seen?"""

from __future__ import annotations

import json as json_module
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.cli.option_groups import spread
from egohieraloc.cli.space_options import SpaceOptions
from egohieraloc.paper import settings_for
from egohieraloc.progress import progress_bars
from egohieraloc.report.build import write_views
from egohieraloc.report.recording import find_rerun, write_recording
from egohieraloc.result import answer_folder
from egohieraloc.video.reader import Video

Until = Annotated[
    float | None,
    typer.Option(
        parser=common.seconds,
        metavar="TIME",
        help="The query time, 12.0 or 0:12.0; only what was before it is searched.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json, report.html, overlay.mp4, masks.")]
Rrd = Annotated[Path | None, typer.Option(help="Write a Rerun recording here; needs the extra viz.")]

NOT_FOUND = 3  # exit code: nothing is wrong, the object was not seen
HINTS = (
    "What may help:",
    "  a photo with the object's surroundings and its box: --query PHOTO --box x,y,w,h",
    "  a photo of the side that the video shows",
    "  the object in the video itself, if it is seen earlier: --at TIME --box x,y,w,h",
)


@spread
def locate(
    video: Annotated[
        Path, typer.Argument(help="A video file, a folder of images, or an Aria recording (.vrs).")
    ],
    *,
    asked: common.QueryOptions,
    until: Until = None,
    out: Out = None,
    rrd: Rrd = None,
    in_3d: Annotated[bool, typer.Option("--3d", help="Also say where it is in space.")] = False,
    space: SpaceOptions,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    model: common.Model = "mini",
    device: common.Device = None,
    engine: common.Engine = None,
    fps: common.Fps = "5",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
    paper: common.Paper = False,
    sam: common.Sam = None,
    cache: common.Cache = None,
) -> None:
    """Find the last appearance of an object in a video.

    Exit code 0: found; 3: not found; 2: a mistake in the command or a file.
    """
    source = Video.open(video, folder_fps=folder_fps)
    searched = asked.read(source)
    sources = space.sources(source, in_3d=in_3d, device=device)
    words = settings_for(settings, paper=paper)
    localizer = common.build_localizer(model, device, words, fps, cache, engine=engine, sam=sam)
    if rrd is not None:
        find_rerun()  # what is missing to write the answer shows now, not after the search
    with answer_folder(out, video, *asked.files, space.cameras) if out else nullcontext() as folder:
        with progress_bars(enabled=not json) as progress:
            result = localizer.locate(
                searched, source, until_s=until, in_3d=in_3d, space=sources, progress=progress
            )
        if folder is not None:
            write_views(result, folder)
            result.write_files(folder)
    if rrd is not None:
        write_recording(rrd, result)
    if json:
        print(json_module.dumps(result.to_dict(), allow_nan=False))
    else:
        print(result.summary)
        if not result.found:
            print(*HINTS, sep="\n")
        if out is not None:
            without = "" if result.found else " (no overlay.mp4: there is no track to draw)"
            print(f"Results are in {out}{without}.")
    if not result.found:
        raise typer.Exit(NOT_FOUND)
