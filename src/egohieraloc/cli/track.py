"""`egohieraloc track`: follow what a box shows, an answer for every frame."""

from __future__ import annotations

import json as json_module
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.files import atomic_path
from egohieraloc.paper import settings_for
from egohieraloc.query import parse_box
from egohieraloc.video.reader import Video


def track(
    video: Annotated[Path, typer.Argument(help="A video file, or a folder of images.")],
    box: Annotated[str, typer.Option(help="The object at the start: x,y,w,h.")],
    at: Annotated[
        float,
        typer.Option(parser=common.seconds, metavar="TIME", help="The moment of the box: 8.6 or 0:08.6."),
    ] = "0",  # type: ignore[assignment] # given to the parser,
    backward: Annotated[bool, typer.Option(help="Also follow it back to the beginning.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write JSON lines here instead of printing them.")] = None,
    model: common.Model = "mini",
    device: common.Device = None,
    engine: common.Engine = None,
    fps: common.Fps = "native",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
    paper: common.Paper = False,
    sam: Annotated[
        str | None, typer.Option(help="The first mask by this SAM, a hub name or folder, not the whole box.")
    ] = None,
) -> None:
    """Follow an object through a video; prints one JSON line per frame: frame, time_s, box and score."""
    source = Video.open(video, folder_fps=folder_fps)
    words = settings_for(settings, paper=paper)
    localizer = common.build_localizer(model, device, words, fps, None, engine=engine, sam=sam)
    region = parse_box(box)
    walks = [localizer.track(source, region, at_s=at)]
    if backward:
        walks.insert(0, localizer.track(source, region, at_s=at, backward=True))
    lines = (
        json_module.dumps(
            {"frame": p.frame_index, "time_s": p.time_s, "box": list(p.box.xyxy), "score": p.score}
        )
        for p in chain(*walks)
    )
    if out is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        return
    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
    print(f"Wrote {out}.")
