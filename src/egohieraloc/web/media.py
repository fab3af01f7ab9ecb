"""What touches the bytes of others: run in a process that may die, see `process.py`.

Every function takes a tool and a progress callback first and needs neither.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from egohieraloc.errors import QueryError, VideoError
from egohieraloc.images import read_image, write_image
from egohieraloc.query import Query
from egohieraloc.report.html import thumbnail
from egohieraloc.types import Box
from egohieraloc.video.container import format_name
from egohieraloc.video.reader import Video

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
MAX_PIXELS = 8192 * 8192
FRAME_WIDTH_PX = 1280
THUMBNAIL_WIDTH_PX = 240


def inspect_video(tool: None, progress: Any, path: Path) -> dict[str, Any]:
    """Open a video for real: its facts as they go into a VideoEntry, or a VideoError."""
    media_type = FORMATS.get(format_name(path))
    if media_type is None:
        raise VideoError("Videos of this format are not taken. Send MP4, MOV, MKV, WebM, AVI or MPEG.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        video = Video.open(path)
    info = video.info
    if info.width * info.height > MAX_PIXELS:
        raise VideoError(f"The video is {info.width}x{info.height}; at most 8192x8192 pixels are taken.")
    return {
        "media_type": media_type,
        "width": info.width,
        "height": info.height,
        "fps": float(info.fps),
        "num_frames": info.num_frames,
        "duration_s": video.duration_s,
        "warning": " ".join(str(w.message).replace(str(path), "The file") for w in caught) or None,
    }


def frame_jpeg(tool: None, progress: Any, path: Path, time_s: float) -> bytes:
    """The frame shown at a time."""
    return thumbnail(_opened(path).frame_at(time_s).rgb, width_px=FRAME_WIDTH_PX, quality=88)


def prepare_query(
    tool: None,
    progress: Any,
    folder: Path,
    video: Path,
    time_s: float | None,
    box: Box | None,
    given: Path | None,
) -> tuple[Box, float | None]:
    """Write image.png and thumbnail.jpg of a query; its box in the image, and when it was seen.

    given: an image that came with the question; without it the frame at `time_s` and `box` are needed.
    """
    if given is not None:
        image = read_image(given)
        if image.shape[0] * image.shape[1] > MAX_PIXELS:
            raise QueryError("The image is too large: at most 8192x8192 pixels are taken.")
        query = Query.from_image(image, box=box, seen_at_s=time_s)
    elif time_s is None or box is None:
        raise QueryError("Say what to look for: an image, or time_s together with box=x,y,w,h.")
    else:
        query = Query.from_time(_opened(video), time_s=time_s, box=box)
    write_image(folder / "image.png", query.image)
    (folder / "thumbnail.jpg").write_bytes(thumbnail(query.crop, width_px=THUMBNAIL_WIDTH_PX, quality=85))
    return query.box, query.seen_at_s


@lru_cache(maxsize=4)
def _opened(path: Path) -> Video:
    return Video.open(path)
