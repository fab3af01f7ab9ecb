"""Everything an answer leaves on disk: result.json, the query, masks, the overlay video and the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from egohieraloc.files import write_json
from egohieraloc.geometry.reconstruction import write_cameras
from egohieraloc.images import write_image
from egohieraloc.report.draw import write_curve, write_overlay
from egohieraloc.result import Result
from egohieraloc.types import ResponseTrack
from egohieraloc.video.reader import Video


def save_result(result: Result, folder: Path, *, folder_fps: float = 5.0) -> Path:
    """Write all files of an answer; result.json comes last, so that it is there only when all is."""
    track, query = result.track, result.query
    write_image(folder / "query.png", query.image)
    if query.mask is not None:
        write_image(folder / "query_mask.png", query.mask)
    chosen = None
    if isinstance(track, ResponseTrack):
        chosen = (track.start, track.end)
        for prediction in track.predictions:
            if prediction.mask is not None:
                write_image(folder / "masks" / f"{prediction.frame_index:07d}.png", prediction.mask)
        video = Video.open(result.video.path, folder_fps=folder_fps)
        write_overlay(folder / "overlay.mp4", video, track.predictions, fps=result.video.sample_fps)
    if len(result.curve.raw):
        write_curve(folder / "curve.png", result.curve, chosen=chosen)
    if result.cameras is not None:
        write_cameras(folder / "cameras.json", result.cameras)
    write_json(folder / "query.json", _question(result))
    path = folder / "result.json"
    write_json(path, result.to_dict())
    return path


def _question(result: Result) -> dict[str, Any]:
    """What result.json leaves out: where the object is in query.png, each sample's frame, where masks lie."""
    track = result.track
    masks = [p.mask_box for p in track.predictions] if isinstance(track, ResponseTrack) else []
    return {
        "box": list(result.query.box.xyxy),
        "seen_at_s": result.query.seen_at_s,
        "sample_frames": list(result.video.frame_indices),
        "mask_boxes": [None if box is None else list(box.xyxy) for box in masks],
    }
