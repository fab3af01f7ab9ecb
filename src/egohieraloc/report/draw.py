"""Images that explain an answer: the track drawn over the video, and the curve of scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.error import FFmpegError

from egohieraloc.clock import clock
from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_path
from egohieraloc.images import mask_on_image, to_jpeg
from egohieraloc.types import Frame, FramePrediction, Mask, Rgb, ScoreCurve
from egohieraloc.video.reader import Video

COLOUR = (34, 197, 94)  # of boxes and outlines, as on the page
DARK = (16, 20, 17)  # beside each line, so that it is seen on any ground
CLOCK = Fraction(1, 90_000)  # frames keep their times, whatever the rate
THUMBNAIL_WIDTH_PX = 400


def thumbnail(rgb: Rgb, *, width_px: int = THUMBNAIL_WIDTH_PX, quality: int = 72) -> bytes:
    """A small JPEG of a frame, never larger than the frame."""
    return to_jpeg(rgb, width_px / rgb.shape[1], quality)


def write_overlay(
    path: str | Path,
    video: Video,
    track: Sequence[FramePrediction],
    *,
    fps: float | None = 5.0,
    margin_s: float = 2.0,
    long_side: int = 1280,
) -> None:
    """Write an H.264 video of the track, from `margin_s` before it to `margin_s` after it.

    `fps` is the rate at which the track was sampled. Large videos are shrunk to `long_side` pixels.
    """
    if not track:
        raise OutputError(f"There is nothing to draw into {path}: the track is empty.")
    start_s, until_s = track[0].time_s - margin_s, track[-1].time_s + margin_s
    prediction_of = {prediction.frame_index: prediction for prediction in track}
    wanted = video.sample_indices(fps, start_s=start_s, until_s=until_s).tolist()
    frames = video.frames(sorted({*wanted, *prediction_of}))
    scale = min(1.0, long_side / max(video.info.width, video.info.height))
    width, height = (max(2, int(side * scale) // 2 * 2) for side in (video.info.width, video.info.height))
    drawn = (
        (frame.time_s, draw_frame(frame, prediction_of.get(frame.index), width, height)) for frame in frames
    )
    with atomic_path(path) as temporary:
        try:
            _encode(temporary, drawn, width, height)
        except FFmpegError as error:
            raise OutputError(f"Cannot write {path}: {error.strerror}. Is the disk full?") from error


def draw_frame(frame: Frame, prediction: FramePrediction | None, width: int, height: int) -> Rgb:
    """The frame at a size, with its time and, where the object was seen, its box, mask and score."""
    image: Rgb = cv2.resize(frame.rgb, (width, height), interpolation=cv2.INTER_AREA)
    stroke = max(1, round(max(width, height) / 400))
    if prediction is not None:
        _outline(image, shrunk_mask(prediction, frame.rgb, width, height), stroke)
        x1, y1, x2, y2 = prediction.box.scaled(width / frame.rgb.shape[1], height / frame.rgb.shape[0])
        corners = (round(x1), round(y1)), (round(x2) - 1, round(y2) - 1)
        cv2.rectangle(image, *corners, DARK, 3 * stroke)
        cv2.rectangle(image, *corners, COLOUR, stroke)
        _label(image, f"{prediction.score:.2f}", (round(x1), round(y1) - 4 * stroke), stroke)
    _label(image, clock(frame.time_s), (4 * stroke, height - 5 * stroke), stroke)
    return image


def write_curve(path: str | Path, curve: ScoreCurve, *, chosen: tuple[int, int] | None = None) -> None:
    """Draw the scores over time, raw and smoothed; with the chosen interval also the others, and the score
    below which an interval ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    half_s = float(np.median(np.diff(curve.time_s))) / 2 if curve.time_s.size > 1 else 0.1
    names = {"chosen": "last seen", "other": "other intervals"}
    spans: list[tuple[str, tuple[int, int]]] = []
    if chosen is not None:  # else none of them is an appearance
        others = [i for i in curve.intervals if i[1] < chosen[0] or chosen[1] < i[0]]
        spans = [*(("other", span) for span in others), ("chosen", chosen)]
    for kind, (start, end) in spans:
        axes.axvspan(
            curve.time_s[start] - half_s,
            curve.time_s[end] + half_s,
            color="#22c55e" if kind == "chosen" else "#9aa5b1",
            alpha=0.4 if kind == "chosen" else 0.2,
            linewidth=0,
            label=names.pop(kind, None),
        )
    marker = "." if curve.time_s.size < 3 else None
    axes.plot(curve.time_s, curve.raw, color="#9aa5b1", linewidth=0.8, marker=marker, label="score")
    axes.plot(curve.time_s, curve.smooth, color="#1f4e79", linewidth=1.6, marker=marker, label="smoothed")
    if spans:
        axes.axhline(curve.threshold, color="#c0392b", linewidth=1, linestyle="--", label="ends below this")
    axes.set(xlabel="time (s)", ylabel="score", ylim=(0, 1.02 * curve.raw.max(initial=1.0)))
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary)


def _encode(path: Path, frames: Iterator[tuple[float, Rgb]], width: int, height: int) -> None:
    with av.open(str(path), "w", format="mp4") as output:
        # Without mbtree=0 x264 makes other bytes each time, of the same frames.
        options = {"crf": "23", "preset": "veryfast", "x264-params": "mbtree=0"}
        stream = output.add_stream("libx264", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = CLOCK
        first_s: float | None = None
        for time_s, rgb in frames:
            first_s = time_s if first_s is None else first_s
            image = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            image.pts, image.time_base = round((time_s - first_s) / CLOCK), CLOCK
            output.mux(stream.encode(image))
        output.mux(stream.encode(None))


def shrunk_mask(prediction: FramePrediction, rgb: Rgb, width: int, height: int) -> Mask:
    """The prediction's mask (height, width) over a whole frame that is shown at this size; maybe empty."""
    box = prediction.mask_box
    shown = None if box is None else box.scaled(width / rgb.shape[1], height / rgb.shape[0])
    return mask_on_image(prediction.mask, shown, width, height)


def _outline(image: Rgb, inside: Mask, stroke: int) -> None:
    """Draw the edge of a mask, outside of it and dark, then bright; the object keeps its own colours."""
    cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    grown = inside.astype(np.uint8)
    for shade in (COLOUR, DARK):
        larger = cv2.dilate(grown, cross, iterations=stroke)
        image[larger > grown] = shade
        grown = larger


def _label(image: Rgb, text: str, corner: tuple[int, int], stroke: int) -> None:
    """White text on black, its lower left corner at `corner`, kept inside the image."""
    font, size = cv2.FONT_HERSHEY_SIMPLEX, 0.35 * stroke + 0.1
    (width, height), below = cv2.getTextSize(text, font, size, stroke)
    x = max(min(corner[0], image.shape[1] - width), 0)
    y = max(min(corner[1], image.shape[0] - below), height + stroke)
    cv2.rectangle(image, (x, y - height - stroke), (x + width, y + below), (0, 0, 0), -1)
    cv2.putText(image, text, (x, y), font, size, (255, 255, 255), stroke, cv2.LINE_AA)
