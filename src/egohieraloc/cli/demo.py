"""`egohieraloc demo`: the whole thing on the bundled clip, with the truth beside the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from egohieraloc import demo as bundled
from egohieraloc.boxes import iou_xyxy
from egohieraloc.cli import common
from egohieraloc.cli.locate import describe
from egohieraloc.demo import DemoTruth
from egohieraloc.query import Query
from egohieraloc.types import ResponseTrack
from egohieraloc.video.reader import Video


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo_report"),
    model: common.Model = "mini",
    device: common.Device = None,
) -> None:
    """Find a teddy bear in a rendered walk through a room, and compare with the truth."""
    truth = bundled.load_truth()
    video = Video.open(bundled.CLIP)
    query = Query.from_image(bundled.QUERY, box=truth.query_box)
    localizer = common.build_localizer(model, device, None, "5", None)
    print(f"Looking for the {truth.target_name} in a walk of {video.duration_s:.0f} s ...")
    with common.progress_bar(enabled=True) as progress:
        result = localizer.locate(query, video, progress=progress)
    print(describe(result))
    print(_beside_truth(result.track, truth) if isinstance(result.track, ResponseTrack) else _told(truth))
    result.save(out)
    print(f"Everything about it is in {out}/: overlay.mp4 shows it, result.json has the numbers.")


def _beside_truth(track: ResponseTrack, truth: DemoTruth) -> str:
    answered = {p.sample: p.box for p in track.predictions}
    true = {sample: box for sample, box in enumerate(truth.boxes) if box is not None}
    first, last = truth.appearances[-1]
    shared = [sample for sample in range(first, last + 1) if sample in answered]
    overlap = sum(float(iou_xyxy(np.array(answered[s].xyxy), np.array(true[s].xyxy))) for s in shared)
    return (
        f"{_told(truth)} The answer has {len(shared)} of these {last + 1 - first} samples; "
        f"there its boxes overlap the true ones by {100 * overlap / max(1, len(shared)):.0f} %."
    )


def _told(truth: DemoTruth) -> str:
    first_s, last_s = (sample / truth.sample_fps for sample in truth.appearances[-1])
    return f"In truth it was last in sight from {first_s:.1f} s to {last_s:.1f} s."
