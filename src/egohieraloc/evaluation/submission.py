"""Submissions to the four challenge servers, written in the order of the annotation file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, reading
from egohieraloc.data.ego4d import annotation_name, clip_name, read_vq2d
from egohieraloc.data.egotracks import TrackingQuery, scored_frames
from egohieraloc.data.stream import header, read_json, stream_object
from egohieraloc.data.trek150 import PROTOCOLS, TrekSequence
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import PlaceAnswer, TrackAnswer
from egohieraloc.files import write_json
from egohieraloc.types import Floats

VQ2D_CHALLENGE = "ego4d_vq2d_challenge"
VQ3D_CHALLENGE, VQ3D_VERSION = "ego4d_vq3d_challenge", "1.0"
TREK150_CHALLENGE, TREK150_VERSION = "object_tracking", "0.1"
TREK150_LEVELS = ("sls_pt", "sls_tl", "sls_td")  # supervision used for pre-training, labels, data
NOT_FOUND: dict[str, Any] = {"bboxes": [], "score": 0.0}


def write_vq2d_submission(
    path: str | Path, annotations: str | Path, answers: Mapping[QueryKey, TrackAnswer]
) -> None:
    """A response track for every query set of the annotation file, in its order."""
    sizes = {q.key: (q.width, q.height) for clip in read_vq2d(annotations) for q in clip.queries}
    videos = []
    for member, video in stream_object(annotations, array="videos"):
        if member != "videos":
            continue
        clips = []
        for index, clip in enumerate(video["clips"]):
            name = clip_name(clip["clip_uid"], video["video_uid"], index)
            predictions = []
            for place, annotation in enumerate(clip["annotations"]):
                uid = annotation.get("annotation_uid")
                keys = {
                    q: QueryKey(name, annotation_name(uid, place), q)
                    for q in annotation.get("query_sets", {})
                }
                query_sets = {
                    q: _vq2d_answer(answers[key], *sizes[key])
                    if key in answers and key in sizes
                    else NOT_FOUND
                    for q, key in keys.items()
                }
                predictions.append({"query_sets": query_sets, **({"annotation_uid": uid} if uid else {})})
            clips.append({"clip_uid": clip["clip_uid"], "predictions": predictions})
        videos.append({"video_uid": video["video_uid"], "clips": clips})
    version = header(annotations, array="videos").get("version")
    write_json(path, {"version": version, "challenge": VQ2D_CHALLENGE, "results": {"videos": videos}})


def write_vq3d_submission(
    path: str | Path, template: str | Path, answers: Mapping[QueryKey, PlaceAnswer]
) -> None:
    """The benchmark's unannotated file with predictions: points in the scan's frame, poses cam_from_world."""
    content = read_json(template)
    with reading(str(template)):
        for video in content["videos"]:
            for index, clip in enumerate(video["clips"]):
                name = clip_name(clip["clip_uid"], video["video_uid"], index)
                for place, annotation in enumerate(clip["annotations"]):
                    uid = annotation_name(annotation.get("annotation_uid"), place)
                    for query_set, query in annotation.get("query_sets", {}).items():
                        query.update(_vq3d_answer(answers.get(QueryKey(name, uid, query_set))))
    write_json(path, {**content, "version": VQ3D_VERSION, "challenge": VQ3D_CHALLENGE})


def write_egotracks_submission(
    path: str | Path,
    queries: Sequence[TrackingQuery],
    answers: Mapping[QueryKey, TrackAnswer],
    clip_lengths: Mapping[str, int],
) -> None:
    """A box and a score for every scored frame. Without an answer: an empty box, the lowest score."""
    content = {}
    for query in queries:
        if query.key.clip not in clip_lengths:
            raise DataError(
                f"The length of clip {query.key.clip} is not known; it should be in clip_info.json."
            )
        frames = scored_frames(query.crop_frame, clip_lengths[query.key.clip])
        content[query.sequence_name] = _egotracks_answer(answers.get(query.key), frames)
    write_json(path, content)


def write_trek150_submission(
    path: str | Path,
    sequences: Sequence[TrekSequence],
    boxes: Mapping[QueryKey, Floats],
    *,
    tracker_name: str,
    levels: tuple[int, int, int] = (-1, -1, -1),
) -> None:
    """Results of all three protocols; each run needs all its boxes."""
    results: dict[str, dict[str, Any]] = {protocol: {} for protocol in PROTOCOLS}
    for sequence in sequences:
        for protocol in PROTOCOLS:
            runs = sequence.runs(protocol)
            if len({r.key.query_set.removesuffix("-backwards") for r in runs}) < len(runs):
                raise DataError(
                    f"{sequence.name} uses an anchor in both directions, which the format cannot hold."
                )
            rows = {r.key.query_set: _trek150_rows(boxes, r.key) for r in runs}
            if rows:
                results[protocol][sequence.name] = rows[""] if protocol == "ope" else rows
    about = {"challenge": TREK150_CHALLENGE, "version": TREK150_VERSION, "tracker_name": tracker_name}
    write_json(path, {**about, **dict(zip(TREK150_LEVELS, levels, strict=True)), "results": results})


def _vq2d_answer(answer: TrackAnswer, width: int, height: int) -> dict[str, Any]:
    inside = answer.track.clipped(width, height)
    corners = np.rint(inside.boxes_xyxy).astype(int).tolist()
    boxes = [
        {"fno": frame, "x1": x1, "y1": y1, "x2": x2, "y2": y2}
        for frame, (x1, y1, x2, y2) in zip(inside.frames.tolist(), corners, strict=True)
    ]
    return {"bboxes": boxes, "score": float(answer.score)}


def _vq3d_answer(answer: PlaceAnswer | None) -> dict[str, Any]:
    if answer is None:
        return {"pred_3d_vec_world": None, "pred_3d_vec_query_frame": None, "query_frame_pose": None}
    arrays = {
        "pred_3d_vec_world": answer.point_world,
        "pred_3d_vec_query_frame": answer.displacement,
        "query_frame_pose": answer.query_from_world,
    }
    return {name: None if value is None else value.tolist() for name, value in arrays.items()}


def _egotracks_answer(answer: TrackAnswer | None, frames: Any) -> dict[str, list[float]]:
    rows = np.zeros((len(frames), 5))
    if answer is not None and len(answer.track):
        boxes, there = answer.track.at(frames)
        scores = np.ones(len(answer.track)) if answer.frame_scores is None else answer.frame_scores
        rows[:, 4] = min(0.0, scores.min())
        rows[there, :2] = boxes[there, :2]
        rows[there, 2:4] = boxes[there, 2:] - boxes[there, :2]
        rows[there, 4] = scores[np.searchsorted(answer.track.frames, frames[there])]
    return {str(frame): row for frame, row in zip(frames.tolist(), rows.tolist(), strict=True)}


def _trek150_rows(boxes: Mapping[QueryKey, Floats], key: QueryKey) -> list[list[float]]:
    if key not in boxes:
        run = " ".join(part for part in (key.clip, key.query_set) if part)
        raise DataError(
            f"There is no {key.annotation.upper()} prediction for {run}; the server wants every run "
            "of OPE, MSE and HOI. Give the files of all three with --predictions, one after the other."
        )
    rows: list[list[float]] = np.round(np.nan_to_num(boxes[key], nan=0.0), 3).tolist()
    return rows
