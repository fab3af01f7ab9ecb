"""EgoTracks: long tracks in exported clips of 30 frames per second, annotated and scored at 5.

`egotracks_{train,val}.json` and `egotracks_challenge_test_unannotated.json` are built like `vq_*.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from egohieraloc.data.base import ClipQueries, Ints, QueryKey, Skipped, Track, TrackingPass, distinct, reading
from egohieraloc.data.ego4d import annotation_name, clip_name, track_from_boxes
from egohieraloc.data.stream import stream_object
from egohieraloc.errors import DataError
from egohieraloc.types import Box

FRAME = "exported_clip_frame_number"
EXPORTED_FPS = 30.0
Protocol = Literal["vct-vs", "vct-vc"]
FRAME_STEP = 6  # 30 frames per second scored at 5


@dataclass(frozen=True, eq=False)
class TrackingQuery:
    """One object to follow. Frames are those of the exported clip."""

    key: QueryKey
    object_title: str
    crop_frame: int
    crop: Box
    truth: Track | None  # where it is visible, the crop's frame among them; None where there is no answer
    size: tuple[int, int] | None = None  # width and height of the annotated images, where the file says it
    problem: str = ""  # why the record cannot be used

    @property
    def longest_absence_s(self) -> float | None:
        """The longest time between two frames that show it, without frames in between that do."""
        if self.truth is None or len(self.truth) == 0:
            return None
        return float(np.diff(self.truth.frames).max(initial=FRAME_STEP) - FRAME_STEP) / EXPORTED_FPS

    @property
    def sequence_name(self) -> str:
        """What the challenge server calls it."""
        return f"{self.key.clip}_{self.key.query_set}_{self.object_title}"


def read_egotracks(path: str | Path, *, split: str | None = None) -> Iterator[ClipQueries[TrackingQuery]]:
    """Clips in the order of the file. A query without a place in an exported clip is in `skipped`."""
    yield from distinct(_read_videos(path, split), path)


def _read_videos(path: str | Path, split: str | None) -> Iterator[ClipQueries[TrackingQuery]]:
    for member, video in stream_object(path, array="videos"):
        if member != "videos":
            continue
        with reading(str(path)):
            video_uid, clips = video["video_uid"], list(video["clips"])
            wanted = split is None or video["split"] == split
        for index, clip in enumerate(clips if wanted else ()):
            with reading(f"{path}: video {video_uid}"):
                uid = clip.get("exported_clip_uid") or clip.get("clip_uid")
                name = clip_name(uid, video_uid, index)
            with reading(f"{path}: video {video_uid}, clip {name}"):
                queries, skipped = _read_queries(clip, name, f"{path}: video {video_uid}")
            yield ClipQueries(name, video_uid, uid, EXPORTED_FPS, queries, skipped)


def read_clip_lengths(path: str | Path) -> dict[str, int]:
    """Number of frames of each exported clip, from `clip_info.json`."""
    lengths: dict[str, int] = {}
    for uid, clip in stream_object(path, array=""):
        with reading(f"{path}: clip {uid}"):
            lengths[uid] = len(clip["frames"])
    return lengths


def scored_frames(crop_frame: int, num_frames: int) -> Ints:
    """Every sixth frame of the clip, such that the crop's frame is one of them."""
    return np.arange(crop_frame % FRAME_STEP, num_frames, FRAME_STEP, dtype=np.int64)


def passes(query: TrackingQuery, num_frames: int, protocol: Protocol) -> tuple[TrackingPass, ...]:
    """`vct-vs`: from the clip's first frame, without a box. `vct-vc`: from the crop, both ways."""
    frames = scored_frames(query.crop_frame, num_frames)
    if protocol == "vct-vs":
        return (TrackingPass(frames, None, query.crop_frame, query.crop),)
    at = int(np.searchsorted(frames, query.crop_frame))
    ways = (frames[at:], frames[at::-1])
    return tuple(TrackingPass(way, query.crop, query.crop_frame, query.crop) for way in ways)


def _read_queries(
    clip: dict[str, Any], name: str, where: str
) -> tuple[tuple[TrackingQuery, ...], tuple[Skipped, ...]]:
    queries: list[TrackingQuery] = []
    skipped: list[Skipped] = []
    for place, annotation in enumerate(clip["annotations"]):
        for query_set, query in annotation.get("query_sets", {}).items():
            key = QueryKey(name, annotation_name(annotation.get("annotation_uid"), place), query_set)
            try:
                with reading(f"{where}, {key}"):
                    if not query.get("is_valid", True):
                        skipped.append(Skipped(query_set, "marked as not valid in the annotation file"))
                    elif query["visual_crop"].get(FRAME) is None:
                        skipped.append(Skipped(query_set, "its crop has no frame in an exported clip"))
                    else:
                        queries.append(_query(query, key))
            except DataError as error:
                queries.append(_broken(query, key, str(error)))
    return tuple(queries), tuple(skipped)


def _query(query: dict[str, Any], key: QueryKey) -> TrackingQuery:
    crop = query["visual_crop"]
    width, height = crop.get("original_width"), crop.get("original_height")
    return TrackingQuery(
        key=key,
        object_title=query.get("object_title") or "",
        crop_frame=int(crop[FRAME]),
        crop=Box.from_xywh(crop["x"], crop["y"], crop["width"], crop["height"]),
        truth=_truth(query),
        size=(int(width), int(height)) if width and height else None,
    )


def _broken(query: Any, key: QueryKey, problem: str) -> TrackingQuery:
    """A query that cannot be asked, with its truth as far as that is whole: it counts as lost."""
    truth, title = None, ""
    if isinstance(query, dict):
        title = str(query.get("object_title") or "")
        with suppress(DataError), reading(""):
            boxes = [*query["lt_track"], *query.get("visual_clip", ())]
            truth = track_from_boxes(list({box[FRAME]: box for box in boxes}.values()), FRAME)
    return TrackingQuery(key, title, -1, Box(0.0, 0.0, 0.0, 0.0), truth, problem=problem)


def _truth(query: dict[str, Any]) -> Track | None:
    """Long track, visual clip and crop together; at a shared frame the later of these three counts."""
    if "lt_track" not in query:
        return None
    boxes = [*query["lt_track"], *query.get("visual_clip", ()), query["visual_crop"]]
    return track_from_boxes(list({box[FRAME]: box for box in boxes}.values()), FRAME)
