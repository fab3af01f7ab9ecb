"""Predictions on disk: our own file, the challenge format and VQLoC-style files.

Our file is JSON lines: a header that says what was run, then one answer per line. A line is appended when
its query is answered, so a run that was stopped can be resumed; a last line that was cut off is dropped. A
finished file is written again in the order of the annotations, atomically.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from egohieraloc.data.base import HasKey, QueryKey, Track, reading
from egohieraloc.data.ego4d import VisualQuery, clip_name
from egohieraloc.data.stream import read_object
from egohieraloc.documents import parse_json
from egohieraloc.errors import DataError, OutputError
from egohieraloc.files import atomic_path, locked
from egohieraloc.types import Floats

FORMAT = "egohieraloc_predictions"
FORMAT_NUMBER = 1
LEAST_COMMON = 0.1  # of the queries or of the predictions, whichever are fewer


@dataclass(frozen=True, eq=False)
class TrackAnswer:
    """Where an object was in a clip; the track is empty when it was not found."""

    key: QueryKey
    track: Track
    score: float  # confidence of the whole answer
    reason: str = ""  # why it was not found
    frame_scores: Floats | None = None  # (N,) for trackers that answer every frame
    crop_sharpness: float | None = None  # for the table by blur
    frame_confidences: Floats | None = None  # (N, 3) P_ave, P_thr, P_max of the masks, for lifting
    mask_quality: float | None = None  # of the query's mask, s_SAM: decides the fallback level

    def __post_init__(self) -> None:
        sure = self.frame_confidences
        if sure is not None and (sure.shape != (len(self.track), 3) or not np.isfinite(sure).all()):
            raise ValueError(
                f"three confidences for each of {len(self.track)} frames wanted, got {sure.shape}"
            )
        if not np.isfinite(self.score):
            raise ValueError(f"the score of an answer must be a finite number, got {self.score}")
        if self.frame_scores is not None and len(self.frame_scores) != len(self.track):
            raise ValueError(f"{len(self.frame_scores)} frame scores for {len(self.track)} frames")

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "clip": self.key.clip,
            "annotation": self.key.annotation,
            "query_set": self.key.query_set,
            "score": float(self.score),
            "frames": self.track.frames.tolist(),
            "boxes_xyxy": self.track.boxes_xyxy.tolist(),
        }
        if self.reason:
            record["reason"] = self.reason
        if self.frame_scores is not None:
            record["frame_scores"] = self.frame_scores.tolist()
        if self.frame_confidences is not None:
            record["frame_confidences"] = self.frame_confidences.round(6).tolist()
        if self.crop_sharpness is not None:
            record["crop_sharpness"] = float(self.crop_sharpness)
        if self.mask_quality is not None:
            record["mask_quality"] = float(self.mask_quality)
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> TrackAnswer:
        scores, confidences = record.get("frame_scores"), record.get("frame_confidences")
        return cls(
            _key(record),
            Track.from_boxes(record["frames"], record["boxes_xyxy"]),
            float(record["score"]),
            record.get("reason", ""),
            None if scores is None else np.array(scores, np.float64),
            record.get("crop_sharpness"),
            None if confidences is None else np.array(confidences, np.float64).reshape(-1, 3),
            record.get("mask_quality"),
        )


@dataclass(frozen=True, eq=False)
class PlaceAnswer:
    """Where an object is: in the scan, and in the query camera. What is not known is None."""

    key: QueryKey
    point_world: Floats | None  # (3,)
    displacement: Floats | None = None  # (3,) in the query frame's camera
    query_from_world: Floats | None = None  # (4, 4) pose of that camera
    reason: str = ""
    crop_sharpness: float | None = None  # for the table by blur
    depth_variances: tuple[float, ...] = ()  # of its views; their median over all queries is sigma_0^2
    truth_seen: Floats | None = (
        None  # (2, 3) both annotators' centres in that camera, in files without its pose
    )

    def __post_init__(self) -> None:
        if self.displacement is not None and self.query_from_world is None and self.truth_seen is None:
            raise ValueError("a vector in the query frame needs that frame's pose to be scored")

    def to_json(self) -> dict[str, Any]:
        arrays = {
            "point_world": self.point_world,
            "displacement": self.displacement,
            "query_from_world": self.query_from_world,
            **({} if self.truth_seen is None else {"truth_seen": self.truth_seen}),
        }
        return {
            "clip": self.key.clip,
            "annotation": self.key.annotation,
            "query_set": self.key.query_set,
            **{name: None if value is None else value.tolist() for name, value in arrays.items()},
            **({"reason": self.reason} if self.reason else {}),
            **({} if self.crop_sharpness is None else {"crop_sharpness": float(self.crop_sharpness)}),
            **({"depth_variances": list(self.depth_variances)} if self.depth_variances else {}),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> PlaceAnswer:
        return cls(
            _key(record),
            vector(record["point_world"]),
            vector(record.get("displacement")),
            pose(record.get("query_from_world")),
            record.get("reason", ""),
            record.get("crop_sharpness"),
            tuple(float(value) for value in record.get("depth_variances", ())),
            vectors(record.get("truth_seen")),
        )


Answer: TypeAlias = TrackAnswer | PlaceAnswer
_KINDS: dict[str, type[TrackAnswer] | type[PlaceAnswer]] = {"vq3d": PlaceAnswer}


class PredictionLog:
    """Our file while a run, one at a time, writes it. An answer is on disk as soon as `add` returns."""

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        """Start a file, or continue one that was written by the same run."""
        self.path = Path(path)
        self.header = parse_json(_line({FORMAT: FORMAT_NUMBER, **header}))
        self.answers: dict[QueryKey, Answer] = {}
        self._open = ExitStack()
        with self._open:
            with self._writing():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file: IO[bytes] = self._open.enter_context(self.path.open("ab", buffering=0))
                self._open.enter_context(locked(self.path, wait=False))
            if not self._continue():
                self._write(self.header)
            self._open = self._open.pop_all()

    def add(self, answer: Answer) -> None:
        self._write(answer.to_json())
        self.answers[answer.key] = answer

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> PredictionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        line = _line(record).encode()
        with self._writing():
            if self._file.write(line) < len(line):
                raise OSError("there is no room for the whole line")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise DataError(
                f"Another run is writing {self.path}. Wait for it, or give another --out."
            ) from error
        except OSError as error:
            raise OutputError(f"Cannot write {self.path}: {error}. Is the disk full?") from error

    def _continue(self) -> bool:
        """Read what an earlier run has written, if it has; a line that it could not finish is cut off."""
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        os.truncate(self.path, len(whole) + 1 if whole else 0)
        if not whole:
            return False
        header, answers = read_own(self.path)
        different = [
            k for k in sorted(header.keys() | self.header.keys()) if header.get(k) != self.header.get(k)
        ]
        if different:
            raise DataError(
                f"{self.path} was written by another run: {', '.join(different)} differ. "
                "Resume with the same settings, or write to another file."
            )
        self.answers = answers
        return True


def write_own(path: str | Path, header: Mapping[str, Any], answers: Iterable[Answer]) -> None:
    """A finished file."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(_line({FORMAT: FORMAT_NUMBER, **header}))
        file.writelines(_line(answer.to_json()) for answer in answers)


