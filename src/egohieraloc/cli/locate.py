"""`egohieraloc locate`: where was this object last seen?"""

from __future__ import annotations

import json as json_module
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.cli import space_options as space
from egohieraloc.progress import progress_bars
from egohieraloc.report.build import write_views
from egohieraloc.report.recording import find_rerun, write_recording
from egohieraloc.result import answer_folder
from egohieraloc.video.reader import Video

QueryImage = Annotated[
    Path | None, typer.Option(help="An image of the object: a crop, or with --box a frame.")
]
QueryBox = Annotated[str | None, typer.Option(help="Where the object is in the image: x,y,w,h.")]
At = Annotated[float | None, typer.Option(help="Take the query from this moment of the video, in seconds.")]
QueryMask = Annotated[
    Path | None, typer.Option(help="The object's pixels in the query image, white on black.")
]
Until = Annotated[float | None, typer.Option(help="The query time; only what was before it is searched.")]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json, report.html, overlay.mp4, masks.")]
Rrd = Annotated[Path | None, typer.Option(help="Write a Rerun recording here; needs the extra viz.")]


def locate(
    video: Annotated[Path, typer.Argument(help="A video file, or a folder of images.")],
    query: QueryImage = None,
    box: QueryBox = None,
    at: At = None,
    query_mask: QueryMask = None,
    until: Until = None,
    out: Out = None,
    rrd: Rrd = None,
    in_3d: Annotated[bool, typer.Option("--3d", help="Also say where it is in space.")] = False,
    cameras: space.Cameras = None,
    depth: space.Depth = None,
    depth_model: space.DepthModel = None,
    positions: space.Positions = None,
    posed_images: space.Posed = None,
    known_length: space.Length = None,
    camera_height: space.Height = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    model: common.Model = "mini",
    device: common.Device = None,
    engine: common.Engine = None,
    fps: common.Fps = "5",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """Find the last appearance of an object in a video."""
    source = Video.open(video, folder_fps=folder_fps)
    searched = common.read_query(source, query, box, at, query_mask)
    given = space.SpaceOptions(
        cameras, depth, depth_model, positions, posed_images, known_length, camera_height
    )
    sources = given.sources(source, in_3d=in_3d, device=device)
    localizer = common.build_localizer(model, device, settings, fps, cache, engine)
    if rrd is not None:
        find_rerun()  # what is missing to write the answer shows now, not after the search
    with answer_folder(out, video, query, query_mask, cameras) if out else nullcontext() as folder:
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
        if out is not None:
            print(f"Results are in {out}.")
