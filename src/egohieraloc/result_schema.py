"""The schema of `result.json`: the one form of an answer that every view and every other program reads.

`python -m egohieraloc.result_schema` prints its JSON Schema, which is docs/result.schema.json. A change that
an older reader cannot bear raises `VERSION`. Boxes are x1, y1, x2, y2 in pixels of the original frame,
half-open; times are seconds of the video; `frame` is a number in the file, `sample` counts the frames that
were searched.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

FORMAT: Literal["egohieraloc-result"] = "egohieraloc-result"
VERSION: Literal[1] = 1
BoxXyxy = tuple[float, float, float, float]
Point = tuple[float, float, float]
FileName = Annotated[str, Field(pattern=r"^[\w.-]+$")]  # beside result.json, nowhere else
ViewFile = Annotated[str, Field(pattern=r"^views/[\w.-]+$")]
Png = Annotated[str, Field(description="An 8-bit grey PNG in base64.")]


class Part(BaseModel):
    """Frozen, finite, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MaskPart(Part):
    """A mask inside `box` as a run-length code: COCO's uncompressed form, column by column, zeros first."""

    box: BoxXyxy
    size: tuple[int, int]  # rows and columns
    counts: list[int]


class PredictionPart(Part):
    """The object in one sample."""

    frame: int
    sample: int
    time_s: float
    box: BoxXyxy
    score: float
    mask: MaskPart | None = None


class CurvePart(Part):
    """One value per sample; `threshold` is the level down to which an appearance reaches."""

    frame: list[int]
    time_s: list[float]
    raw: list[float]
    smooth: list[float]
    threshold: float


class ForegroundPart(Part):
    """The query's pixels as the network saw them inside `box`; `level` is the fallback that follows."""

    box: BoxXyxy
    mask: Png
    quality: float
    level: Literal[0, 1, 2]


class OtherViewPart(Part):
    """A further reference image of the object. `image` and `mask` are files in views/."""

    image: ViewFile
    mask: ViewFile | None
    box: BoxXyxy
    seen_at_s: float | None


class QueryPart(Part):
    """What was searched for. `image` and `mask` are files beside result.json."""

    image: FileName
    mask: FileName | None
    box: BoxXyxy
    seen_at_s: float | None
    foreground: ForegroundPart | None
    others: list[OtherViewPart] = []

    @property
    def views(self) -> list[QueryPart | OtherViewPart]:
        return [self, *self.others]


class VideoPart(Part):
    """`folder_fps` is set for a folder of images, `start` where its wall-clock beginning is known."""

    path: str
    width: int
    height: int
    fps: Annotated[float, Field(gt=0)]
    num_frames: int
    folder_fps: float | None = None
    start: AwareDatetime | None = None


class MapsPart(Part):
    """What the network saw in one sample, over the whole frame: DPM, correlation filter, QAM and RAM."""

    sample: int
    foreground: Png
    likelihood: Png
    response: Png
    location: Png
    mask: Png
    ellipse: tuple[float, float, float, float]  # centre and semi-axes, pixels
    drift: tuple[float, float]


class ViewPart(Part):
    """What one frame says of the place, and the factors of its weight (GSJC)."""

    frame: int
    weight: float
    semantic: float
    depth: float
    reprojection: float
    baseline: float
    point_world: Point


class PlacePart(Part):
    """The object in space. `displacement` is in the camera at `query_frame`: x right, y down, z forward."""

    found: Literal[True]
    reason: None = None
    unit: Literal["m", "sfm"]
    point_world: Point
    displacement: Point
    covariance: tuple[Point, Point, Point]
    query_frame: int
    posed_frames: int
    num_frames: int
    views: list[ViewPart]
    doubts: list[str] = []  # why it may be off by more than its covariance says


class NoPlacePart(Part):
    """Why there is no place in space."""

    found: Literal[False]
    reason: str
    posed_frames: int
    num_frames: int


class CandidatePart(Part):
    """An appearance that was not chosen."""

    score: float
    track: list[PredictionPart]
    place: PlacePart | NoPlacePart | None = None


class CameraPart(Part):
    """A camera model of COLMAP and its parameters. `valid_radius_px`: beyond it no pixel has a ray."""

    model: str
    width: int
    height: int
    params: list[float]
    valid_radius_px: float | None = None


class PosePart(Part):
    """A frame's pose, (3, 4), or null where it has none."""

    frame: int
    time_s: float
    cam_from_world: list[list[float]] | None


class CamerasPart(Part):
    """The camera path that the place stands on, as in cameras.json, and points of its map."""

    unit: Literal["m", "sfm"]
    camera: CameraPart
    frames: list[PosePart]
    points_world: list[Point]


class ResultDocument(Part):
    """Where the object was last seen, and everything a view of it needs."""

    format: Literal["egohieraloc-result"]
    version: Literal[1]
    box_format: Literal["x1,y1,x2,y2"] = "x1,y1,x2,y2"  # of every box here, in pixels of its image
    found: bool
    score: float
    reason: str | None
    query: QueryPart
    video: VideoPart
    sample_fps: float
    until_s: float | None
    track: list[PredictionPart]
    curve: CurvePart
    intervals: list[tuple[int, int]]
    alternatives: list[CandidatePart]
    maps: list[MapsPart]
    place: PlacePart | NoPlacePart | None
    cameras: CamerasPart | None
    versions: dict[str, str]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """What a schema cannot say: one value per sample, and tracks made of samples."""
        curve, frames = self.curve, self.video.num_frames
        count = len(curve.frame)
        if not len(curve.time_s) == len(curve.raw) == len(curve.smooth) == count:
            raise ValueError("the curve needs one value of each kind per sample")
        if self.found != bool(self.track) or self.found != (self.reason is None):
            raise ValueError("an answer has a track, or else a reason")
        rows = [row for track in (self.track, *(c.track for c in self.alternatives)) for row in track]
        if any(not 0 <= row.sample < count for row in rows) or any(row.frame >= frames for row in rows):
            raise ValueError("a track leaves the video")
        if any(not 0 <= first <= last < count for first, last in self.intervals):
            raise ValueError("an interval leaves the curve")
        return self


def schema() -> dict[str, Any]:
    """JSON Schema of result.json."""
    return ResultDocument.model_json_schema()


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
