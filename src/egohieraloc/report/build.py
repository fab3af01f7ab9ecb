"""A report from an answer: gathers what `html.py` shows."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import egohieraloc
from egohieraloc.geometry.locate import describe
from egohieraloc.inference.predict import Explained
from egohieraloc.inference.query_window import window_to_picture
from egohieraloc.localize import Localizer
from egohieraloc.report.html import FrameMaps, HeatMap, ReportData, thumbnail, write_report
from egohieraloc.report.save import save_result
from egohieraloc.report.scene import SceneData
from egohieraloc.result import Result
from egohieraloc.types import Floats, Localization3D, QueryMask, ResponseTrack
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

EXPLAINED = 4  # samples whose maps are shown
PACKAGES = ("torch", "numpy", "opencv-python-headless", "av", "pycolmap")
MANY_SAMPLES = 500  # beyond it, thumbnails shrink so that the page stays small


def save_report(
    result: Result,
    folder: Path,
    localizer: Localizer | None = None,
    *,
    folder_fps: float = 5.0,
    notes: tuple[str, ...] = (),
    true_point_world: Floats | None = None,
) -> Path:
    """Write all files of an answer and report.html."""
    save_result(result, folder, folder_fps=folder_fps)
    video = Video.open(result.video.path, folder_fps=folder_fps)
    overlay = folder / "overlay.mp4"
    query_mask, maps = explain(result, localizer, video) if localizer else (None, ())
    data = ReportData(
        result.video,
        result.query,
        result.curve,
        result.track,
        _thumbnails(video, result.video.frame_indices),
        alternatives=result.alternatives,
        query_mask=query_mask,
        overlay_mp4=overlay.read_bytes() if isinstance(result.track, ResponseTrack) else None,
        frame_maps=maps,
        scene=_scene(result, true_point_world),
        notes=notes,
        timings_s=result.timings_s,
        versions=_versions(localizer),
    )
    path = folder / "report.html"
    write_report(path, data)
    return path


def _versions(localizer: Localizer | None) -> tuple[tuple[str, str], ...]:
    weights = (("weights", localizer.weights.fingerprint),) if localizer else ()
    packages = tuple((name, metadata.version(name)) for name in PACKAGES)
    return (
        ("egohieraloc", egohieraloc.__version__),
        *weights,
        ("python", platform.python_version()),
        *packages,
    )


def _thumbnails(video: Video, indices: tuple[int, ...]) -> tuple[bytes, ...]:
    """A picture per sample; a frame that cannot be decoded is stood for by the one before it."""
    width, quality = (400, 72) if len(indices) <= MANY_SAMPLES else (160, 60)
    pictures = {f.index: thumbnail(f.rgb, width_px=width, quality=quality) for f in video.frames(indices)}
    shown: list[bytes] = []
    for index in indices:
        shown.append(pictures.get(index) or (shown[-1] if shown else next(iter(pictures.values()))))
    return tuple(shown)


def explain(
    result: Result, localizer: Localizer, video: Video, *, samples: int = EXPLAINED
) -> tuple[QueryMask, tuple[FrameMaps, ...]]:
    """The query's mask on its picture, and the maps of a few samples of the track."""
    predictor = localizer.predictor
    prepared = predictor.prepare(result.query)
    height, width = result.query.image.shape[:2]
    mask = window_to_picture(prepared.mask.mask, prepared.window.region, height, width)
    query_mask = QueryMask(mask, prepared.mask.quality, prepared.mask.level)
    if not isinstance(result.track, ResponseTrack):
        return query_mask, ()
    first, last = result.track.start, result.track.end
    wanted = set(np.linspace(first, last, samples).round().astype(int).tolist())
    letterbox = Letterbox(video.info.width, video.info.height, predictor.config.input_size)
    encoded = localizer.encode(video, until_s=float(result.curve.time_s[-1]) + 1e-6)
    state, sample, shown = predictor.start(prepared), first, []
    for packed in encoded.take(first, last):
        explained, state = predictor.explain(prepared, packed, state)
        for each in explained:
            if sample in wanted:
                shown.append(_frame_maps(sample, each, letterbox))
            sample += 1
    return query_mask, tuple(shown)


def _frame_maps(sample: int, explained: Explained, letterbox: Letterbox) -> FrameMaps:
    def over_frame(values: NDArray[np.float32]) -> Floats:
        cells, _ = letterbox.mask_to_frame(values)
        return np.clip(cells, 0, 1).astype(np.float64)

    position = letterbox.points_from_canvas(explained.position)
    scale = np.array(letterbox.scale)
    axes, drift = explained.semi_axes / scale, explained.drift / scale
    return FrameMaps(
        sample,
        (
            HeatMap("Foreground O", over_frame(explained.foreground), "likeness to the query"),
            HeatMap("Likelihood Z", over_frame(explained.likelihood), "query rather than its background"),
            HeatMap("Filter response", over_frame(explained.response), "correlation filter"),
            HeatMap("Location", over_frame(explained.location), "QAM: response under the ellipse"),
            HeatMap("Mask", over_frame(explained.mask), "RAM"),
        ),
        ellipse=(float(position[0]), float(position[1]), float(axes[0]), float(axes[1])),
        drift=(float(drift[0]), float(drift[1])),
    )


def _scene(result: Result, true_point_world: Floats | None) -> SceneData | None:
    if result.place is None:
        return None
    words = describe(result.place) if isinstance(result.place, Localization3D) else ""
    cameras = result.cameras
    posed = [frame for frame in cameras.frames if frame.pose is not None] if cameras else []
    return SceneData(
        result.place,
        tuple(frame.index for frame in posed),
        tuple(frame.pose.cam_from_world for frame in posed if frame.pose is not None),
        words,
        cameras.points.xyz_world if cameras else None,
        true_point_world,
    )
