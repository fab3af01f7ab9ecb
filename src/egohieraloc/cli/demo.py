"""`egohieraloc demo`: the whole thing on the bundled clip, with the truth beside the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    truth = bundled.read_truth()
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
    first, last = truth.last_appearance
    boxes = {p.sample: p.box.xyxy for p in track.predictions}
    common_samples = [s for s in range(first, last + 1) if s in boxes and truth.boxes[s] is not None]
    overlap = [float(iou_xyxy(boxes[s], truth.boxes[s].xyxy)) for s in common_samples]
    union = max(last, track.end) - min(first, track.start) + 1
    mean = sum(overlap) / len(overlap) if overlap else 0.0
    return (
        f"{_told(truth)} The answer shares {len(common_samples)} of {union} samples with it; "
        f"there its boxes overlap the true ones by {100 * mean:.0f} %."
    )


def _told(truth: DemoTruth) -> str:
    first, last = truth.last_appearance
    return f"In truth it was last in sight from {first / truth.sample_fps:.1f} s to {last / truth.sample_fps:.1f} s."
