"""Ego4D-VQ as footage: the boxes of response tracks and query crops, with pseudo-masks made from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from egohieraloc.data.base import ClipQueries, Ints, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.errors import DataError, VideoError
from egohieraloc.models.query_mask import MaskProvider
from egohieraloc.training.footage.footage import AnnotatedFrame, FootageObject, drop_small_boxes
from egohieraloc.training.footage.frame_store import FrameStore
from egohieraloc.training.footage.pseudo_masks import BATCH, MaskCache, mask_in_image
from egohieraloc.types import Rgb
from egohieraloc.video.reader import Video

UNLABELLED = 2  # frames after a response track that are left out, as annotators stop early or late
OPEN_VIDEOS = 64  # per process, each with its table of frame times


class Ego4dFootage:
    """The queries with a response track and a clip: `<clips>/<clip_uid>.mp4` or a folder of its frames."""

    trust = 0.3

    def __init__(self, annotations: Path, clips: Path, masks: MaskCache, store: FrameStore) -> None:
        self.objects: list[FootageObject] = []
        self._clips, self._masks, self._store = clips, masks, store
        self._fps: dict[str, float] = {}
        for clip in read_vq2d(annotations):
            if clip.clip_uid is None or not self._has(clip.clip_uid):
                continue
            self._fps[clip.clip_uid] = clip.fps
            self.objects += filter(None, (_object(clip, clip.clip_uid, query) for query in clip.queries))
        if not self.objects:
            raise DataError(
                f"No query of {annotations} has an answer and a clip in {clips}. Put <clip_uid>.mp4, or a "
                "folder <clip_uid> of frames, there."
            )

    def _has(self, clip_uid: str) -> bool:
        return self._store.has(clip_uid) or any(path.exists() for path in clip_paths(self._clips, clip_uid))

    def require_masks(self) -> None:
        """Fail now rather than in the middle of training."""
        missing = self._masks.missing(self.objects)
        if missing:
            raise DataError(
                f"{len(missing)} of {len(self.objects)} objects have no masks in {self._masks.folder}. "
                "Run `egohieraloc pseudo-masks` first."
            )

    def make_masks(
        self,
        provider: MaskProvider,
        *,
        progress: Callable[[int, int], None],
        part: tuple[int, int] = (1, 1),
    ) -> int:
        """Make the missing masks, and return for how many objects; can be interrupted and resumed.

        part: (k, n) makes the k-th of n parts of the clips, for n processes or GPUs.
        """
        made = 0
        clips = self._part(part)
        for done, targets in enumerate(clips):
            progress(done, len(clips))
            missing = self._masks.missing(targets)
            self._masks.make(missing, self, provider)
            made += len(missing)
        return made

    def store_frames(
        self, *, side: int, progress: Callable[[int, int], None], part: tuple[int, int] = (1, 1)
    ) -> int:
        """Store the frames that training may read of each clip; returns how many frames of how many clips."""
        stored = 0
        clips = self._part(part)
        for done, targets in enumerate(clips):
            progress(done, len(clips))
            if not self._store.has(targets[0].key):
                frames = np.unique(np.concatenate([f for t in targets for f in (t.labelled, t.boxes.frames)]))
                batches = np.split(frames, range(BATCH, len(frames), BATCH))
                images = (image for batch in batches for image in self.images(targets[0], batch))
                self._store.write(targets[0].key, frames, images, side=side)
                stored += len(frames)
        return stored

    def _part(self, part: tuple[int, int]) -> list[list[FootageObject]]:
        """The objects of each clip, of every n-th clip."""
        clips: dict[str, list[FootageObject]] = {}
        for target in self.objects:
            clips.setdefault(target.key, []).append(target)
        return list(clips.values())[part[0] - 1 :: part[1]]

    def images(self, target: FootageObject, frames: Ints) -> list[Rgb]:
        """Images of annotated frames; the clip may have another frame rate and size than the annotation."""
        if self._store.has(target.key):
            return self._store.read(target.key, frames)
        fps = self._fps[target.key]
        video = _open(next(path for path in clip_paths(self._clips, target.key) if path.exists()), fps)
        shown = video.shown_at(frames / fps)
        found = {frame.index: frame.rgb for frame in video.frames(np.unique(shown))}
        if not found.keys() >= set(shown.tolist()):
            raise VideoError(f"Frames of {video.path} that {target.name} needs are damaged.")
        return [found[int(index)] for index in shown]

    def annotated_frames(self, target: FootageObject, frames: Ints) -> list[AnnotatedFrame]:
        annotated = []
        for frame, image in zip(frames, self.images(target, frames), strict=True):
            box = target.box(int(frame), image)
            if box is None:
                annotated.append(AnnotatedFrame(image))
                continue
            grid = self._masks.grids(target)[np.searchsorted(target.boxes.frames, frame)]
            annotated.append(AnnotatedFrame(image, box, mask_in_image(grid, box, *image.shape[:2])))
        return annotated


def _object(clip: ClipQueries[VisualQuery], clip_uid: str, query: VisualQuery) -> FootageObject | None:
    """The object of a query. Its labelled frames are those of the response track and, as that is the last
    appearance, those from its end to the query frame.
    """
    if query.response is None or query.problem:
        return None
    response = drop_small_boxes(query.response.clipped(query.width, query.height))
    if len(response) == 0:
        return None
    crop = Track.from_boxes([query.crop_frame], [query.crop.xyxy])
    crop = drop_small_boxes(crop.clipped(query.width, query.height))
    boxes = response if np.isin(crop.frames, response.frames).all() else _joined(response, crop)
    after = np.arange(query.response.frames[-1] + 1 + UNLABELLED, query.query_frame)
    return FootageObject(
        name=str(query.key),
        identity=f"{clip.name}: {query.object_title or query.key}",
        location=clip.video_uid,
        key=clip_uid,
        boxes=boxes,
        width=query.width,
        height=query.height,
        labelled=np.concatenate([response.frames, after]),
        crop_frame=int(crop.frames[0]) if len(crop) else None,
    )


def _joined(one: Track, other: Track) -> Track:
    frames = np.concatenate([one.frames, other.frames])
    return Track.from_boxes(frames.tolist(), np.concatenate([one.boxes_xyxy, other.boxes_xyxy]))


@lru_cache(maxsize=OPEN_VIDEOS)
def _open(path: Path, fps: float) -> Video:
    return Video.open(path, folder_fps=fps)
