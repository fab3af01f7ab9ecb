"""What the memory keeps and tells. Times are wall-clock times with a zone, or seconds of a video."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Literal

from egohieraloc.errors import VideoError
from egohieraloc.memory.wall_clock import Start
from egohieraloc.types import Box, VideoInfo, VideoSource
from egohieraloc.video.reader import Video


@dataclass(frozen=True)
class FileStamp:
    """Tells whether a file was written since, without reading it; of a folder whether files came or went."""

    size: int  # in bytes; 0 of a folder
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """None where there is nothing."""
        try:
            facts = path.stat()
        except OSError:
            return None
        return cls(0 if path.is_dir() else facts.st_size, facts.st_mtime_ns)


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
    stamp: FileStamp | None = None  # of the file when it was last seen to hold this video

    @property
    def path(self) -> Path:
        return Path(self.source.path)

    @property
    def exists(self) -> bool:
        """Whether this very video is still where it was; its memory answers without it."""
        return self.state == "there"

    @property
    def state(self) -> Literal["there", "gone", "replaced"]:
        """What is where the video was. A file that was written since is read, once, to know."""
        now, before = FileStamp.of(self.path), self.stamp
        if now is None:
            return "gone"
        if now == before:
            return "there"
        same = before is not None and now.size == before.size and _holds(self.source, now, self.content)
        return "there" if same else "replaced"

    @property
    def end(self) -> datetime:
        return self.at(self.duration_s)

    def at(self, time_s: float) -> datetime:
        """The wall-clock time of a moment of the video."""
        return self.start.time + timedelta(seconds=time_s)


def _holds(source: VideoSource, stamp: FileStamp, content: str) -> bool:
    try:
        return _content(source, stamp) == content
    except (VideoError, OSError):
        return False


@lru_cache(maxsize=1024)
def _content(source: VideoSource, stamp: FileStamp) -> str:
    return Video.reopen(source).content_hash


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
