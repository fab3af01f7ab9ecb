"""What figures show, from files: questions of a benchmark, their true tracks and anybody's answers.

A row's tracks count frames at `fps` (frame n is the image shown at n / fps seconds) and their boxes are in
pixels of the video, which may be smaller than the annotated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import PlaceQuery, read_mapping, visual_queries_of_places
from egohieraloc.data.egotracks import read_egotracks
from egohieraloc.data.trek150 import FPS as TREK_FPS
from egohieraloc.data.trek150 import TrekRun, read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation.egotracks import read_egotracks_predictions
from egohieraloc.evaluation.predictions import read_vq2d_predictions
from egohieraloc.evaluation.trek150 import read_trek150_predictions
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box, Floats, Frame, NotFound, ScoreCurve
from egohieraloc.video.reader import Video

Benchmark = Literal["vq2d", "egotracks", "trek150"]
Tracks: TypeAlias = Mapping[QueryKey, Track]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Question:
    """One question of a benchmark."""

    key: QueryKey
    title: str
    paths: tuple[Path, ...]  # where its video may lie
    fps: float
    crop_frame: int
    crop: Box
    truth: Track | None
    query_frame: int | None = None  # None: the end of the video
    width: int | None = None  # of the annotated video; None: that of the file

    def video(self) -> Video:
        return Video.open(next((p for p in self.paths if p.exists()), self.paths[0]), folder_fps=self.fps)


@dataclass(frozen=True, eq=False)
class Questions:
    """All questions of an annotation file, and how answers to them are read."""

    items: tuple[Question, ...]
    read: Callable[[Path], Tracks]


@dataclass(frozen=True, eq=False)
class NamedTrack:
    """What one method answered."""

    name: str
    track: Track


@dataclass(frozen=True, eq=False)
class Row:
    """A question with its true track, several answers and, where it is known, the first method's curve."""

    title: str
    query: Query
    video: Video
    fps: float
    until_s: float
    truth: Track | None
    answers: tuple[NamedTrack, ...]
    curve: ScoreCurve | None = None

    def image(self, frame: int) -> Frame:
        time_s = min(frame / self.fps, float(self.video.times_s[-1]))
        return self.video.frame_at(time_s)


def pick(items: Sequence[T], number: int) -> T:
    """One of the queries of an annotation file by its place in it."""
    if not 0 <= number < len(items):
        raise DataError(f"There is no query {number}: the annotations have {len(items)}, from 0.")
    return items[number]


def read_questions(
    benchmark: Benchmark, annotations: Path, clips: Path | None, *, split: str | None = None
) -> Questions:
    """The questions of a benchmark in the order of its file."""
    if benchmark == "trek150":
        return _trek150(annotations)
    if clips is None:
        raise DataError("Give --clips, the folder that holds the videos of the annotation file.")
    return _vq2d(annotations, clips, split) if benchmark == "vq2d" else _egotracks(annotations, clips, split)


def benchmark_row(question: Question, methods: Sequence[tuple[str, Result | Tracks]]) -> Row:
    """A question with what every method answered; a method without an answer has an empty track."""
    video = question.video()
    scale = video.info.width / question.width if question.width else 1.0
    shown_s = min(question.crop_frame / question.fps, float(video.times_s[-1]))
    x1, y1, x2, y2 = (v * scale for v in question.crop.xyxy)
    end_s = video.duration_s if question.query_frame is None else question.query_frame / question.fps
    return Row(
        question.title,
        Query.from_time(video, time_s=shown_s, box=Box(x1, y1, x2, y2)),
        video,
        question.fps,
        end_s,
        None if question.truth is None else _scaled(question.truth, scale),
        tuple(
            NamedTrack(
                name,
                result_track(found, question.fps)
                if isinstance(found, Result)
                else _scaled(found.get(question.key, Track.empty()), scale),
            )
            for name, found in methods
        ),
        next((found.curve for _, found in methods[:1] if isinstance(found, Result)), None),
    )


def result_row(answers: Sequence[tuple[str, Result]], *, title: str = "") -> Row:
    """Answers of several methods to one question, read from their folders."""
    first = answers[0][1]
    for name, result in answers:
        if (result.video.info, result.query.box) != (first.video.info, first.query.box):
            raise DataError(
                f"'{name}' answers another question than '{answers[0][0]}': the video or the query's box "
                "differs. Give folders that were made with the same video and query."
            )
    fps = first.video.sample_fps
    video = Video.reopen(first.video.source)
    tracks = tuple(NamedTrack(name, result_track(result, fps)) for name, result in answers)
    end_s = float(first.curve.time_s[-1]) if len(first.curve.time_s) else video.duration_s
    return Row(title, first.query, video, fps, end_s, None, tracks, first.curve)


