"""An answer in a notebook: the query, the last frame that shows it, and a sentence."""

from __future__ import annotations

import base64
import html

import cv2

from egohieraloc.clock import clock
from egohieraloc.errors import VideoError
from egohieraloc.query import Query
from egohieraloc.types import Box, NotFound, ResponseTrack, Rgb, VideoSource
from egohieraloc.video.reader import Video

HEIGHT_PX = 240
COLOUR = (34, 197, 94)


def answer_html(query: Query, source: VideoSource, track: ResponseTrack | NotFound, summary: str) -> str:
    """Images are left out where the video is gone."""
    images = [("query", _shown(query.crop))]
    if isinstance(track, ResponseTrack):
        last = track.predictions[-1]
        try:
            frame = Video.reopen(source).frame(last.frame_index)
            images.append((clock(frame.time_s), _shown(frame.rgb, last.box)))
        except VideoError:
            pass
    figures = "".join(
        f'<figure style="display:inline-block;margin:0 12px 0 0"><img src="{uri}" height="{HEIGHT_PX}">'
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
        for name, uri in images
    )
    return f"<div>{figures}<p>{html.escape(summary)}</p></div>"


def _shown(rgb: Rgb, box: Box | None = None) -> str:
    """A JPEG of HEIGHT_PX as a data: URI, with a box drawn into it."""
    scale = HEIGHT_PX / rgb.shape[0]
    size = (max(1, round(rgb.shape[1] * scale)), HEIGHT_PX)
    image = cv2.cvtColor(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    if box is not None:
        x1, y1, x2, y2 = (round(v * scale) for v in box)
        cv2.rectangle(image, (x1, y1), (x2, y2), COLOUR[::-1], 2)
    return "data:image/jpeg;base64," + base64.b64encode(cv2.imencode(".jpg", image)[1].tobytes()).decode()
