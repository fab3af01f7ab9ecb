"""What the network saw, frame by frame (the paper's figures ablatevis and ellipse_vis)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import DataError
from egohieraloc.figures import style
from egohieraloc.figures.rows import query_image
from egohieraloc.result import Result
from egohieraloc.types import FrameMaps, ResponseTrack
from egohieraloc.video.reader import Video

ROWS = (  # label, map, whether the frame is seen through it
    ("DPM: likelihood", "likelihood", False),
    ("over the frame", "likelihood", True),
    ("filter response", "response", False),
    ("QAM: location", "location", False),
    ("RAM: mask", "mask", True),
)
COLOURS = "viridis"


def draw_maps(
    path: str | Path,
    result: Result,
    *,
    frames: int = 4,
    width_in: float = style.PAGE_IN,
) -> None:
    """A column per frame, at most those whose maps were kept. A map is scaled by its largest value."""
    if not isinstance(result.track, ResponseTrack):
        raise DataError(f"Nothing was found, so there are no maps to show: {result.track.reason}")
    if not result.maps:
        raise DataError("This answer was saved without its maps. Ask again with `egohieraloc locate --out`.")
    video, info = Video.reopen(result.video.source), result.video.info
    chosen = np.unique(
        np.linspace(0, len(result.maps) - 1, min(frames, len(result.maps))).round().astype(int)
    )
    maps = [result.maps[k] for k in chosen]
    cell_in = (width_in - 0.2) / (len(maps) + 0.6)
    height_in = (len(ROWS) + 1) * (cell_in * info.height / info.width + 0.05) + 0.2
    with style.figure(path, width_in, height_in) as drawn:
        drawn.get_layout_engine().set(w_pad=0.01, h_pad=0.01, hspace=0.0, wspace=0.0)
        grid = drawn.subplots(len(ROWS) + 1, len(maps) + 1, width_ratios=[0.6, *[1.0] * len(maps)])
        style.show_image(grid[0, 0], query_image(result.query), title="query")
        for row, (label, *_) in enumerate(ROWS, 1):
            grid[row, 0].set_axis_off()
            grid[row, 0].text(1, 0.5, label, ha="right", va="center", transform=grid[row, 0].transAxes)
        for column, each in enumerate(maps, 1):
            _show_column(grid[:, column], each, result, video, [_largest(maps, name) for _, name, _ in ROWS])


def _show_column(axes: Any, maps: FrameMaps, result: Result, video: Video, largest: list[float]) -> None:
    """The frame with its box, then every map; the ellipse searched lies over the maps it shapes."""
    frame = video.frame(int(result.video.frame_index[maps.sample]))
    style.show_image(axes[0], frame.rgb, title=f"{frame.time_s:.1f} s")
    if isinstance(result.track, ResponseTrack):
        style.show_box(
            axes[0], result.track.predictions[maps.sample - result.track.start].box.xyxy, style.colour(0)
        )
    for place, (_, name, through), most in zip(axes[1:], ROWS, largest, strict=True):
        if through:
            style.show_image(place, frame.rgb)
        place.imshow(
            getattr(maps, name),
            extent=(0, video.info.width, video.info.height, 0),
            vmin=0,
            vmax=most,
            cmap=COLOURS,
            interpolation="bilinear",
            alpha=0.55 if through else 1.0,
        )
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
        if not through and name != "likelihood":
            _show_ellipse(place, maps)
    for place in axes:
        place.set(xlim=(0, video.info.width), ylim=(video.info.height, 0))


def _show_ellipse(axes: Any, maps: FrameMaps) -> None:
    from matplotlib.patches import Ellipse

    x, y, half_width, half_height = maps.ellipse
    look: dict[str, Any] = {"color": "#ffffff", "linewidth": 0.7}
    axes.add_patch(
        Ellipse((x, y), 2 * half_width, 2 * half_height, fill=False, linestyle=(0, (3, 2)), **look)
    )
    axes.plot([x - maps.drift[0], x], [y - maps.drift[1], y], **look)


def _largest(maps: list[FrameMaps], name: str) -> float:
    return max(float(getattr(each, name).max()) for each in maps) or 1.0
