"""What touches the bytes of others: run in a process that may die, see `process.py`.

Every function takes a tool and a progress callback first and needs neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from egohieraloc.errors import QueryError, VideoError
from egohieraloc.images import MAX_PIXELS, write_image
from egohieraloc.progress import Progress
from egohieraloc.query import Query
from egohieraloc.report.draw import thumbnail
from egohieraloc.types import Box
from egohieraloc.video.container import format_name
from egohieraloc.video.reader import Video
from egohieraloc.web.values import QueryView, VideoFacts

# What is taken, and what a browser calls it.
FORMATS = {
    "mov,mp4,m4a,3gp,3g2,mj2": "video/mp4",
    "matroska,webm": "video/webm",
    "ogg": "video/ogg",
    "avi": "video/x-msvideo",
    "mpegts": "video/mp2t",
    "mpeg": "video/mpeg",
    "flv": "video/x-flv",
    "asf": "video/x-ms-asf",
}
FRAME_WIDTH_PX = 1280
THUMBNAIL_WIDTH_PX = 240
VIEW = "an image, or time_s together with box=x,y,w,h"


@dataclass(frozen=True)
class QuerySource:
    """Where a view comes from: an image that was sent, or else the frame of a video at a time, and a box."""

    video: Path
    image: Path | None
    time_s: float | None
    box: Box | None


def inspect_video(tool: None, progress: Progress, path: Path) -> VideoFacts:
    """Open a video for real; a VideoError says why it is not taken."""
    media_type = FORMATS.get(format_name(path))
    if media_type is None:
        raise VideoError("Videos of this format are not taken. Send MP4, MOV, MKV, WebM, AVI or MPEG.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        video = Video.open(path)
    info = video.info
    if info.width * info.height > MAX_PIXELS:
        raise VideoError(f"The video is {info.width}x{info.height}; at most 8192x8192 pixels are taken.")
    return VideoFacts(
        media_type=media_type,
        width=info.width,
        height=info.height,
        fps=float(info.fps),
        num_frames=info.num_frames,
        duration_s=video.duration_s,
        warning=" ".join(str(w.message).replace(str(path), "The file") for w in caught) or None,
    )


def frame_jpeg(tool: None, progress: Progress, path: Path, time_s: float) -> bytes:
    """The frame shown at a time."""
    return thumbnail(_opened(path).frame_at(time_s).rgb, width_px=FRAME_WIDTH_PX, quality=88)


def prepare_query(
    tool: None, progress: Progress, folder: Path, sources: Sequence[QuerySource]
) -> list[QueryView]:
    """Write an image of each view of an object, and a thumbnail of the first, into the folder of a query."""
    views = []
    for number, source in enumerate(sources):
        query = _query(source)
        write_image(folder / image_name(number), query.image)
        if number == 0:
            shown = thumbnail(query.crop, width_px=THUMBNAIL_WIDTH_PX, quality=85)
            (folder / "thumbnail.jpg").write_bytes(shown)
        views.append(QueryView(box=query.box.xyxy, seen_at_s=query.seen_at_s))
    return views


def read_query(folder: Path, views: Sequence[QueryView]) -> Query:
    """What was prepared."""
    return Query.of_views(
        *(
            Query.from_image(
                folder / image_name(number), box=view.box and Box(*view.box), seen_at_s=view.seen_at_s
            )
            for number, view in enumerate(views)
        )
    )


def image_name(number: int) -> str:
    return f"image-{number}.png" if number else "image.png"


def _query(source: QuerySource) -> Query:
    if source.image is not None:
        return Query.from_image(source.image, box=source.box)
    if source.time_s is None or source.box is None:
        raise QueryError(f"Say what to look for: {VIEW}.")
    return Query.from_time(_opened(source.video), time_s=source.time_s, box=source.box)


@lru_cache(maxsize=4)
def _opened(path: Path) -> Video:
    return Video.open(path)
