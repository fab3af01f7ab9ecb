"""Small videos whose every frame shows its own number, as bright and dark squares."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SQUARE, BITS = 16, 12
WIDTH, HEIGHT = 96, 64  # squares in rows of six


def image_of(number: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    rgb = np.zeros((height, width, 3), np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            x, y = bit % 6 * SQUARE, bit // 6 * SQUARE
            rgb[y : y + SQUARE, x : x + SQUARE] = 255
    return rgb


def number_of(rgb: np.ndarray) -> int:
    centres = [rgb[bit // 6 * SQUARE + 8, bit % 6 * SQUARE + 8].mean() > 128 for bit in range(BITS)]
    return sum(bright << bit for bit, bright in enumerate(centres))


def write_video(
    path: Path,
    *,
    frames: int = 60,
    rate: Fraction | int = 30,
    codec: str = "libx264",
    times: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    rotation: int | None = None,
) -> Path:
    with av.open(str(path), "w", options=container or {}) as output:
        stream = output.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height = WIDTH, HEIGHT
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if time_base:
            stream.codec_context.time_base = time_base
        if rotation:
            stream.set_display_rotation(rotation)
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(image_of(number), format="rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = time_base or 1 / Fraction(rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path
