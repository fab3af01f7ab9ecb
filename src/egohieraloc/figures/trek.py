"""TREK-150's plots: success, precision and robustness over their thresholds, and by attribute.

They are the paper's figures trekope and TREKMSE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from egohieraloc.data.base import QueryKey
from egohieraloc.data.trek150 import Protocol, TrekSequence
from egohieraloc.errors import DataError
from egohieraloc.evaluation import trek150
from egohieraloc.figures import style
from egohieraloc.types import Floats

Boxes = Mapping[QueryKey, Floats]
PLOTS = (
    ("success", trek150.SUCCESS_THRESHOLDS, "IoU threshold", "success", "SS"),
    ("normalized_precision", trek150.PRECISION_THRESHOLDS, "normalised error", "precision", "NPS"),
    ("robustness", trek150.ROBUSTNESS_THRESHOLDS, "IoU threshold", "robustness", "GSR"),
)


def draw_ope(
    path: str | Path,
    sequences: Sequence[TrekSequence],
    methods: Sequence[tuple[str, Boxes]],
    *,
    width_in: float = style.PAGE_IN,
) -> None:
    """One-pass evaluation: a plot per measure; each name is followed by the means SS, NPS and GSR."""
    curves = [(name, _mean_curves(name, sequences, boxes)) for name, boxes in methods]
    with style.figure(path, width_in, 0.33 * width_in + 0.12 * len(methods)) as drawn:
        for axes, (field, thresholds, label, title, short) in zip(drawn.subplots(1, 3), PLOTS, strict=True):
            for i, (_, found) in enumerate(curves):
                axes.plot(thresholds, found[field], color=style.colour(i), linestyle=style.dashes(i))
            axes.set(xlabel=label, ylabel=f"{title} (mean: {short})", ylim=(0, 1.02))
            axes.margins(x=0)
            axes.grid(visible=True)
        means = [", ".join(f"{found[field].mean():.3f}" for field, *_ in PLOTS) for _, found in curves]
        names = [f"{name} [{values}]" for (name, _), values in zip(curves, means, strict=True)]
        style.legend(drawn, names, truth=False, columns=3)


def draw_attributes(
    path: str | Path,
    sequences: Sequence[TrekSequence],
    methods: Sequence[tuple[str, Boxes]],
    protocol: Protocol,
    *,
    width_in: float = style.PAGE_IN,
) -> None:
    """A dot per method and attribute, for each of the three measures."""
    reports = [(name, trek150.report_trek150(sequences, protocol, boxes)) for name, boxes in methods]
    counts = {name: count for name, count, _ in reports[0][1].attributes}
    if not counts:
        raise DataError("The sequences have no attributes: each needs an attributes.txt.")
    labels = [f"{name} ({count})" for name, count in counts.items()] + [f"all ({len(sequences)})"]
    places = np.arange(len(labels))
    with style.figure(path, width_in, 0.7 + 0.17 * len(labels)) as drawn:
        style.legend(drawn, [name for name, _ in methods], truth=False, marker="o")
        plots = drawn.subplots(1, 3, sharey=True)
        for axes, (field, _, _, _, short) in zip(plots, PLOTS, strict=True):
            for i, (_, report) in enumerate(reports):
                rows = [getattr(s, field) for _, _, s in report.attributes] + [getattr(report.overall, field)]
                beside = (
                    0.5 * (i - (len(reports) - 1) / 2) / len(reports)
                )  # equal values do not hide each other
                axes.plot(rows, places + beside, "o", color=style.colour(i), markersize=3)
            axes.set(xlabel=short, yticks=places, yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))
            axes.grid(visible=True, axis="both")
            axes.tick_params(length=0)
            axes.locator_params(axis="x", nbins=5)
            axes.spines["left"].set_visible(False)
            axes.axhline(len(labels) - 1.5, color=style.QUIET, linewidth=0.5)


def _mean_curves(name: str, sequences: Sequence[TrekSequence], boxes: Boxes) -> dict[str, Floats]:
    """Every sequence has the same weight; one without a prediction counts as lost from the start, and one
    that cannot be used as never found."""
    runs = [sequence.runs("ope")[0] for sequence in sequences if not sequence.problem]
    lost = sum(1 for sequence in sequences if sequence.problem)
    if not any(run.key in boxes for run in runs):
        raise DataError(f"'{name}' has no OPE prediction for any of the {len(runs)} sequences.")
    found = [
        trek150.run_curves(run, boxes[run.key] if run.key in boxes else np.full_like(run.truth_xywh, np.nan))
        for run in runs
    ]
    known = [curves for curves in found if curves is not None]
    return {
        field: np.sum([getattr(curves, field) for curves in known], axis=0) / (len(known) + lost)
        for field, *_ in PLOTS
    }