def is_own(path: str | Path) -> bool:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return f'"{FORMAT}"' in file.readline(4096)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error


def read_own(path: str | Path) -> tuple[dict[str, Any], dict[QueryKey, Any]]:
    """Header and answers of our own file."""
    answers: dict[QueryKey, Answer] = {}
    with Path(path).open("rb") as file:
        header = _parse(file.readline(), f"{path}: line 1")
        if header.get(FORMAT) != FORMAT_NUMBER:
            raise DataError(
                f"{path} is not a prediction file of format {FORMAT_NUMBER}: {header.get(FORMAT)}."
            )
        kind = _KINDS.get(str(header.get("benchmark", "")), TrackAnswer)
        for number, line in enumerate(file, start=2):
            where = f"{path}: line {number}"
            record = _parse(line, where)
            with reading(where):
                answer = kind.from_json(record)
            if answer.key in answers:
                raise DataError(f"{where}: a second answer for {answer.key}.")
            answers[answer.key] = answer
    return header, answers


def read_vq2d_predictions(path: str | Path, queries: Sequence[VisualQuery]) -> dict[QueryKey, TrackAnswer]:
    """Our file, a challenge file, or VQLoC's (a challenge file keyed by clip)."""
    if is_own(path):
        return _read_own_as(path, TrackAnswer)
    content = read_object(path, "a challenge file or predictions by clip")
    by_place = {(q.key.clip, q.annotation_index, q.key.query_set): q.key for q in queries}
    answers: dict[QueryKey, TrackAnswer] = {}
    with reading(str(path)):
        for clip, predictions in _challenge_clips(content):
            for place, prediction in enumerate(predictions):
                uid = prediction.get("annotation_uid")
                for query_set, item in prediction["query_sets"].items():
                    at_place = by_place.get((clip, place, query_set), QueryKey(clip, f"#{place}", query_set))
                    key = QueryKey(clip, uid, query_set) if uid else at_place
                    with reading(f"{path}: {key}"):
                        track = _challenge_track(item["bboxes"])
                        answers[key] = TrackAnswer(key, track, float(item["score"]))
    return answers


