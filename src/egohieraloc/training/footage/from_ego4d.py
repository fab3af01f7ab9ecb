"""Ego4D-VQ as footage: boxes of the last appearance, masks made from them, read like the benchmark itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from egohieraloc.data.base import ClipQueries, Ints, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.errors import DataError, VideoError
from egohieraloc.models.query_mask import MaskProvider
from egohieraloc.training.footage.footage import FootageObject, View, large_enough
from egohieraloc.training.footage.pseudo_masks import MaskCache, paint
from egohieraloc.types import Rgb
from egohieraloc.video.reader import Video

UNSURE = 2  # frames after an appearance that are neither yes nor no: annotators stop early or late
OPEN_VIDEOS = 64  # tables of frame times that a process keeps


class Ego4dFootage:
    """The queries that have an answer and a clip: `<clips>/<clip_uid>.mp4` or a folder of its frames."""

    trust = 0.3

    def __init__(self, annotations: Path, clips: Path, masks: MaskCache) -> None:
        self.objects: list[FootageObject] = []
        self._clips, self._masks = clips, masks
        self._fps: dict[str, float] = {}
        for clip in read_vq2d(annotations):
            if clip.clip_uid is None or not any(path.exists() for path in clip_paths(clips, clip.clip_uid)):
                continue
            self._fps[clip.clip_uid] = clip.fps
            self.objects += filter(None, (_object(clip, clip.clip_uid, query) for query in clip.queries))
        if not self.objects:
            raise DataError(
                f"No query of {annotations} has an answer and a clip in {clips}. Wanted there: "
                "<clip_uid>.mp4, or a folder <clip_uid> of frames."
            )

    def require_masks(self) -> None:
        """Training would only find out later."""
        missing = self._masks.missing(self.objects)
        if missing:
            raise DataError(
                f"{len(missing)} of {len(self.objects)} objects have no masks in {self._masks.folder}. "
                "Run `egohieraloc pseudo-masks` first."
            )

    def make_masks(self, provider: MaskProvider, *, progress: Callable[[int, int], None]) -> int:
        """Make the masks that are missing; each object is kept at once, so this may be stopped."""
        missing = self._masks.missing(self.objects)
        for done, target in enumerate(missing):
            progress(done, len(missing))
            self._masks.make(target, self, provider)
        return len(missing)

    def images(self, target: FootageObject, frames: Ints) -> list[Rgb]:
        """Frames are the annotation's; the clip may have any rate and size."""
        fps = self._fps[target.key]
        video = _open(next(path for path in clip_paths(self._clips, target.key) if path.exists()), fps)
        shown = video.shown_at(frames / fps)
        found = {frame.index: frame.rgb for frame in video.frames(np.unique(shown))}
        if not found.keys() >= set(shown.tolist()):
            raise VideoError(f"Frames of {video.path} that {target.name} needs are damaged.")
        return [found[int(index)] for index in shown]

    def views(self, target: FootageObject, frames: Ints) -> list[View]:
        views = []
        for frame, image in zip(frames, self.images(target, frames), strict=True):
            box = target.box(int(frame), image)
            if box is None:
                views.append(View(image))
                continue
            grid = self._masks.grids(target)[np.searchsorted(target.boxes.frames, frame)]
            views.append(View(image, box, paint(grid, box, *image.shape[:2])))
        return views


def _object(clip: ClipQueries[VisualQuery], clip_uid: str, query: VisualQuery) -> FootageObject | None:
    """Known are the frames of the appearance and, as it is the last one, those from there to the question."""
    if query.response is None:
        return None
    response = large_enough(query.response.clipped(query.width, query.height))
    if len(response) == 0:
        return None
    crop = Track.from_boxes([query.crop_frame], [query.crop.xyxy])
    crop = large_enough(crop.clipped(query.width, query.height))
    boxes = response if np.isin(crop.frames, response.frames).all() else _joined(response, crop)
    after = np.arange(query.response.frames[-1] + 1 + UNSURE, query.query_frame)
    return FootageObject(
        name=str(query.key),
        same=f"{clip.name}: {query.object_title or query.key}",
        place=clip.video_uid,
        key=clip_uid,
        boxes=boxes,
        width=query.width,
        height=query.height,
        known=np.concatenate([response.frames, after]),
        crop_frame=int(crop.frames[0]) if len(crop) else None,
    )


def _joined(one: Track, other: Track) -> Track:
    frames = np.concatenate([one.frames, other.frames])
    return Track.from_boxes(frames.tolist(), np.concatenate([one.boxes_xyxy, other.boxes_xyxy]))


@lru_cache(maxsize=OPEN_VIDEOS)
def _open(path: Path, fps: float) -> Video:
    return Video.open(path, folder_fps=fps)
