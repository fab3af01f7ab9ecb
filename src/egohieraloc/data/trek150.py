"""TREK-150: one folder per sequence, 60 frames per second, one box per frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.base import ClipQueries, Ints, QueryKey, TrackingPass, reading
from egohieraloc.errors import DataError
from egohieraloc.types import Box, Floats

FPS = 60.0
HANDS: tuple[str, ...] = ("left", "right", "both")
Protocol = Literal["ope", "mse", "hoi"]
PROTOCOLS: tuple[Protocol, ...] = ("ope", "mse", "hoi")


@dataclass(frozen=True, eq=False)
class TrekRun:
    """One start of a tracker: which frames it sees, in the order it sees them. The first has the box."""

    key: QueryKey  # clip: sequence, annotation: protocol, query set: name of the anchor
    frames: Ints  # (N,) places in the sequence
    truth_xywh: Floats  # (N, 4)
    visible: NDArray[np.bool_]  # (N,)
    problem: str = ""  # why the sequence cannot be used; then there are no frames

    @property
    def passes(self) -> tuple[TrackingPass, ...]:
        first = Box.from_xywh(*self.truth_xywh[0].tolist())
        return (TrackingPass(self.frames, first, int(self.frames[0]), first),)


@dataclass(frozen=True, eq=False)
class TrekSequence:
    """A sequence and where its runs start."""

    name: str
    folder: Path
    truth_xywh: Floats  # (N, 4); -1 where the object is not visible
    attributes: frozenset[str]
    anchors: tuple[tuple[int, bool], ...]  # (frame, backwards)
    interactions: tuple[tuple[int, int, int], ...]  # (first frame, last frame, index in HANDS)
    problem: str = ""  # why it cannot be used; then all that is known are its images

    @property
    def frame_paths(self) -> list[Path]:
        return sorted((self.folder / "img").glob("*.jpg"))

    def __len__(self) -> int:
        """In frames."""
        return len(self.frame_paths) if self.problem else len(self.truth_xywh)

    def runs(self, protocol: Protocol) -> tuple[TrekRun, ...]:
        """A sequence with a problem has one, which carries it."""
        if self.problem:
            return (replace(self._run(protocol, "", np.zeros(0, np.int64)), problem=self.problem),)
        last = len(self.truth_xywh) - 1
        if protocol == "ope":
            return (self._run("ope", "", _span(0, last)),)
        if protocol == "mse":
            return tuple(
                self._run("mse", self._anchor_name(a, backwards), _span(a, 0 if backwards else last))
                for a, backwards in self.anchors
            )
        return tuple(
            self._run("hoi", f"hoi-{first}-{end}-{hand}", _span(first, end))
            for first, end, hand in self.interactions
        )

    def clip(self, protocol: Protocol) -> ClipQueries[TrekRun]:
        return ClipQueries(self.name, self.name, self.name, FPS, self.runs(protocol))

    def _anchor_name(self, frame: int, backwards: bool) -> str:
        """The toolkit's name has no direction; where an anchor is used both ways, ours says which."""
        both_ways = backwards and (frame, False) in self.anchors
        return f"anchor-{frame}-backwards" if both_ways else f"anchor-{frame}"

    def _run(self, protocol: Protocol, name: str, frames: Ints) -> TrekRun:
        truth = self.truth_xywh[frames]
        return TrekRun(QueryKey(self.name, protocol, name), frames, truth, np.asarray((truth >= 0).any(1)))


def read_trek150(folder: str | Path) -> Iterator[TrekSequence]:
    """Sequences sorted by name: folders that hold a `groundtruth_rect.txt`. A broken one says so."""
    folder = Path(folder)
    found = sorted(folder.glob("*/groundtruth_rect.txt"))
    if not found:
        raise DataError(f"{folder} holds no TREK-150 sequence (a folder with groundtruth_rect.txt).")
    for path in found:
        folder = path.parent
        try:
            yield _read_sequence(folder)
        except DataError as error:
            yield TrekSequence(folder.name, folder, np.zeros((0, 4)), frozenset(), (), (), str(error))


def read_rectangles(path: str | Path) -> Floats:
    """Boxes x, y, w, h, one per line (N, 4)."""
    rows = _table(Path(path), 4)
    if not np.isfinite(rows).all():
        raise DataError(f"{path}: a box is not finite.")
    return rows


def _span(first: int, last: int) -> Ints:
    """Frames from one to the other, both included, in either direction."""
    step = -1 if last < first else 1
    return np.arange(first, last + step, step, dtype=np.int64)


def _read_sequence(folder: Path) -> TrekSequence:
    truth = read_rectangles(folder / "groundtruth_rect.txt")
    anchors = _integers(folder / "anchors.txt", 2)
    interactions = _integers(folder / "anchors_hoi.txt", 3)
    for path, frames in (("anchors.txt", anchors[:, :1]), ("anchors_hoi.txt", interactions[:, :2])):
        if frames.size and not (frames.min() >= 0 and frames.max() < len(truth)):
            raise DataError(f"{folder / path}: an anchor lies outside the sequence's {len(truth)} frames.")
    attributes = folder / "attributes.txt"
    words = attributes.read_text(encoding="utf-8").replace(",", " ").split() if attributes.exists() else []
    return TrekSequence(
        name=folder.name,
        folder=folder,
        truth_xywh=truth,
        attributes=frozenset(words),
        anchors=tuple((int(frame), bool(direction >= 1)) for frame, direction in anchors),
        interactions=tuple((int(first), int(end), int(hand)) for first, end, hand in interactions),
    )


def _integers(path: Path, columns: int) -> Ints:
    """A table that may be absent: (0, columns) then."""
    if not path.exists():
        return np.zeros((0, columns), np.int64)
    return _table(path, columns).astype(np.int64)


def _table(path: Path, columns: int) -> Floats:
    with reading(str(path)):
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
        rows = [[float(v) for v in line.replace(",", " ").split()] for line in lines if line.strip()]
        wrong = next((i for i, row in enumerate(rows) if len(row) != columns), None)
        if wrong is not None:
            raise ValueError(f"line {wrong + 1} has {len(rows[wrong])} values instead of {columns}")
    return np.array(rows, np.float64).reshape(-1, columns)
