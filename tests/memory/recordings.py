"""Short recordings to put into a memory."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from egohieraloc import Box, Query

WIDTH, HEIGHT, FPS, SECONDS = 96, 64, 10, 3


def image(seed: int, number: int) -> np.ndarray:
    """A red square that moves over a ground of its own colour."""
    ground = np.random.default_rng(seed).integers(40, 200, 3)
    rgb = np.full((HEIGHT, WIDTH, 3), ground, np.uint8)
    left = 2 * number % 60
    rgb[10:40, left : left + 30] = (230, 30, 30)
    return rgb


def write_recording(
    path: Path, seed: int = 0, *, seconds: float = SECONDS, tags: dict[str, str] | None = None
) -> Path:
    with av.open(str(path), "w", options={"movflags": "use_metadata_tags"} if tags else {}) as container:
        container.metadata.update(tags or {})
        stream = container.add_stream("h264", rate=FPS)
        stream.metadata.update({k: v for k, v in (tags or {}).items() if k == "handler_name"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(round(seconds * FPS)):
            frame = av.VideoFrame.from_ndarray(image(seed, number), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def red_square(seed: int = 0) -> Query:
    return Query(image(seed, 0), Box(0, 10, 30, 40))
