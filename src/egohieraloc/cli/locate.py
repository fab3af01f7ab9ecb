"""`egohieraloc locate`: where was this thing last seen?"""

from __future__ import annotations

import json as json_module
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.files import atomic_folder
from egohieraloc.geometry.locate import describe as describe_place
from egohieraloc.geometry.reconstruction import read_cameras
from egohieraloc.report.recording import write_recording
from egohieraloc.result import FILES, Result
from egohieraloc.types import Localization3D, NotFound
from egohieraloc.video.reader import Video


def locate(
    video: Annotated[Path, typer.Argument(help="A video file, or a folder of pictures.")],
    query: Annotated[
        Path | None, typer.Option(help="A picture of the thing: a crop, or with --box a frame.")
    ] = None,
    box: Annotated[str | None, typer.Option(help="Where the thing is in the picture: x,y,w,h.")] = None,
    at: Annotated[
        float | None, typer.Option(help="Take the query from this moment of the video, in seconds.")
    ] = None,
    query_mask: Annotated[
        Path | None, typer.Option(help="The thing's pixels in the query picture, white on black.")
    ] = None,
    until: Annotated[
        float | None, typer.Option(help="The time of asking; nothing after it is looked at.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for result.json, report.html, overlay.mp4, masks.")
    ] = None,
    rrd: Annotated[
        Path | None, typer.Option(help="Write a Rerun recording here; needs the extra viz.")
    ] = None,
    in_3d: Annotated[bool, typer.Option("--3d", help="Also say where it is in space.")] = False,
    poses: Annotated[
        Path | None, typer.Option(help="With --3d: a cameras.json instead of poses from the video.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    model: common.Model = "mini",
    device: common.Device = None,
    fps: common.Fps = "5",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """Find the last appearance of a thing in a video."""
    source = Video.open(video, folder_fps=folder_fps)
    question = common.read_query(source, query, box, at, query_mask)
    localizer = common.build_localizer(model, device, settings, fps, cache)
    cameras = read_cameras(poses) if poses else None
    # A folder that cannot be written to shows now, not after the search.
    with atomic_folder(out, replaces=FILES) if out else nullcontext() as folder:
        with common.progress_bar(enabled=not json) as progress:
            result = localizer.locate(
                question, source, until_s=until, in_3d=in_3d, poses=cameras, progress=progress
            )
        if folder is not None:
            result.save_report(folder, localizer, folder_fps=folder_fps)
    if rrd is not None:
        write_recording(rrd, result, folder_fps=folder_fps)
    if json:
        print(json_module.dumps(result.to_dict(), allow_nan=False))
    else:
        print(describe(result))
        if out is not None:
            print(f"Everything about it is in {out}.")


def describe(result: Result) -> str:
    """The answer in words."""
    track = result.track
    if isinstance(track, NotFound):
        return f"Not found. {track.reason}"
    first, last = track.predictions[0], track.predictions[-1]
    x, y, width, height = (round(v) for v in last.box.xywh)
    where = ""
    if isinstance(result.place, Localization3D):
        where = f"\nFrom where the camera is at the time of asking it is {describe_place(result.place)}."
    elif result.place is not None:
        where = f"\nNo place in space: {result.place.reason}."
    return (
        f"Last seen from {first.time_s:.1f} s to {last.time_s:.1f} s "
        f"(frames {first.frame_index} to {last.frame_index}), at the end in the box "
        f"{x},{y},{width},{height}. Sure to {100 * track.score:.0f} %.{where}"
    )
