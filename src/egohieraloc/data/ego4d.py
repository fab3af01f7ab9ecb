"""Ego4D's visual queries in 2D: `vq_{train,val}.json`, `vq_test_unannotated.json` and the flattened form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egohieraloc.data.base import ClipQueries, QueryKey, Skipped, Track, distinct, group_by_clip, reading
from egohieraloc.data.stream import starts_with_array, stream_array, stream_object
from egohieraloc.errors import DataError
from egohieraloc.types import Box


@dataclass(frozen=True, eq=False)
class VisualQuery:
    """One VQ2D question. Frames are on the clip's own grid (5 per second); boxes in pixels of the video."""

    key: QueryKey
    annotation_index: int
    query_frame: int  # when one asks: the answer lies before
    crop_frame: int  # where the crop was cut, which may be after `query_frame`
    crop: Box  # as annotated: it may leave the image
    fps: float
    width: int
    height: int
    object_title: str
    response: Track | None  # None in files without answers
    problem: str = ""  # why the record cannot be used; then there is no crop, and perhaps an empty response

    @property
    def unseen_s(self) -> float | None:
        """Seconds between the last appearance and the question."""
        if self.response is None or len(self.response) == 0:
            return None
        return float(self.query_frame - self.response.frames[-1]) / self.fps


def read_vq2d(path: str | Path, *, split: str | None = None) -> Iterator[ClipQueries[VisualQuery]]:
    """Clips in the order of the file, read video by video. Invalid queries are in `skipped`."""
    clips = _read_flattened(path, split) if starts_with_array(path) else _read_videos(path, split)
    yield from distinct(clips, path)


def _read_videos(path: str | Path, split: str | None) -> Iterator[ClipQueries[VisualQuery]]:
    for _, video in (item for item in stream_object(path, array="videos") if item[0] == "videos"):
        with reading(str(path)):
            video_uid, clips = video["video_uid"], list(video["clips"])
            wanted = split is None or video["split"] == split
        for index, clip in enumerate(clips if wanted else ()):
            yield _read_clip(clip, video_uid, index, f"{path}: video {video_uid}")


def clip_name(clip_uid: str | None, video_uid: str, index: int) -> str:
    return clip_uid or f"{video_uid}#{index}"


def clip_paths(folder: Path, clip_uid: str) -> tuple[Path, Path]:
    """Where a clip may lie: a file, or a folder of its frames."""
    return folder / f"{clip_uid}.mp4", folder / clip_uid


def annotation_name(uid: str | None, index: int) -> str:
    return uid or f"#{index}"


def track_from_boxes(boxes: list[dict[str, Any]], frame_field: str = "frame_number") -> Track:
    """A track from Ego4D's boxes (x, y, width, height), which need not be sorted."""
    return Track.from_boxes(
        [b[frame_field] for b in boxes],
        [(b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"]) for b in boxes],
    )


def _read_clip(clip: dict[str, Any], video_uid: str, index: int, where: str) -> ClipQueries[VisualQuery]:
    with reading(where):
        name = clip_name(clip["clip_uid"], video_uid, index)
    queries: list[VisualQuery] = []
    skipped: list[Skipped] = []
    with reading(f"{where}, clip {name}"):
        fps = float(clip.get("clip_fps") or 5.0)
        for place, annotation in enumerate(clip["annotations"]):
            for query_set, query in annotation.get("query_sets", {}).items():
                key = QueryKey(name, annotation_name(annotation.get("annotation_uid"), place), query_set)
                if isinstance(query, dict) and query.get("is_valid") is False:
                    skipped.append(Skipped(query_set, "marked as not valid in the annotation file"))
                else:
                    queries.append(_usable(query, key, place, fps, where=f"{where}, {key}"))
        return ClipQueries(name, video_uid, clip["clip_uid"], fps, tuple(queries), tuple(skipped))


def _usable(query: Any, key: QueryKey, annotation_index: int, fps: float, *, where: str) -> VisualQuery:
    """The query; where its record is broken one that says why, with its response if that is whole."""
    try:
        with reading(where):
            return _query(query, key, annotation_index, fps)
    except DataError as error:
        response = None
        if isinstance(query, dict) and "response_track" in query:
            with suppress(DataError), reading(where):
                response = _contiguous(track_from_boxes(query["response_track"]))
            response = response or Track.empty()
        nowhere = Box(0.0, 0.0, 0.0, 0.0)
        return VisualQuery(key, annotation_index, 0, 0, nowhere, fps, 0, 0, "", response, problem=str(error))


def _query(query: dict[str, Any], key: QueryKey, annotation_index: int, fps: float) -> VisualQuery:
    crop, response = query["visual_crop"], query.get("response_track")
    return VisualQuery(
        key=key,
        annotation_index=annotation_index,
        query_frame=int(query["query_frame"]),
        crop_frame=int(crop["frame_number"]),
        crop=Box.from_xywh(crop["x"], crop["y"], crop["width"], crop["height"]),
        fps=fps,
        width=int(crop["original_width"]),
        height=int(crop["original_height"]),
        object_title=query.get("object_title") or "",
        response=None if response is None else _contiguous(track_from_boxes(response)),
    )


def _contiguous(track: Track) -> Track:
    if not track.is_contiguous:
        raise ValueError(
            f"the response track leaves out frames between {track.frames[0]} and {track.frames[-1]}"
        )
    return track


def _read_flattened(path: str | Path, split: str | None) -> Iterator[ClipQueries[VisualQuery]]:
    """The list that `process_vq_dataset.py` writes. Its ids are those of queries, such as val_0000000007."""

    def items() -> Iterator[tuple[ClipQueries[VisualQuery], VisualQuery]]:
        for place, item in enumerate(stream_array(path)):
            with reading(f"{path}: item {place}"):
                video_uid, fps = item["metadata"]["video_uid"], float(item["metadata"]["clip_fps"])
                name = clip_name(item["clip_uid"], video_uid, 0)
                key = QueryKey(name, item["dataset_uid"], item["query_set"])
            if split is not None and not key.annotation.startswith(f"{split}_"):
                continue
            query = _usable(item, key, place, fps, where=f"{path}: {key}")
            yield ClipQueries(name, video_uid, item["clip_uid"], fps, ()), query

    yield from group_by_clip(items())