def read_places(path: str | Path) -> dict[QueryKey, PlaceAnswer]:
    """Our own VQ3D file."""
    return _read_own_as(path, PlaceAnswer)


def read_tracks(path: str | Path) -> dict[QueryKey, TrackAnswer]:
    """Our own file of tracks."""
    return _read_own_as(path, TrackAnswer)


def require_common(queries: Collection[HasKey], answers: Mapping[QueryKey, Any]) -> None:
    """Refuse predictions that are for almost none of the queries: they belong to another annotation file.

    A part of the queries may be answered, and answers to others than these may be in the file, but not both.
    """
    common = sum(query.key in answers for query in queries)
    if queries and common <= LEAST_COMMON * min(len(queries), len(answers)):
        raise DataError(
            f"{common or 'None'} of the {len(answers)} predictions is for one of the {len(queries)} queries. "
            "Do the predictions belong to this annotation file?"
        )


def vector(value: Any) -> Floats | None:
    """Three finite numbers, or None."""
    return None if value is None else _array(value, (3,))


def vectors(value: Any) -> Floats | None:
    """Two vectors of three finite numbers, or None."""
    return None if value is None else _array(value, (2, 3))


def pose(value: Any) -> Floats | None:
    """A 4x4 pose; 3x4 is completed. Or None."""
    if value is None:
        return None
    if np.shape(value) == (3, 4):
        value = [*value, [0.0, 0.0, 0.0, 1.0]]
    return _array(value, (4, 4))


def _read_own_as(path: str | Path, kind: type[Any]) -> dict[QueryKey, Any]:
    if not is_own(path):
        raise DataError(f"{path} is not one of our prediction files (JSON lines with a header).")
    header, answers = read_own(path)
    wrong = next((a for a in answers.values() if not isinstance(a, kind)), None)
    if wrong is not None:
        raise DataError(f"{path} holds predictions for {header.get('benchmark')}, which are of another type.")
    return answers


def _challenge_clips(content: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Name and predictions of each clip."""
    if "results" not in content:
        if not all(isinstance(item, dict) and "predictions" in item for item in content.values()):
            raise ValueError("it has neither `results` (a challenge file) nor clips with `predictions`")
        return [(clip, item["predictions"]) for clip, item in content.items()]
    return [
        (clip_name(clip["clip_uid"], video["video_uid"], index), clip["predictions"])
        for video in content["results"]["videos"]
        for index, clip in enumerate(video["clips"])
    ]


def _challenge_track(boxes: list[dict[str, Any]]) -> Track:
    return Track.from_boxes([b["fno"] for b in boxes], [(b["x1"], b["y1"], b["x2"], b["y2"]) for b in boxes])


def _key(record: dict[str, Any]) -> QueryKey:
    names = [record["clip"], record["annotation"], record["query_set"]]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"clip, annotation and query_set must be texts, got {names}")
    return QueryKey(*names)


def _array(value: Any, shape: tuple[int, ...]) -> Floats:
    array = np.array(value, np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"finite numbers of shape {shape} wanted, got {value}")
    return array


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"


def _parse(line: str | bytes, where: str) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise DataError(f"{where} is not an object.")
    return record
