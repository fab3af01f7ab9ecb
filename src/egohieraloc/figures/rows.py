"""Rows of images: qualitative results and failures.

They are the paper's figures vis2d, egotracks, trek and failureanalysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import Track
from egohieraloc.errors import DataError
from egohieraloc.figures import style
from egohieraloc.figures.sources import Row
from egohieraloc.query import Query
from egohieraloc.types import Rgb

QUERY_WIDTH, TIMELINE_WIDTH = 0.9, 1.9  # in heights of a row
EDGE_IN, GAP_IN, TICKS_IN, LEGEND_IN, ABOVE_IN, BELOW_IN = 0.07, 0.05, 0.12, 0.16, 0.15, 0.24
QUERY_MARGIN = 0.25  # of the query's longer side, shown around it


def draw_qualitative(
    path: str | Path,
    rows: Sequence[Row],
    *,
    frames: int = 4,
    zoom: float = 1.0,
    width_in: float = style.PAGE_IN,
) -> None:
    """Each row: the query, frames with ground-truth and predicted boxes, and the response tracks over time.

    zoom: share of a frame's sides that is shown, around the boxes.
    """
    with _page(path, rows, frames, width_in) as grid:
        for row, axes in zip(rows, grid, strict=True):
            style.show_image(axes[0], query_image(row.query), title=row.title or "query")
            shown = frames_to_show(row, frames)
            for place, frame in zip(axes[1:-1], shown, strict=False):
                show_frame(place, row, frame, zoom)
            for place in axes[1 + len(shown) : -1]:
                place.set_axis_off()
            show_timeline(axes[-1], row, marked=shown)


def draw_failures(
    path: str | Path, rows: Sequence[tuple[Row, float]], *, zoom: float = 1.0, width_in: float = style.PAGE_IN
) -> None:
    """Each row, with its space-time IoU: the query, ground truth, answer, and both over time."""
    with _page(path, [row for row, _ in rows], 2, width_in) as grid:
        for (row, overlap), axes in zip(rows, grid, strict=True):
            style.show_image(axes[0], query_image(row.query), title=row.title or "query")
            marked = []
            for place, track, name, nothing in (
                (axes[1], row.truth, "ground truth", "no ground truth"),
                (axes[2], row.answers[0].track, "answer", "not found"),
            ):
                place.set_title(name, pad=2)
                if track is None or len(track) == 0:
                    place.set(xticks=[], yticks=[])
                    place.spines[:].set_visible(False)
                    place.text(0.5, 0.5, nothing, ha="center", va="center", color=style.QUIET)
                    continue
                marked += (chosen := style.evenly(track.frames, 1))
                show_frame(place, row, chosen[0], zoom)
            axes[-1].set_title(f"stIoU {overlap:.2f}", pad=2)
            show_timeline(axes[-1], row, marked=marked)


def query_image(query: Query) -> Rgb:
    """The query with some of its surroundings."""
    margin = QUERY_MARGIN * max(query.box.width, query.box.height)
    height, width = query.image.shape[:2]
    x1, y1 = (max(0, round(v - margin)) for v in (query.box.x1, query.box.y1))
    x2, y2 = min(width, round(query.box.x2 + margin)), min(height, round(query.box.y2 + margin))
    return query.image[y1:y2, x1:x2]


def frames_to_show(row: Row, count: int) -> list[int]:
    """Spread over the ground truth; without one, over the first answer with frames; else over the video."""
    for track in (row.truth, *(answer.track for answer in row.answers)):
        if track is not None and len(track):
            return style.evenly(track.frames, count)
    return style.evenly(np.arange(max(1, int(row.until_s * row.fps))), count)


def show_frame(axes: Any, row: Row, frame: int, zoom: float) -> None:
    """A frame with all its boxes, which may reach out of the image."""
    style.show_image(axes, row.image(frame).rgb, below=f"{frame / row.fps:.1f} s")
    x1, y1, x2, y2 = _zoom(row, frame, zoom)
    axes.set(xlim=(x1, x2), ylim=(y2, y1))
    if row.truth is not None:
        _show_box_at(axes, row.truth, frame, style.TRUTH, width=2.0)
    for i, answer in enumerate(row.answers):  # dashed over solid: where two agree, both show
        _show_box_at(axes, answer.track, frame, style.colour(i), dash=style.dashes(i))


def show_timeline(axes: Any, row: Row, *, marked: Sequence[int] = ()) -> None:
    """The ground-truth interval shaded, the score curve if known, and a bar for each response track."""
    for first, last in runs_of(row.truth) if row.truth is not None else ():
        axes.axvspan(first / row.fps, (last + 1) / row.fps, color=style.TRUTH, alpha=0.22, linewidth=0)
    step = 0.14
    for i, answer in enumerate(row.answers):
        spans = [(first / row.fps, (last + 1 - first) / row.fps) for first, last in runs_of(answer.track)]
        axes.broken_barh(spans, (-step * (i + 1), 0.09), color=style.colour(i), linewidth=0)
    if row.curve is not None:
        axes.plot(row.curve.time_s, row.curve.smooth, color=style.colour(0), linewidth=0.9)
        axes.axhline(row.curve.threshold, color=style.QUIET, linewidth=0.6, linestyle=(0, (3, 2)))
    for frame in marked:
        axes.axvline(frame / row.fps, ymin=0.97, color="#000000", linewidth=0.8)
    top = 1.04 if row.curve is not None else 0.2
    axes.set(xlim=(0, row.until_s), ylim=(-step * len(row.answers) - 0.06, top))
    axes.set_yticks([0, 1] if row.curve is not None else [])
    axes.spines["left"].set_visible(row.curve is not None)
    axes.locator_params(axis="x", nbins=5)


def runs_of(track: Track) -> list[tuple[int, int]]:
    """First and last frame of each run without gaps; frames of a sampled track are a step apart."""
    if len(track) == 0:
        return []
    steps = np.diff(track.frames)
    usual = int(np.median(steps)) if len(steps) else 1
    breaks = np.flatnonzero(steps > usual)
    starts = track.frames[np.concatenate([[0], breaks + 1])]
    ends = track.frames[np.concatenate([breaks, [len(track) - 1]])]
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


@contextmanager
def _page(path: str | Path, rows: Sequence[Row], images: int, width_in: float) -> Iterator[list[list[Any]]]:
    """A figure with a line of axes for every row: the query, images, and the timeline.

    Positions are computed: matplotlib's own layouts leave wide gaps between images.
    """
    if not rows:
        raise DataError("There is nothing to draw: no query was chosen.")
    info = rows[0].video.info
    shares = [QUERY_WIDTH, *[info.width / info.height] * images, TIMELINE_WIDTH]
    free_in = width_in - GAP_IN * (len(shares) - 1) - TICKS_IN - 2 * EDGE_IN
    tall_in = free_in / sum(shares)
    page_in = LEGEND_IN + len(rows) * (tall_in + ABOVE_IN + BELOW_IN) + EDGE_IN
    with style.figure(path, width_in, page_in, layout=None) as drawn:
        names = [answer.name for answer in rows[0].answers]
        style.legend(drawn, names, truth=any(row.truth is not None for row in rows))
        grid = []
        for number in range(len(rows)):
            bottom_in = page_in - LEGEND_IN - (number + 1) * (tall_in + ABOVE_IN) - number * BELOW_IN
            left_in, line = EDGE_IN, []
            for place, share in enumerate(shares):
                left_in += TICKS_IN if place == len(shares) - 1 else 0.0
                at = (left_in / width_in, bottom_in / page_in, share * tall_in / width_in, tall_in / page_in)
                line.append(drawn.add_axes(at))
                left_in += share * tall_in + GAP_IN
            grid.append(line)
        yield grid
        grid[-1][-1].set_xlabel("time (s)", labelpad=1)


def _show_box_at(axes: Any, track: Track, frame: int, edge: str, **look: Any) -> None:
    boxes, there = track.at(np.array([frame]))
    if there[0]:
        style.show_box(axes, boxes[0].tolist(), edge, **look)


def _zoom(row: Row, frame: int, share: float) -> tuple[float, float, float, float]:
    """The part x1, y1, x2, y2 of the frame to show: `share` of its sides, around its boxes."""
    info = row.video.info
    tracks = ([row.truth] if row.truth is not None else []) + [answer.track for answer in row.answers]
    found = [boxes[0] for boxes, there in (track.at(np.array([frame])) for track in tracks) if there[0]]
    width, height = share * info.width, share * info.height
    middle = (
        np.mean([(box[:2] + box[2:]) / 2 for box in found], 0) if found else (info.width / 2, info.height / 2)
    )
    x1 = float(np.clip(middle[0] - width / 2, 0, info.width - width))
    y1 = float(np.clip(middle[1] - height / 2, 0, info.height - height))
    return x1, y1, x1 + width, y1 + height
