"""What figures show, from files: queries of a benchmark, their ground truth and the answers of any method.

A row's tracks count frames at `fps` (frame n is the image shown at n / fps seconds) and their boxes are in
pixels of the video, which may be smaller than the annotated one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from egohieraloc.data.base import ClipQueries, QueryKey, QueryT, Track
from egohieraloc.data.ego4d import VisualQuery, clip_paths, read_vq2d
from egohieraloc.data.ego4d_3d import PlaceQuery, read_mapping, visual_queries_of_places
from egohieraloc.data.egotracks import TrackingQuery, read_egotracks
from egohieraloc.data.trek150 import FPS as TREK_FPS
from egohieraloc.data.trek150 import TrekRun, read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation.egotracks import read_egotracks_predictions
from egohieraloc.evaluation.predictions import TrackAnswer, read_vq2d_predictions
from egohieraloc.evaluation.trek150 import read_trek150_predictions
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box, Floats, Frame, NotFound, ScoreCurve
from egohieraloc.video.reader import Video

TrackBenchmark = Literal["vq2d", "egotracks", "trek150"]
Tracks: TypeAlias = Mapping[QueryKey, Track]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class BenchmarkQuery:
    """A query of any benchmark that is answered with a track."""

    key: QueryKey
    title: str
    paths: tuple[Path, ...]  # where its video may lie
    fps: float
    crop_frame: int
    crop: Box
    truth: Track | None
    query_frame: int | None = None  # None: the end of the video
    width: int | None = None  # of the annotated video; None: as the file

    def video(self) -> Video:
        return Video.open(next((p for p in self.paths if p.exists()), self.paths[0]), folder_fps=self.fps)


@dataclass(frozen=True, eq=False)
class BenchmarkQueries:
    """All queries of an annotation file, and how predictions for them are read."""

    items: tuple[BenchmarkQuery, ...]
    read: Callable[[Path], Tracks]


@dataclass(frozen=True, eq=False)
class NamedTrack:
    """What one method answered."""

    name: str
    track: Track


@dataclass(frozen=True, eq=False)
class Row:
    """A query with its ground truth, the answers of several methods and, if known, the first one's curve."""

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
    """One of the queries of an annotation file by its index."""
    if not 0 <= number < len(items):
        raise DataError(f"There is no query {number}: the annotations have {len(items)}, from 0.")
    return items[number]


def read_benchmark(
    benchmark: TrackBenchmark, annotations: Path, clips: Path | None, *, split: str | None = None
) -> BenchmarkQueries:
    """The queries of a benchmark in the order of its file."""
    if benchmark == "trek150":
        return _trek150(annotations)
    if clips is None:
        raise DataError("Give --clips, the folder that holds the videos of the annotation file.")
    return _vq2d(annotations, clips, split) if benchmark == "vq2d" else _egotracks(annotations, clips, split)


def benchmark_row(query: BenchmarkQuery, methods: Sequence[tuple[str, Result | Tracks]]) -> Row:
    """A query with the answer of every method; a method without an answer has an empty track."""
    video = query.video()
    scale = video.info.width / query.width if query.width else 1.0
    crop_s = min(query.crop_frame / query.fps, float(video.times_s[-1]))
    end_s = video.duration_s if query.query_frame is None else query.query_frame / query.fps
    return Row(
        query.title,
        Query.from_time(video, time_s=crop_s, box=query.crop.scaled(scale, scale)),
        video,
        query.fps,
        end_s,
        None if query.truth is None else _scaled(query.truth, scale),
        tuple(
            NamedTrack(
                name,
                result_track(found, query.fps)
                if isinstance(found, Result)
                else _scaled(found.get(query.key, Track.empty()), scale),
            )
            for name, found in methods
        ),
        next((found.curve for _, found in methods[:1] if isinstance(found, Result)), None),
    )


