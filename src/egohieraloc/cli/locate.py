"""`egohieraloc locate`: where was this object last seen?"""

from __future__ import annotations

import json as json_module
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.geometry.depth import read_depth_folder
from egohieraloc.geometry.place import describe as describe_place
from egohieraloc.geometry.reconstruction import read_cameras
from egohieraloc.geometry.reference import (
    CameraHeight,
    PosedImages,
    Reference,
    parse_known_length,
    read_known_positions,
    read_posed_images,
)
from egohieraloc.localize import DepthSource
from egohieraloc.models.depth import DepthNetwork
from egohieraloc.progress import progress_bars
from egohieraloc.report.recording import find_rerun, write_recording
from egohieraloc.result import Result, answer_folder
from egohieraloc.types import Localization3D, NotFound
from egohieraloc.video.folder import Folder
from egohieraloc.video.reader import Video


def locate(
    video: Annotated[Path, typer.Argument(help="A video file, or a folder of images.")],
    query: Annotated[
        Path | None, typer.Option(help="An image of the object: a crop, or with --box a frame.")
    ] = None,
    box: Annotated[str | None, typer.Option(help="Where the object is in the image: x,y,w,h.")] = None,
    at: Annotated[
        float | None, typer.Option(help="Take the query from this moment of the video, in seconds.")
    ] = None,
    query_mask: Annotated[
        Path | None, typer.Option(help="The object's pixels in the query image, white on black.")
    ] = None,
    until: Annotated[
        float | None, typer.Option(help="The query time; only what was before it is looked at.")
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
    depth: Annotated[
        Path | None, typer.Option(help="With --3d: a folder of metric depth maps named by frame number.")
    ] = None,
    depth_model: Annotated[
        str | None, typer.Option(help="With --3d: a depth network of the hub, by name or folder.")
    ] = None,
    positions: Annotated[
        Path | None, typer.Option(help="For metres: known camera positions, lines 'name x y z'.")
    ] = None,
    posed_images: Annotated[
        Path | None, typer.Option(help="For metres: a folder of five or more images with cameras.json.")
    ] = None,
    known_length: Annotated[
        str | None,
        typer.Option(help="For metres: s,x1,y1,x2,y2,m: at s seconds these two pixels are m apart."),
    ] = None,
    camera_height: Annotated[
        float | None, typer.Option(help="For metres: how high above the floor the camera is carried.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
    model: common.Model = "mini",
    device: common.Device = None,
    fps: common.Fps = "5",
    folder_fps: common.FolderFps = 5.0,
    settings: common.Settings = None,
    cache: common.Cache = None,
) -> None:
    """Find the last appearance of an object in a video."""
    source = Video.open(video, folder_fps=folder_fps)
    question = common.read_query(source, query, box, at, query_mask)
    space = (poses, depth, depth_model, positions, posed_images, known_length, camera_height)
    if not in_3d and any(option is not None for option in space):
        raise typer.BadParameter("Camera poses, depth and what makes them metric are used with --3d only.")
    cameras = read_cameras(poses) if poses else None
    reference = _read_reference(source, positions, posed_images, known_length, camera_height)
    if cameras is not None and isinstance(reference, PosedImages):
        raise typer.BadParameter("--posed-images are registered into a map; --poses brings none.")
    maps = _depth_source(source, depth, depth_model, device)
    localizer = common.build_localizer(model, device, settings, fps, cache)
    # What is missing to write the answer shows now, not after the search.
    if rrd is not None:
        find_rerun()
    with answer_folder(out, video, query, query_mask, poses) if out else nullcontext() as folder:
        with progress_bars(enabled=not json) as progress:
            result = localizer.locate(
                question,
                source,
                until_s=until,
                in_3d=in_3d,
                poses=cameras,
                depth=maps,
                reference=reference,
                progress=progress,
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


def _read_reference(
    video: Video,
    positions: Path | None,
    posed_images: Path | None,
    known_length: str | None,
    camera_height: float | None,
) -> Reference | None:
    """What makes the camera path metric: one of the four, or nothing."""
    given = (positions, posed_images, known_length, camera_height)
    if sum(option is not None for option in given) > 1:
        raise typer.BadParameter(
            "Give one of --positions, --posed-images, --known-length, --camera-height: each sets the scale."
        )
    if positions is not None:
        images = video.source.images if isinstance(video.source, Folder) else ()
        return read_known_positions(positions, [image.name for image in images])
    if posed_images is not None:
        return read_posed_images(posed_images)
    if known_length is not None:
        return parse_known_length(known_length)
    return None if camera_height is None else CameraHeight(camera_height)


def _depth_source(
    video: Video, folder: Path | None, model: str | None, device: str | None
) -> DepthSource | None:
    if folder is not None and model is not None:
        raise typer.BadParameter("Give --depth or --depth-model, not both.")
    if folder is not None:
        return partial(read_depth_folder, folder)
    if model is None:
        return None
    network = DepthNetwork.from_pretrained(model, device=device or "cpu")
    return lambda indices: dict(network.predict(video.frames(sorted(indices))))


def _viewpoint(result: Result, place: Localization3D) -> str:
    last = result.video.frame_indices[-1]
    if place.query_frame == last:
        return "where the camera is at the query time"
    return f"frame {place.query_frame} (frame {last}, the query time, has no camera pose)"


def describe(result: Result) -> str:
    """The answer in words."""
    track = result.track
    if isinstance(track, NotFound):
        return f"Not found. {track.reason}"
    first, last = track.predictions[0], track.predictions[-1]
    x, y, width, height = (round(v) for v in last.box.xywh)
    where = ""
    if isinstance(result.place, Localization3D):
        where = f"\nFrom {_viewpoint(result, result.place)} it is {describe_place(result.place)}."
    elif result.place is not None:
        where = f"\nNo place in space: {result.place.reason}."
    return (
        f"Last seen from {first.time_s:.1f} s to {last.time_s:.1f} s "
        f"(frames {first.frame_index} to {last.frame_index}), at the end in the box "
        f"{x},{y},{width},{height}. Sure to {min(99, round(100 * track.score))} %.{where}"
    )
