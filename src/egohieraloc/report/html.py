"""The report: one HTML file that shows the answer, needs no network and opens from disk.

`ReportData` says all there is to show; `write_report` turns it into the page. Everything goes into the page
as JSON that the script in `templates/` puts in place as text or image, so that no name becomes markup.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from egohieraloc.files import atomic_path
from egohieraloc.query import Query
from egohieraloc.report.scene import SceneData, scene_payload
from egohieraloc.types import (
    Box,
    Floats,
    FramePrediction,
    NotFound,
    QueryMask,
    ResponseTrack,
    Rgb,
    ScoreCurve,
    VideoRef,
)

THUMBNAIL_WIDTH_PX = 400
MAP_SIDE_PX = 240
QUERY_WIDTH_PX = 480
QUERY_MARGIN = 0.6  # of the box's longer side, shown around it


@dataclass(frozen=True, eq=False)
class HeatMap:
    """One map over a whole frame, in [0, 1], with its name and, where it helps, what it means."""

    name: str
    values: Floats  # (h, w)
    note: str = ""


@dataclass(frozen=True, eq=False)
class FrameMaps:
    """The maps of one sample: DPM's O and Z, the filter's response, RAM's mask; and QAM's ellipse."""

    sample: int
    maps: tuple[HeatMap, ...]
    ellipse: tuple[float, float, float, float] | None = None  # centre x, y and semi-axes, original pixels
    drift: tuple[float, float] | None = None  # since the sample before, original pixels


@dataclass(frozen=True, eq=False)
class ReportData:
    """What a report shows. Only the first group must be there."""

    video: VideoRef
    query: Query
    curve: ScoreCurve
    answer: ResponseTrack | NotFound
    thumbnails: tuple[bytes, ...]  # a JPEG per sample, see `thumbnail`

    alternatives: tuple[ResponseTrack, ...] = ()
    query_mask: QueryMask | None = None  # over `query.image`
    overlay_mp4: bytes | None = None
    frame_maps: tuple[FrameMaps, ...] = ()
    scene: SceneData | None = None
    notes: tuple[str, ...] = ()  # plain sentences under the answer, such as the true error of the demo
    timings_s: tuple[tuple[str, float], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        lengths = len(self.thumbnails), len(self.curve.time_s), len(self.video.frame_indices)
        if len(set(lengths)) != 1:
            raise ValueError(
                "A report needs one thumbnail, one point of the curve and one frame number per sample, "
                f"got {lengths[0]}, {lengths[1]} and {lengths[2]}"
            )


def thumbnail(rgb: Rgb, *, width_px: int = THUMBNAIL_WIDTH_PX, quality: int = 72) -> bytes:
    """A small JPEG of a frame, never larger than the frame."""
    height, width = rgb.shape[:2]
    scale = min(1.0, width_px / width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return _encode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])


def write_report(path: str | Path, data: ReportData) -> None:
    """Write the page, atomically."""
    page = render_report(data)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_report(data: ReportData) -> str:
    """The page as text."""
    page = _template("report.html")
    parts = {
        "{{style}}": _template("report.css"),
        "{{script}}": _template("scene.js") + _template("report.js"),
        "{{data}}": _script_safe(json.dumps(_payload(data), allow_nan=False, separators=(",", ":"))),
    }
    for mark, text in parts.items():
        before, _, after = page.partition(mark)
        page = before + text + after
    return page


def _payload(data: ReportData) -> dict[str, Any]:
    """All the page shows, as JSON values; the border to the script."""
    found = isinstance(data.answer, ResponseTrack)
    tracks = ([data.answer] if isinstance(data.answer, ResponseTrack) else []) + list(data.alternatives)
    info = data.video.info
    return {
        "video": {
            "name": Path(data.video.path).name,
            "width": info.width,
            "height": info.height,
            "fps": float(info.fps),
            "sampleFps": data.video.sample_fps,
            "frames": info.num_frames,
        },
        "found": found,
        "reason": data.answer.reason if isinstance(data.answer, NotFound) else None,
        "score": data.answer.score,
        "notes": list(data.notes),
        "query": _query(data),
        "samples": {
            "time": _rounded(data.curve.time_s),
            "frame": list(data.video.frame_indices),
            "image": [
                None if jpeg is before else _uri("image/jpeg", jpeg)  # the same one as before
                for before, jpeg in pairwise((b"", *data.thumbnails))
            ],
        },
        "curve": {
            "raw": _rounded(data.curve.raw),
            "smooth": _rounded(data.curve.smooth),
            "threshold": round(data.curve.threshold, 4),
            "intervals": [list(interval) for interval in data.curve.intervals],
        },
        "tracks": [_track(track) for track in tracks],
        "overlay": _uri("video/mp4", data.overlay_mp4) if data.overlay_mp4 else None,
        "maps": [_maps(maps) for maps in data.frame_maps],
        "scene": scene_payload(data.scene) if data.scene else None,
        "timings": [[name, round(seconds, 3)] for name, seconds in data.timings_s],
        "versions": [list(pair) for pair in data.versions],
    }


def _query(data: ReportData) -> dict[str, Any]:
    """The query with some of its surroundings; box and mask follow the cut."""
    query, mask = data.query, data.query_mask
    height, width = query.image.shape[:2]
    margin = QUERY_MARGIN * max(query.box.width, query.box.height)
    around = Box(query.box.x1 - margin, query.box.y1 - margin, query.box.x2 + margin, query.box.y2 + margin)
    x1, y1, x2, y2 = (round(v) for v in around.clipped(width, height).xyxy)
    cut = np.s_[y1:y2, x1:x2]
    return {
        "image": _uri("image/jpeg", thumbnail(query.image[cut], width_px=QUERY_WIDTH_PX, quality=85)),
        "width": x2 - x1,
        "height": y2 - y1,
        "box": _numbers((query.box.x1 - x1, query.box.y1 - y1, query.box.x2 - x1, query.box.y2 - y1)),
        "mask": mask_uri(mask.mask[cut]) if mask else None,
        "quality": round(mask.quality, 3) if mask else None,
        "level": mask.level if mask else None,
        "seenAt": query.seen_at_s,
    }


def _track(track: ResponseTrack) -> dict[str, Any]:
    views = [_view(prediction) for prediction in track.predictions]
    return {"start": track.start, "end": track.end, "score": round(track.score, 4), "views": views}


def _view(prediction: FramePrediction) -> dict[str, Any]:
    mask, around = prediction.mask, prediction.mask_box
    return {
        "sample": prediction.sample,
        "score": round(prediction.score, 4),
        "box": _numbers(prediction.box.xyxy),
        "mask": mask_uri(mask) if mask is not None and around is not None else None,
        "maskBox": _numbers(around.xyxy) if around is not None else None,
    }


def _maps(maps: FrameMaps) -> dict[str, Any]:
    return {
        "sample": maps.sample,
        "ellipse": _numbers(maps.ellipse) if maps.ellipse else None,
        "drift": _numbers(maps.drift) if maps.drift else None,
        "maps": [{"name": m.name, "note": m.note, "image": _map_uri(m.values)} for m in maps.maps],
    }


def _map_uri(values: Floats) -> str:
    """A map in viridis, smoothly enlarged; what is not finite counts as 0."""
    clean = np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    scale = max(1.0, MAP_SIDE_PX / max(clean.shape))
    size = (round(clean.shape[1] * scale), round(clean.shape[0] * scale))
    large = cv2.resize(clean.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)
    image = cv2.applyColorMap(np.round(large * 255).astype(np.uint8), cv2.COLORMAP_VIRIDIS)
    return _uri("image/jpeg", _encode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 82]))


def mask_uri(mask: np.ndarray) -> str:
    """A mask as a PNG that is clear where the object is not."""
    alpha = np.round(np.clip(np.nan_to_num(mask.astype(np.float32)), 0, 1) * 255).astype(np.uint8)
    image = np.zeros((*alpha.shape, 4), np.uint8)
    image[..., :3] = (94, 197, 34)
    image[..., 3] = alpha
    return _uri("image/png", _encode(".png", image, []))


def _encode(ending: str, image: np.ndarray, options: list[int]) -> bytes:
    done, data = cv2.imencode(ending, image, options)
    if not done:
        raise ValueError(f"Cannot encode an image of shape {image.shape} as {ending}")
    return data.tobytes()


def _numbers(values: tuple[float, ...]) -> list[float]:
    return [round(v, 1) for v in values]


def _rounded(values: Floats) -> list[float]:
    return [round(v, 4) for v in np.asarray(values, np.float64).tolist()]


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _script_safe(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _template(name: str) -> str:
    return resources.files("egohieraloc.report").joinpath("templates", name).read_text(encoding="utf-8")
