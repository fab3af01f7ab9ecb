"""Checks of a submission before upload: order, counts, types and ranges, with what is wrong and where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import reading
from egohieraloc.data.ego4d import clip_name
from egohieraloc.data.egotracks import TrackingQuery, scored_frames
from egohieraloc.data.stream import read_json
from egohieraloc.data.trek150 import PROTOCOLS, Protocol, TrekSequence
from egohieraloc.evaluation.submission import (
    TREK150_CHALLENGE,
    TREK150_LEVELS,
    TREK150_VERSION,
    VQ2D_CHALLENGE,
    VQ3D_CHALLENGE,
    VQ3D_VERSION,
)

POSE_TOLERANCE = 1e-3  # metres, and entries of a rotation times its transpose


def check_vq2d(annotations: str | Path, submission: str | Path) -> list[str]:
    """What is wrong, one line each; empty when the file is good. So for every `check_` function."""
    wanted, got = read_json(annotations), read_json(submission)
    with reading(f"{submission} against {annotations}"):
        return list(_vq2d(wanted, got))


def check_vq3d(template: str | Path, submission: str | Path) -> list[str]:
    wanted, got = read_json(template), read_json(submission)
    with reading(f"{submission} against {template}"):
        return list(_vq3d(wanted, got))


def check_egotracks(
    queries: Sequence[TrackingQuery], clip_lengths: Mapping[str, int], submission: str | Path
) -> list[str]:
    with reading(str(submission)):
        return list(_egotracks(queries, clip_lengths, read_json(submission)))


def check_trek150(sequences: Sequence[TrekSequence], submission: str | Path) -> list[str]:
    with reading(str(submission)):
        return list(_trek150(sequences, read_json(submission)))


def _vq2d(wanted: dict[str, Any], got: Any) -> Iterator[str]:
    if not isinstance(got, dict) or not isinstance(got.get("results"), dict):
        yield "the file should be an object with version, challenge and results"
        return
    yield from _equal("version", wanted.get("version"), got.get("version"))
    yield from _equal("challenge", VQ2D_CHALLENGE, got.get("challenge"))
    for where, annotation, prediction in _annotations(
        wanted["videos"], got["results"].get("videos"), "predictions"
    ):
        if annotation is None:
            yield where
            continue
        uid = annotation.get("annotation_uid")
        if prediction.get("annotation_uid", uid) != uid:
            yield f"{where}: annotation_uid should be {uid!r}, not {prediction['annotation_uid']!r}"
        queries, answers = annotation.get("query_sets", {}), prediction.get("query_sets")
        if not isinstance(answers, dict):
            yield f"{where}: query_sets should be an object"
            continue
        for query_set in sorted(answers.keys() - queries.keys()):
            yield f"{where}: query {query_set} is not in the annotation file"
        for query_set, query in queries.items():
            if query_set in answers:
                yield from (
                    f"{where}, query {query_set}: {p}" for p in _vq2d_answer(query, answers[query_set])
                )
            elif query["is_valid"]:
                yield f"{where}: query {query_set} is missing"


def _vq2d_answer(query: dict[str, Any], answer: Any) -> Iterator[str]:
    if not isinstance(answer, dict) or not isinstance(answer.get("bboxes"), list) or "score" not in answer:
        yield "should have bboxes (a list) and score"
        return
    if not _is_number(answer["score"]):
        yield f"score should be a finite number, not {answer['score']!r}"
    boxes = answer["bboxes"]
    for box in boxes:
        values = [box.get(k) for k in ("fno", "x1", "y1", "x2", "y2")] if isinstance(box, dict) else [None]
        if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            yield f"a box should have whole numbers fno, x1, y1, x2, y2, not {box!r}"
            return
    frames = sorted(box["fno"] for box in boxes)
    if frames != list(range(frames[0], frames[0] + len(frames)) if frames else []):
        yield f"the track should have one box for every frame from {frames[0]} to {frames[-1]}"
    if frames and (frames[0] < 0 or frames[-1] >= query.get("query_frame", math.inf)):
        yield f"frames {frames[0]} to {frames[-1]} should lie in 0 to {query.get('query_frame')} - 1"
    crop = query.get("visual_crop", {})
    width, height = crop.get("original_width", math.inf), crop.get("original_height", math.inf)
    for box in boxes:
        if not (0 <= box["x1"] <= box["x2"] <= width and 0 <= box["y1"] <= box["y2"] <= height):
            yield f"the box at frame {box['fno']} should lie in the {width}x{height} image: {box}"
            return


def _vq3d(wanted: dict[str, Any], got: Any) -> Iterator[str]:
    if not isinstance(got, dict):
        yield "the file should be an object"
        return
    yield from _equal("version", VQ3D_VERSION, got.get("version"))
    yield from _equal("challenge", VQ3D_CHALLENGE, got.get("challenge"))
    for where, annotation, prediction in _annotations(wanted["videos"], got.get("videos"), "annotations"):
        if annotation is None:
            yield where
            continue
        queries, answers = annotation.get("query_sets", {}), prediction.get("query_sets", {})
        if not isinstance(answers, dict):
            yield f"{where}: query_sets should be an object"
            continue
        for query_set in sorted(queries.keys() ^ answers.keys()):
            problem = "missing" if query_set in queries else "not in the annotation file"
            yield f"{where}: query {query_set} is {problem}"
        for query_set in sorted(queries.keys() & answers.keys()):
            yield from (f"{where}, query {query_set}: {p}" for p in _vq3d_answer(answers[query_set]))


def _vq3d_answer(answer: Any) -> Iterator[str]:
    if not isinstance(answer, dict):
        yield f"should be an object, not {answer!r}"
        return
    shapes = {"pred_3d_vec_world": (3,), "pred_3d_vec_query_frame": (3,), "query_frame_pose": (4, 4)}
    values = {}
    for field, shape in shapes.items():
        if field not in answer:
            yield f"{field} is missing (null when not known)"
        elif answer[field] is not None and not _is_array(answer[field], shape):
            yield f"{field} should be null or finite numbers of shape {shape}"
        elif answer[field] is not None:
            values[field] = np.array(answer[field], np.float64)
    if "query_frame_pose" in values:
        rotation = values["query_frame_pose"][:3, :3]
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > POSE_TOLERANCE or np.linalg.det(rotation) < 0:
            yield "query_frame_pose is not a rotation and a translation"
    if "pred_3d_vec_query_frame" in values and len(values) < 3:
        yield "pred_3d_vec_query_frame needs pred_3d_vec_world and query_frame_pose beside it"
    elif len(values) == 3:
        yield from _pose_direction(*values.values())


def _pose_direction(world: Any, seen: Any, pose: Any) -> Iterator[str]:
    point = np.append(world, 1.0)
    if np.abs((pose @ point)[:3] - seen).max() <= POSE_TOLERANCE:
        return
    if np.abs((np.linalg.pinv(pose) @ point)[:3] - seen).max() <= POSE_TOLERANCE:
        yield "query_frame_pose is the wrong way round: it should map the scan to the camera"
    else:
        yield "pred_3d_vec_query_frame is not query_frame_pose applied to pred_3d_vec_world"


def _egotracks(queries: Sequence[TrackingQuery], lengths: Mapping[str, int], got: Any) -> Iterator[str]:
    if not isinstance(got, dict):
        yield "the file should be an object: sequence -> frame -> [x, y, w, h, score]"
        return
    names = {q.sequence_name for q in queries}
    yield from (f"sequence {name} is not in the annotation file" for name in sorted(got.keys() - names))
    for query in queries:
        name = query.sequence_name
        if name not in got:
            yield f"sequence {name} is missing"
        elif query.key.clip not in lengths:
            yield f"sequence {name}: the length of its clip is not known"
        elif not isinstance(got[name], dict):
            yield f"sequence {name}: should be an object: frame -> [x, y, w, h, score]"
        else:
            frames = scored_frames(query.crop_frame, lengths[query.key.clip]).tolist()
            yield from (f"sequence {name}{p}" for p in _egotracks_boxes(frames, got[name]))


def _egotracks_boxes(frames: list[int], got: dict[str, Any]) -> Iterator[str]:
    wanted = {str(frame) for frame in frames}
    absent = [str(frame) for frame in frames if str(frame) not in got]
    if absent:
        yield f": {len(absent)} frames are missing, the first is {absent[0]}"
    foreign = [frame for frame in got if frame not in wanted]
    if foreign:
        yield f": {len(foreign)} frames are not scored frames, the first is {foreign[0]}"
    for frame, row in got.items():
        if not _is_array(row, (5,)) or row[2] < 0 or row[3] < 0:
            yield f", frame {frame}: should be [x, y, w, h, score], got {row!r}"
            return


def _trek150(sequences: Sequence[TrekSequence], got: Any) -> Iterator[str]:
    if not isinstance(got, dict) or not isinstance(got.get("results"), dict):
        yield "the file should be an object with results"
        return
    yield from _equal("challenge", TREK150_CHALLENGE, got.get("challenge"))
    yield from _equal("version", TREK150_VERSION, got.get("version"))
    yield from (f"{field} is missing" for field in ("tracker_name", *TREK150_LEVELS) if field not in got)
    for protocol in PROTOCOLS:
        given = got["results"].get(protocol)
        if isinstance(given, dict):
            yield from _trek150_protocol(sequences, protocol, given)
        else:
            yield f"results should have {protocol}: an object of sequences"


def _trek150_protocol(
    sequences: Sequence[TrekSequence], protocol: Protocol, got: dict[str, Any]
) -> Iterator[str]:
    wanted = {sequence.name: sequence.runs(protocol) for sequence in sequences}
    for name in sorted(got.keys() - {name for name, runs in wanted.items() if runs}):
        yield f"{protocol}, {name}: not in the annotations"
    for name, runs in wanted.items():
        rows = {"": got[name]} if protocol == "ope" and name in got else got.get(name, {})
        if not isinstance(rows, dict):
            yield f"{protocol}, {name}: should be an object of anchors"
            continue
        for extra in sorted(rows.keys() - {run.key.query_set for run in runs}):
            yield f"{protocol}, {name} {extra}: not in the annotations"
        for run in runs:
            where = f"{protocol}, {name} {run.key.query_set}".rstrip()
            boxes = rows.get(run.key.query_set)
            if boxes is None:
                yield f"{where}: missing"
            elif not _is_array(boxes, (len(run.frames), 4)):
                yield f"{where}: should be {len(run.frames)} boxes of four finite numbers"
            elif (np.array(boxes)[:, 2:] < 0).any():
                yield f"{where}: a box has a negative width or height"


def _annotations(wanted: list[Any], got: Any, field: str) -> Iterator[tuple[str, Any, Any]]:
    """(where, annotation, prediction) side by side; (what is wrong, None, None) where the order breaks."""
    if not _are_objects(got, len(wanted)):
        yield f"videos should be a list of {len(wanted)} objects", None, None
        return
    for video, answer in zip(wanted, got, strict=True):
        uid = video["video_uid"]
        clips = answer.get("clips")
        if answer.get("video_uid") != uid:
            yield f"video {uid} should come here, not {answer.get('video_uid')}", None, None
        elif not _are_objects(clips, len(video["clips"])):
            yield f"video {uid}: clips should be a list of {len(video['clips'])} objects", None, None
        else:
            yield from _clip_annotations(video, clips, field)


def _clip_annotations(video: dict[str, Any], got: list[Any], field: str) -> Iterator[tuple[str, Any, Any]]:
    uid = video["video_uid"]
    for index, (clip, answer) in enumerate(zip(video["clips"], got, strict=True)):
        where = f"video {uid}, clip {clip_name(clip['clip_uid'], uid, index)}"
        rows = answer.get(field)
        if answer.get("clip_uid") != clip["clip_uid"]:
            yield f"{where}: should come here, not {answer.get('clip_uid')}", None, None
        elif not _are_objects(rows, len(clip["annotations"])):
            yield f"{where}: {field} should be a list of {len(clip['annotations'])} objects", None, None
        else:
            for place, pair in enumerate(zip(clip["annotations"], rows, strict=True)):
                yield f"{where}, annotation {place}", *pair


def _are_objects(value: Any, number: int) -> bool:
    return isinstance(value, list) and len(value) == number and all(isinstance(v, dict) for v in value)


def _equal(what: str, wanted: Any, got: Any) -> Iterator[str]:
    if wanted != got:
        yield f"{what} should be {wanted!r}, not {got!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_array(value: Any, shape: tuple[int, ...]) -> bool:
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        return False
    return array.shape == shape and array.dtype.kind in "if" and bool(np.isfinite(array).all())