def result_row(answers: Sequence[tuple[str, Result]], *, title: str = "") -> Row:
    """Answers of several methods to one query, read from their folders."""
    first = answers[0][1]
    for name, result in answers:
        if (result.video.info, result.query.box) != (first.video.info, first.query.box):
            raise DataError(
                f"'{name}' answers another query than '{answers[0][0]}': the video or the query's box "
                "differs. Give folders of the same video and query."
            )
    fps = first.video.sample_fps
    video = Video.reopen(first.video.source)
    tracks = tuple(NamedTrack(name, result_track(result, fps)) for name, result in answers)
    end_s = float(first.curve.time_s[-1]) if len(first.curve.time_s) else video.duration_s
    return Row(title, first.query, video, fps, end_s, None, tracks, first.curve)


def result_track(result: Result, fps: float) -> Track:
    """The response track on a grid of `fps`; empty when nothing was found."""
    if isinstance(result.track, NotFound):
        return Track.empty()
    seen = {round(p.time_s * fps): p.box.xyxy for p in result.track.predictions}
    return Track.from_boxes(list(seen), list(seen.values()))


def place_images(
    places: Sequence[PlaceQuery], vq2d: Path, mapping: Path, clips: Path
) -> dict[QueryKey, Query]:
    """The query images of VQ3D queries, which are those of their VQ2D queries."""
    visual = visual_queries_of_places(
        places, (query for clip in read_vq2d(vq2d) for query in clip.queries), read_mapping(mapping)
    )
    by_key = {query.key: query for query in _vq2d(vq2d, clips, None).items}
    return {key: benchmark_row(by_key[query.key], ()).query for key, query in visual.items()}


def read_methods(paths: Sequence[tuple[str, Path]]) -> tuple[tuple[str, Result | Path], ...]:
    """By name: the result of `locate` in a folder with a result.json, else the path of a prediction file."""
    found: list[tuple[str, Result | Path]] = []
    for name, path in paths:
        if not path.exists():
            raise DataError(f"There is no {path} for '{name}'. Give a prediction file or a result folder.")
        found.append((name, Result.load(path) if (path / "result.json").exists() else path))
    return tuple(found)


def _scaled(track: Track, scale: float) -> Track:
    return Track(track.frames, track.boxes_xyxy * scale)


def _vq2d(annotations: Path, clips: Path, split: str | None) -> BenchmarkQueries:
    pairs = _with_clips(read_vq2d(annotations, split=split))
    items = tuple(
        replace(
            _clip_query(clips, clip, query, query.response), query_frame=query.query_frame, width=query.width
        )
        for clip, query in pairs
    )
    return BenchmarkQueries(items, _track_reader(read_vq2d_predictions, [query for _, query in pairs]))


def _egotracks(annotations: Path, clips: Path, split: str | None) -> BenchmarkQueries:
    pairs = _with_clips(read_egotracks(annotations, split=split))
    items = tuple(_clip_query(clips, clip, query, query.truth) for clip, query in pairs)
    return BenchmarkQueries(items, _track_reader(read_egotracks_predictions, [query for _, query in pairs]))


def _with_clips(clips: Iterable[ClipQueries[QueryT]]) -> list[tuple[ClipQueries[QueryT], QueryT]]:
    return [(clip, query) for clip in clips for query in clip.queries]


def _clip_query(
    clips: Path, clip: ClipQueries[Any], query: VisualQuery | TrackingQuery, truth: Track | None
) -> BenchmarkQuery:
    paths = clip_paths(clips, clip.name)
    return BenchmarkQuery(query.key, query.object_title, paths, clip.fps, query.crop_frame, query.crop, truth)


def _track_reader(
    read: Callable[[Path, list[T]], Mapping[QueryKey, TrackAnswer]], queries: list[T]
) -> Callable[[Path], Tracks]:
    return lambda path: {key: answer.track for key, answer in read(path, queries).items()}


def _trek150(folder: Path) -> BenchmarkQueries:
    """Whole sequences from their first frame (OPE)."""
    sequences = [sequence for sequence in read_trek150(folder) if not sequence.problem]
    runs = [sequence.runs("ope")[0] for sequence in sequences]
    items = tuple(
        BenchmarkQuery(
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

    return BenchmarkQueries(items, read)


def _run_track(run: TrekRun, boxes_xywh: Floats) -> Track:
    there = np.isfinite(boxes_xywh).all(1)
    corners = np.concatenate([boxes_xywh[:, :2], boxes_xywh[:, :2] + boxes_xywh[:, 2:]], 1)
    return Track(run.frames[there], corners[there])
