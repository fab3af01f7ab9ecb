"""Values that every reader makes, and the way they report what is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import DataError
from egohieraloc.types import Box, Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class QueryKey:
    """Which question of a benchmark: the same in annotations, predictions and submissions.

    A clip without an id is called `<video>#<its place>`; an annotation without one `#<its place>`.
    """

    clip: str
    annotation: str
    query_set: str

    def __str__(self) -> str:
        return f"clip {self.clip}, annotation {self.annotation}, query {self.query_set}"


@dataclass(frozen=True, eq=False)
class Track:
    """Boxes of one object at increasing frame numbers. Boxes may leave the image; frames may be left out."""

    frames: Ints  # (N,)
    boxes_xyxy: Floats  # (N, 4)

    def __post_init__(self) -> None:
        frames, boxes = self.frames, self.boxes_xyxy
        if frames.ndim != 1 or boxes.shape != (len(frames), 4):
            raise ValueError(
                f"a track needs frames (N,) and boxes (N, 4), got {frames.shape} and {boxes.shape}"
            )
        repeated = frames[1:][np.diff(frames) <= 0]
        if repeated.size:
            raise ValueError(
                f"a track has one box per frame, but frame {repeated[0]} comes twice or too late"
            )
        if not np.isfinite(boxes).all():
            raise ValueError("a box of a track is not finite")
        bad = (boxes[:, 2:] < boxes[:, :2]).any(1)
        if bad.any():
            raise ValueError(f"the box at frame {frames[bad][0]} has a negative width or height")

    @classmethod
    def empty(cls) -> Track:
        return cls(np.zeros(0, np.int64), np.zeros((0, 4)))

    @classmethod
    def from_boxes(cls, frames: Sequence[int], boxes_xyxy: Sequence[Sequence[float]] | Floats) -> Track:
        """In any order of frames."""
        numbers = np.asarray(frames, np.float64)
        if numbers.size == 0:
            return cls.empty()
        if (numbers != np.rint(numbers)).any():
            raise ValueError("a frame number of a track is not whole")
        boxes = np.asarray(boxes_xyxy, np.float64).reshape(-1, 4)
        order = np.argsort(numbers, kind="stable")
        return cls(numbers[order].astype(np.int64), boxes[order])

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def is_contiguous(self) -> bool:
        return len(self) == 0 or int(self.frames[-1] - self.frames[0]) + 1 == len(self)

    @property
    def areas(self) -> Floats:
        areas: Floats = (self.boxes_xyxy[:, 2:] - self.boxes_xyxy[:, :2]).prod(1)
        return areas

    @property
    def largest_px(self) -> float | None:
        """Area of the largest box; None without boxes."""
        return float(self.areas.max()) if len(self) else None

    def clipped(self, width: float, height: float) -> Track:
        """The parts inside an image of this size."""
        return Track(self.frames, np.clip(self.boxes_xyxy, 0, np.array([width, height, width, height])))

    def at(self, frames: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        """Boxes (M, 4) at these frames and whether the track has one (M,); zeros where it has none."""
        if len(self) == 0:
            return np.zeros((len(frames), 4)), np.zeros(len(frames), bool)
        places = np.minimum(np.searchsorted(self.frames, frames), len(self) - 1)
        there = self.frames[places] == frames
        return np.where(there[:, None], self.boxes_xyxy[places], 0.0), there


@dataclass(frozen=True)
class Skipped:
    """A query that is in the file but cannot be asked, and why."""

    query_set: str
    reason: str


@dataclass(frozen=True, eq=False)
class TrackingPass:
    """One way through a clip for a tracker: the frames in the order it sees them."""

    frames: Ints  # (N,)
    start: Box | None  # the box at the first of them, or None when the object has yet to be found
    template_frame: int  # where the object is shown
    template: Box


class HasKey(Protocol):
    @property
    def key(self) -> QueryKey: ...

    @property
    def problem(self) -> str:
        """Why the annotation file's record cannot be used; such a query counts as not answered."""


QueryT = TypeVar("QueryT", bound=HasKey, covariant=True)


@dataclass(frozen=True, eq=False)
class ClipQueries(Generic[QueryT]):
    """All queries of one clip: encode the clip once, then ask them all."""

    name: str
    video_uid: str
    clip_uid: str | None  # the name of the clip's file; some clips were never exported and have none
    fps: float
    queries: tuple[QueryT, ...]
    skipped: tuple[Skipped, ...] = ()


def group_by_clip(
    queries: Iterable[tuple[ClipQueries[QueryT], QueryT]],
) -> list[ClipQueries[QueryT]]:
    """Clips in order of first appearance, each with all its queries."""
    clips: dict[str, tuple[ClipQueries[QueryT], list[QueryT]]] = {}
    for clip, query in queries:
        clips.setdefault(clip.name, (clip, []))[1].append(query)
    return [
        ClipQueries(clip.name, clip.video_uid, clip.clip_uid, clip.fps, tuple(found), clip.skipped)
        for clip, found in clips.values()
    ]


def distinct(clips: Iterable[ClipQueries[QueryT]], path: str | Path) -> Iterator[ClipQueries[QueryT]]:
    """The clips as they come; two queries of one name are refused: their answers could not be told apart."""
    seen: set[QueryKey] = set()
    for clip in clips:
        for query in clip.queries:
            if query.key in seen:
                raise DataError(f"{path} asks twice for {query.key}. Give one of them another id.")
            seen.add(query.key)
        yield clip


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn what goes wrong while a record is read into a DataError that says where."""
    try:
        yield
    except KeyError as error:
        raise DataError(f"{where}: the field {error} is missing.") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(f"{where}: {error}.") from error
