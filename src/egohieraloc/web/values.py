"""What the server keeps on disk and says over HTTP. Times are seconds; boxes are x1, y1, x2, y2 in pixels."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Corners = tuple[float, float, float, float]


class Value(BaseModel):
    """Frozen, like the package's other values."""

    model_config = ConfigDict(frozen=True)


class VideoEntry(Value):
    """A video that was opened and understood."""

    id: Id
    name: str  # for people; never part of a path
    added_at: float  # seconds since 1970
    size_bytes: int
    media_type: str
    width: int
    height: int
    fps: float
    num_frames: int
    duration_s: float
    warning: str | None = None  # such as: the file ends early


class Progress(Value):
    """How far a question is. `left_s` is for this stage; None while it cannot be told."""

    stage: str
    done: int
    total: int
    left_s: float | None = None


class QueryEntry(Value):
    """A question about a video. `running` is never stored: after a restart such a question waits again."""

    id: Id
    video_id: Id
    created_at: float
    box: Corners | None = None  # in the query image; None: all of it
    seen_at_s: float | None = None
    until_s: float | None = None
    in_3d: bool = False  # also where in space
    status: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    message: str | None = None  # why it failed, or why nothing was found
    found: bool | None = None
    span_s: tuple[float, float] | None = None  # of the answer
    progress: Progress | None = None

    @property
    def finished(self) -> bool:
        return self.status not in ("waiting", "running")


class View(Value):
    """The object in one sample; `mask` is a PNG as data: URI that covers `mask_box`."""

    frame: int
    sample: int
    time_s: float
    box: Corners
    score: float
    mask: str | None = None
    mask_box: Corners | None = None


class Candidate(Value):
    """An appearance that was not chosen."""

    score: float
    track: list[View]


class Curve(Value):
    """The score of every sample."""

    frame: list[int]
    time_s: list[float]
    raw: list[float]
    smooth: list[float]
    threshold: float


class Answer(Value):
    """What `result.json` says, with masks. `place` is the answer in 3D where one was asked for.

    `scene` is what the 3D view draws: the camera path, the views and the map, turned so that z is up.
    """

    found: bool
    score: float
    reason: str | None
    sample_fps: float
    track: list[View]
    curve: Curve
    intervals: list[tuple[int, int]]
    alternatives: list[Candidate]
    place: dict[str, Any] | None = None
    scene: dict[str, Any] | None = None


class QueryWithAnswer(QueryEntry):
    """A question and, once there is one, its answer."""

    answer: Answer | None = None


class About(Value):
    """What this server is and takes."""

    version: str
    model: str
    max_video_bytes: int


class Error(Value):
    """Why a request was refused."""

    error: str
