"""The values that flow between the stages: small, frozen, validated once, where they are made.

Conventions: pixels are squares, the centre of the top-left one is (0.5, 0.5) (COLMAP's rule); boxes are
half-open; times are seconds; camera axes are x right, y down, z forward; `a_from_b` maps b into a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]  # (H, W, 3)
Mask = NDArray[np.bool_]  # (H, W)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """An axis-aligned box in pixels: it covers x1 <= x < x2 and y1 <= y < y2. It may leave the image."""

    x1: float
    y1: float
    x2: float
    y2: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(v) for v in self.xyxy):
            raise ValueError(f"A box must be finite, got {self.xyxy}")
        if self.x2 < self.x1 or self.y2 < self.y1:
            raise ValueError(f"A box must have x1 <= x2 and y1 <= y2, got {self.xyxy}")

    @classmethod
    def from_xywh(cls, x: float, y: float, width: float, height: float) -> Box:
        """Left, top, width, height."""
        return cls(x, y, x + width, y + height)

    @property
    def xyxy(self) -> tuple[float, float, float, float]:
        return (self.x1, self.y1, self.x2, self.y2)

    @property
    def xywh(self) -> tuple[float, float, float, float]:
        return (self.x1, self.y1, self.width, self.height)

    @property
    def width(self) -> float:
        return self.x2 - self.x1

    @property
    def height(self) -> float:
        return self.y2 - self.y1

    @property
    def area(self) -> float:
        return self.width * self.height

    @property
    def center(self) -> tuple[float, float]:
        return ((self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2)

    def scaled(self, x: float, y: float) -> Box:
        """In pixels of an image so many times as wide and as high."""
        return Box(self.x1 * x, self.y1 * y, self.x2 * x, self.y2 * y)

    def clipped(self, width: float, height: float) -> Box:
        """The part inside an image of this size; it has no area when the box lies outside."""
        x1, x2 = (min(max(v, 0.0), float(width)) for v in (self.x1, self.x2))
        y1, y2 = (min(max(v, 0.0), float(height)) for v in (self.y1, self.y2))
        return Box(x1, y1, x2, y2)


@dataclass(frozen=True)
class VideoInfo:
    """What a video says of itself. `num_frames` counts frames of the file, not samples."""

    width: int
    height: int
    fps: Fraction
    num_frames: int


@dataclass(frozen=True, eq=False)
class Frame:
    """One image of a video: `index` is its number in the file, `time_s` its exact time."""

    index: int
    time_s: float
    rgb: Rgb


@dataclass(frozen=True, eq=False)
class QueryMask:
    """Foreground of the query, how far to trust it (in [0, 1]) and the fallback level that follows."""

    mask: NDArray[np.float32]  # (H, W), in [0, 1]
    quality: float
    level: Literal[0, 1, 2]


@dataclass(frozen=True, eq=False)
class FramePrediction:
    """What the network says of one sample: how sure it is that the object is there, and where."""

    frame_index: int  # in the file
    sample: int  # in the sequence of samples
    time_s: float
    score: float  # in [0, 1]
    box: Box  # in pixels of the original frame
    mask: Mask | None = None  # (h, w) inside `mask_box`, at the network's own resolution
    mask_box: Box | None = None  # what `mask` covers, in pixels of the original frame
    mask_prob: NDArray[np.float32] | None = None  # (h, w) like `mask`: the confidence of each of its pixels


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """The score of every sample, kept so that the choice can be explained. Intervals are inclusive."""

    time_s: Floats
    raw: Floats
    smooth: Floats
    threshold: float
    intervals: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class ResponseTrack:
    """An appearance: one prediction per sample, without gaps, and a calibrated score for the whole."""

    predictions: tuple[FramePrediction, ...]
    score: float

    def __post_init__(self) -> None:
        samples = [p.sample for p in self.predictions]
        if not samples or samples != list(range(samples[0], samples[0] + len(samples))):
            raise ValueError(f"A track needs one prediction for each sample without gaps, got {samples}")

    @property
    def start(self) -> int:
        return self.predictions[0].sample

    @property
    def end(self) -> int:
        """The last sample, inclusive."""
        return self.predictions[-1].sample


@dataclass(frozen=True)
class NotFound:
    """The object was not seen. `score` is that of the best candidate, which was too low."""

    reason: str
    score: float = 0.0


class DepthUnit(Enum):
    """What the numbers of a depth map mean. Only the last two can be back-projected."""

    RELATIVE = "relative"  # inverse depth, up to a scale and a shift: large is near
    SFM = "sfm"  # z in the unit of the reconstruction
    METRIC = "m"  # z in metres


@dataclass(frozen=True, eq=False)
class DepthMap:
    """One number for every cell of a grid over the whole frame. Not finite or not positive: unknown."""

    values: NDArray[np.float32]  # (h, w)
    unit: DepthUnit

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.size == 0:
            raise ValueError(f"A depth map must have shape (h, w), got {self.values.shape}")


@dataclass(frozen=True, eq=False)
class ViewEvidence:
    """What one view says of the place: its 3D point and the factors of its weight (the paper's GSJC)."""

    frame_index: int
    point_world: Floats  # (3,)
    semantic: float
    depth: float
    reprojection: float
    baseline: float
    weight: float


@dataclass(frozen=True, eq=False)
class Localization3D:
    """Where the object is: in the world, and seen from the query camera."""

    point_world: Floats  # (3,)
    displacement: Floats  # (3,) in the camera at the query time
    covariance: Floats  # (3, 3) of point_world
    unit: Literal["m", "sfm"]
    posed_frames: int
    num_frames: int
    query_frame: int  # whose pose stands for the query time
    views: tuple[ViewEvidence, ...] = ()

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.displacement))


@dataclass(frozen=True)
class NotLocalized:
    """There is no 3D answer, and why."""

    reason: str
    posed_frames: int = 0
    num_frames: int = 0


@dataclass(frozen=True, eq=False)
class VideoRef:
    """Which video an answer speaks of, and at which rate it was sampled."""

    path: str
    info: VideoInfo
    sample_fps: float
    frame_indices: tuple[int, ...] = field(repr=False)  # file frame number of each sample