def result_track(result: Result, fps: float) -> Track:
    """The answered track on a grid of `fps`; empty when nothing was found."""
    if isinstance(result.track, NotFound):
        return Track.empty()
    seen = {round(p.time_s * fps): p.box.xyxy for p in result.track.predictions}
    return Track.from_boxes(list(seen), list(seen.values()))


def place_images(
    places: Sequence[PlaceQuery], vq2d: Path, mapping: Path, clips: Path
) -> dict[QueryKey, Query]:
    """The images that VQ3D queries ask with, which their VQ2D queries know."""
    visual = visual_queries_of_places(
        places, (query for clip in read_vq2d(vq2d) for query in clip.queries), read_mapping(mapping)
    )
    by_key = {question.key: question for question in _vq2d(vq2d, clips, None).items}
    return {key: benchmark_row(by_key[query.key], ()).query for key, query in visual.items()}


def read_methods(paths: Sequence[tuple[str, Path]]) -> tuple[tuple[str, Result | Path], ...]:
    """A folder with a result.json is an answer of `locate`; all else holds predictions."""
    found: list[tuple[str, Result | Path]] = []
    for name, path in paths:
        if not path.exists():
            raise DataError(f"There is no {path} for '{name}'. Give a prediction file or a result folder.")
        found.append((name, Result.load(path) if (path / "result.json").exists() else path))
    return tuple(found)


def _scaled(track: Track, scale: float) -> Track:
    return Track(track.frames, track.boxes_xyxy * scale)


def _clip_paths(clips: Path, uid: str | None) -> tuple[Path, ...]:
    return (clips / f"{uid}.mp4", clips / f"{uid}")


def _vq2d(annotations: Path, clips: Path, split: str | None) -> Questions:
    pairs = [(clip, query) for clip in read_vq2d(annotations, split=split) for query in clip.queries]
    queries = [query for _, query in pairs]
    items = tuple(
        Question(
            query.key,
            query.object_title,
            _clip_paths(clips, clip.clip_uid),
            query.fps,
            query.crop_frame,
            query.crop,
            query.response,
            query.query_frame,
            query.width,
        )
        for clip, query in pairs
    )

    def read(path: Path) -> Tracks:
        return {key: answer.track for key, answer in read_vq2d_predictions(path, queries).items()}

    return Questions(items, read)


def _egotracks(annotations: Path, clips: Path, split: str | None) -> Questions:
    pairs = [(clip, query) for clip in read_egotracks(annotations, split=split) for query in clip.queries]
    queries = [query for _, query in pairs]
    items = tuple(
        Question(
            query.key,
            query.object_title,
            _clip_paths(clips, clip.clip_uid),
            clip.fps,
            query.crop_frame,
            query.crop,
            query.truth,
        )
        for clip, query in pairs
    )

    def read(path: Path) -> Tracks:
        return {key: answer.track for key, answer in read_egotracks_predictions(path, queries).items()}

    return Questions(items, read)


def _trek150(folder: Path) -> Questions:
    """Whole sequences from their first frame (OPE)."""
    sequences = list(read_trek150(folder))
    runs = [sequence.runs("ope")[0] for sequence in sequences]
    items = tuple(
        Question(
            run.key,
            sequence.name,
            (sequence.folder / "img",),
            TREK_FPS,
            0,
            Box.from_xywh(*run.truth_xywh[0].tolist()),
            _run_track(run, np.where(run.visible[:, None], run.truth_xywh, np.nan)),
        )
        for sequence, run in zip(sequences, runs, strict=True)
    )

    def read(path: Path) -> Tracks:
        boxes = read_trek150_predictions(path, sequences, "ope")
        return {run.key: _run_track(run, boxes[run.key]) for run in runs if run.key in boxes}

    return Questions(items, read)


def _run_track(run: TrekRun, boxes_xywh: Floats) -> Track:
    there = np.isfinite(boxes_xywh).all(1)
    corners = np.concatenate([boxes_xywh[:, :2], boxes_xywh[:, :2] + boxes_xywh[:, 2:]], 1)
    return Track(run.frames[there], corners[there])
