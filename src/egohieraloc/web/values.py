"""What the server keeps on disk and says over HTTP. Times are seconds; boxes are x1, y1, x2, y2 in pixels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from egohieraloc.result_schema import BoxXyxy, ResultDocument

Id = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Value(BaseModel):
    """Frozen, like the package's other values."""

    model_config = ConfigDict(frozen=True)


class VideoFacts(Value):
    """What a video says of itself once it was opened and understood."""

    media_type: str
    width: int
    height: int
    fps: float
    num_frames: int
    duration_s: float
    warning: str | None = None  # such as: the file ends early


class VideoEntry(VideoFacts):
    """A video that was taken."""

    id: Id
    name: str  # for people; never part of a path
    added_at: float  # seconds since 1970
    size_bytes: int


class QueryProgress(Value):
    """How far a query is. `left_s` is for this stage; None while it cannot be told."""

    stage: str
    label: str  # of the stage, for people
    done: int
    total: int
    left_s: float | None = None


class QueryView(Value):
    """An image of an object."""

    box: BoxXyxy | None = None  # in the image; None: all of it
    seen_at_s: float | None = None  # of the video it is from


class QueryEntry(QueryView):
    """A query about a video. `running` is never stored: after a restart such a query waits again."""

    id: Id
    video_id: Id
    created_at: float  # seconds since 1970
    others: list[QueryView] = []  # further images of the object
    until_s: float | None = None
    in_3d: bool = False  # also where in space
    camera_height_m: float | None = None  # above the floor: makes the place metric
    name: str | None = None  # given by the user
    status: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    message: str | None = None  # why it failed, or why nothing was found
    found: bool | None = None
    span_s: tuple[float, float] | None = None  # of the answer
    progress: QueryProgress | None = None

    @property
    def finished(self) -> bool:
        return self.status not in ("waiting", "running")


class QueryWithAnswer(QueryEntry):
    """A query and, once there is one, its answer: result.json, with the video's name for its path."""

    answer: ResultDocument | None = None


class About(Value):
    """What this server is and takes."""

    version: str
    model: str
    max_video_bytes: int


class Error(Value):
    """Why a request was refused."""

    error: str
