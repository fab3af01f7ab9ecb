"""A report from an answer: gathers what `html.py` shows."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import egohieraloc
from egohieraloc.inference.predict import Explained
from egohieraloc.inference.query_window import window_to_image
from egohieraloc.localize import Localizer
from egohieraloc.report.html import FrameMaps, HeatMap, ReportData, thumbnail, write_report
from egohieraloc.report.save import save_result
from egohieraloc.report.scene import scene_of
from egohieraloc.result import Result
from egohieraloc.types import Floats, QueryMask, ResponseTrack
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

EXPLAINED = 4  # samples whose maps are shown
PACKAGES = ("torch", "numpy", "opencv-python-headless", "av", "pycolmap")
MANY_SAMPLES = 500  # beyond it, thumbnails shrink so that the page stays small,
MAX_IMAGES = 1000  # and beyond this many only samples of tracks have their own


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
        _thumbnails(video, result),
        alternatives=result.alternatives,
        query_mask=query_mask,
        overlay_mp4=overlay.read_bytes() if isinstance(result.track, ResponseTrack) else None,
        frame_maps=maps,
        scene=scene_of(result, true_point_world),
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


def _thumbnails(video: Video, result: Result) -> tuple[bytes, ...]:
    """An image per sample; those that have none of their own, or cannot be decoded, take the one before."""
    indices = result.video.frame_indices
    width, quality = (400, 72) if len(indices) <= MANY_SAMPLES else (160, 60)
    found = [track for track in (result.track, *result.alternatives) if isinstance(track, ResponseTrack)]
    wanted = set(range(0, len(indices), -(-len(indices) // MAX_IMAGES) or 1))
    wanted.update(p.sample for track in found for p in track.predictions)
    frames = video.frames([indices[sample] for sample in sorted(wanted)])
    images = {f.index: thumbnail(f.rgb, width_px=width, quality=quality) for f in frames}
    shown: list[bytes] = []
    for index in indices:
        shown.append(images.get(index) or (shown[-1] if shown else next(iter(images.values()))))
    return tuple(shown)


def explain(
    result: Result, localizer: Localizer, video: Video, *, samples: int = EXPLAINED
) -> tuple[QueryMask, tuple[FrameMaps, ...]]:
    """The query's mask on its image, and the maps of a few samples of the track."""
    predictor = localizer.predictor
    prepared = predictor.prepare(result.query)
    height, width = result.query.image.shape[:2]
    mask = window_to_image(prepared.mask.mask, prepared.window.region, height, width)
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
            HeatMap("Foreground O", over_frame(explained.foreground), "similarity to the query"),
            HeatMap("Likelihood Z", over_frame(explained.likelihood), "query rather than its background"),
            HeatMap("Filter response", over_frame(explained.response), "correlation filter"),
            HeatMap("Location", over_frame(explained.location), "QAM: response under the ellipse"),
            HeatMap("Mask", over_frame(explained.mask), "RAM"),
        ),
        ellipse=(float(position[0]), float(position[1]), float(axes[0]), float(axes[1])),
        drift=(float(drift[0]), float(drift[1])),
    )
