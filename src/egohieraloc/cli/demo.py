"""`egohieraloc demo`: everything on the bundled clip, with the truth beside the answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from egohieraloc import demo as bundled
from egohieraloc.boxes import iou_xyxy
from egohieraloc.cli import common
from egohieraloc.clock import clock
from egohieraloc.demo import DemoTruth
from egohieraloc.geometry.align import align_to_positions
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.progress import progress_bars
from egohieraloc.query import Query
from egohieraloc.report.build import save_report
from egohieraloc.types import Floats, Localization3D, ResponseTrack
from egohieraloc.video.reader import Video

# Enough for a clean clip of 40 s, and quick: every second sample has a pose, and two of three are in the map.
DEMO_SETTINGS = [
    "sfm.max_frames=100",
    "sfm.max_image_side=480",
    "sfm.max_map_frames=67",
    "sfm.overlap=8",
    "sfm.attach_neighbours=3",
    "sfm.calibration_frames=0",
]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo_report"),
    in_3d: Annotated[bool, typer.Option("--3d/--2d", help="Also find the place in space.")] = True,
    model: common.Model = "mini",
    device: common.Device = None,
    engine: common.Engine = None,
) -> None:
    """Find a teddy bear in a rendered walk through a room, and compare with the truth."""
    truth = bundled.load_truth()
    video = Video.open(bundled.CLIP)
    query = Query.from_image(bundled.QUERY, box=truth.query_box)
    localizer = common.build_localizer(model, device, DEMO_SETTINGS, "5", None, engine=engine)
    print(f"Searching for the {truth.target_name} in a walk of {video.duration_s:.0f} s ...")
    with progress_bars() as progress:
        result = localizer.locate(query, video, in_3d=in_3d, progress=progress)
    notes, true_point = [true_span(truth)], None
    if isinstance(result.track, ResponseTrack):
        notes.append(compare_track(result.track, truth))
    if isinstance(result.place, Localization3D) and result.cameras is not None:
        error = compare_place(result.place, result.cameras, truth)
        notes.append(place_note(result.place, error))
        true_point = error.true_point_world
    print(result.summary, *notes, sep="\n")
    page = save_report(result, out, notes=notes, true_point_world=true_point)
    print(f"See it: {page}")


def true_span(truth: DemoTruth) -> str:
    """When the object was really last in sight."""
    first_s, last_s = (sample / truth.sample_fps for sample in truth.appearances[-1])
    return f"Truth: it was last in sight from {clock(first_s)} to {clock(last_s)}."


def compare_track(track: ResponseTrack, truth: DemoTruth) -> str:
    """How the answered boxes agree with the true ones."""
    answered = {p.sample: p.box for p in track.predictions}
    true = {sample: box for sample, box in enumerate(truth.boxes) if box is not None}
    first, last = truth.appearances[-1]
    shared = [sample for sample in range(first, last + 1) if sample in answered]
    overlap = sum(float(iou_xyxy(np.array(answered[s].xyxy), np.array(true[s].xyxy))) for s in shared)
    return (
        f"The answer has {len(shared)} of these {last + 1 - first} samples; "
        f"there its boxes overlap the true ones by {100 * overlap / max(1, len(shared)):.0f} %."
    )


@dataclass(frozen=True, eq=False)
class PlaceError:
    """How far an answered place is from the true one."""

    error_m: float
    angle_deg: float
    distance_m: float  # true, from the query camera
    true_point_world: Floats  # (3,) in the frame of the answered cameras


def compare_place(place: Localization3D, cameras: Reconstruction, truth: DemoTruth) -> PlaceError:
    """How far the answered place is from the true one, the camera path being laid over the true path."""
    rotation, shift = truth.cam_from_world[:, :, :3], truth.cam_from_world[:, :, 3]
    centers = -np.einsum("nij,ni->nj", rotation, shift)
    _, fit = align_to_positions(cameras, dict(enumerate(centers)), max_error=0.1)
    error_m = np.linalg.norm(fit.target_from_source.points(place.point_world) - truth.target_center_world)
    true = rotation[place.query_frame] @ truth.target_center_world + shift[place.query_frame]
    cosine = true @ place.displacement / (np.linalg.norm(true) * place.distance)
    angle_deg = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    true_point = fit.target_from_source.inverse().points(truth.target_center_world)
    return PlaceError(float(error_m), float(angle_deg), float(np.linalg.norm(true)), true_point)


def place_note(place: Localization3D, off: PlaceError) -> str:
    return (
        f"In space the answer is {100 * off.error_m:.0f} cm off at {off.distance_m:.1f} m true distance, "
        f"its direction by {off.angle_deg:.1f} degrees "
        f"({place.posed_frames} of {place.num_frames} frames have a pose)."
    )
