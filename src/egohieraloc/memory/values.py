"""What the memory keeps and tells. Times are wall-clock times with a zone, or seconds of a video."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from egohieraloc.memory.wall_clock import Start
from egohieraloc.types import Box, VideoInfo, VideoSource


@dataclass(frozen=True)
class VideoEntry:
    """A video of the library."""

    id: str
    content: str  # hash of its content: equal videos are one
    source: VideoSource
    info: VideoInfo
    duration_s: float
    start: Start
    camera: str | None = None  # the name of the camera that `watch` recorded it from; None: a user's file
    ready: bool = False  # whether all of it can be asked

    @property
    def path(self) -> Path:
        return Path(self.source.path)

    @property
    def exists(self) -> bool:
        """Whether the file is still where it was; its memory answers without it."""
        return self.path.exists()

    @property
    def end(self) -> datetime:
        return self.at(self.duration_s)

    def at(self, time_s: float) -> datetime:
        """The wall-clock time of a moment of the video."""
        return self.start.time + timedelta(seconds=time_s)


@dataclass(frozen=True)
class ObjectEntry:
    """A saved object: its name, how many reference images it has, and when it was last seen."""

    name: str
    num_views: int
    last_seen: datetime | None = None


@dataclass(frozen=True)
class Sighting:
    """An appearance of an object in one video of the library."""

    video: VideoEntry
    start_s: float
    end_s: float
    score: float  # confidence; where there is no box the similarity of a remembered stretch, in [-1, 1]
    box: Box | None  # at the end, in pixels of the video; None: remembered only, its video is gone
    shown: tuple[float, Box] | None = None  # a moment of which there is a thumbnail, and the box there

    @property
    def seen_from(self) -> datetime:
        return self.video.at(self.start_s)

    @property
    def seen_until(self) -> datetime:
        return self.video.at(self.end_s)


@dataclass(frozen=True)
class Question:
    """A question that was asked, and its answer in short. `Memory.questions.result` gives all of it."""

    id: int
    asked_at: datetime
    object_name: str | None
    until: datetime | None
    message: str
    sightings: tuple[Sighting, ...]  # the answer first where `found`, then others; of videos still there
    found: bool
