"""The look of all figures: sizes, fonts, colours that colour-blind readers tell apart; and writing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_path
from egohieraloc.types import Rgb

COLUMN_IN, PAGE_IN = 3.4, 7.0  # widths of a column and of a page with two
TRUTH = "#009e73"
# Okabe and Ito's colours without the green of the ground truth and the yellow, which is too faint on white.
PALETTE = ("#d55e00", "#0072b2", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))  # for print in grey
QUIET = "#6b7280"
STYLE: dict[Any, Any] = {
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "grid.linewidth": 0.4,
    "grid.color": "#d7dbdf",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}
FORMATS = (".pdf", ".png", ".svg")
DPI = 250
MAX_SIDE_PX = 640  # of a frame: more cannot be seen at this size


@contextmanager
def figure(
    path: str | Path, width_in: float, height_in: float, *, layout: Any = "constrained"
) -> Iterator[Any]:
    """An empty matplotlib figure, written when the block succeeds, as PDF, PNG or SVG by its ending."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise OutputError(f"Figures are written as {', '.join(FORMATS)}, got '{path}'. Change the ending.")
    with rc_context(STYLE):
        drawn = Figure(figsize=(width_in, height_in), layout=layout)
        FigureCanvasAgg(drawn)
        yield drawn
        with atomic_path(path) as temporary:
            drawn.savefig(temporary, dpi=DPI, format=ending[1:])


def colour(index: int) -> str:
    """Colour of the method at this index."""
    return PALETTE[index % len(PALETTE)]


def dashes(index: int) -> Any:
    return DASHES[index % len(DASHES)]


def show_image(axes: Any, image: Rgb, *, title: str = "", below: str = "") -> None:
    """An image without axes, reduced to what can be seen; coordinates stay those of its pixels."""
    height, width = image.shape[:2]
    scale = min(1.0, MAX_SIDE_PX / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    axes.imshow(cv2.resize(image, size, interpolation=cv2.INTER_AREA), extent=(0, width, height, 0))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, pad=2)
    if below:
        axes.set_xlabel(below, labelpad=2)


def show_box(axes: Any, box: Sequence[float], edge: str, *, width: float = 1.0, dash: Any = "-") -> None:
    """A box x1, y1, x2, y2 with a dark outline, so that it shows on any background."""
    from matplotlib.patches import Rectangle

    x1, y1, x2, y2 = box
    for line, shade, style in ((width + 0.7, "#000000b0", "-"), (width, edge, dash)):
        axes.add_patch(
            Rectangle(
                (x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=shade, linewidth=line, linestyle=style
            )
        )


def legend(
    drawn: Any, names: Sequence[str], *, truth: bool, marker: str | None = None, columns: int = 8
) -> None:
    """One legend above everything: the ground truth and the methods."""
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], color=TRUTH, linewidth=1.6, label="ground truth")] if truth else []
    for i, name in enumerate(names):
        dash: Any = "" if marker else dashes(i)
        entries.append(
            Line2D(
                [],
                [],
                color=colour(i),
                linewidth=1.6,
                linestyle=dash,
                marker=marker,
                markersize=4,
                label=name,
            )
        )
    where = "outside upper center" if drawn.get_layout_engine() else "upper center"
    drawn.legend(handles=entries, loc=where, ncols=min(columns, len(entries)), borderaxespad=0.2)


def evenly(values: Sequence[int] | NDArray[np.integer], count: int) -> list[int]:
    """At most `count` of the values, evenly spaced, the ends included; the middle one when `count` is 1."""
    values = np.asarray(values)
    if len(values) <= count:
        return [int(v) for v in values]
    if count == 1:
        return [int(values[len(values) // 2])]
    return [int(values[i]) for i in np.linspace(0, len(values) - 1, count).round().astype(int)]
