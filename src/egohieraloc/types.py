"""The values that flow between the stages: small, frozen, validated once, where they are made.

Conventions: pixels are squares, the centre of the top-left one is (0.5, 0.5) (COLMAP's rule); boxes are
half-open; times are seconds; camera axes are x right, y down, z forward; `a_from_b` maps b into a.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]  # (H, W, 3)
Mask = NDArray[np.bool_]  # (H, W)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
DEVIATIONS_95 = 2.7955  # standard deviations within which 95 % of a normal distribution in 3D lie


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

    def __iter__(self) -> Iterator[float]:
        """x1, y1, x2, y2."""
        return iter(self.xyxy)

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
    rgb: Rgb = field(repr=False)


@dataclass(frozen=True)
class VideoSource:
    """How to open a video again: see `Video.reopen`."""

    path: str
    folder_fps: float | None = None  # images a second of a folder that does not say so itself
    start: datetime | None = None  # wall-clock time of the beginning, where it is known


@dataclass(frozen=True, eq=False)
class SampledVideo:
    """A video and the N samples of it that were searched."""

    source: VideoSource
    info: VideoInfo
    sample_fps: float
    frame_index: Ints = field(repr=False)  # (N,) number of each sample's frame in the file
    time_s: Floats = field(repr=False)  # (N,)
    until_s: float | None = None  # the query time: nothing from it on was searched; None: the end

    def __post_init__(self) -> None:
        if self.frame_index.shape != self.time_s.shape or self.time_s.ndim != 1:
            raise ValueError(
                "Wanted one frame and one time per sample, got "
                f"{self.frame_index.shape} and {self.time_s.shape}"
            )

    def __len__(self) -> int:
        return len(self.time_s)

    def first(self, count: int) -> SampledVideo:
        """With its first samples alone."""
        return replace(self, frame_index=self.frame_index[:count], time_s=self.time_s[:count])


@dataclass(frozen=True, eq=False)
class QueryMask:
    """Foreground of the query, how far to trust it (in [0, 1]) and the fallback level that follows."""

    mask: Bytes = field(repr=False)  # (h, w) probability * 255 inside `box`
    box: Box  # what the mask covers, in pixels of the query image; it may reach beyond it
    quality: float
    level: Literal[0, 1, 2]


@dataclass(frozen=True)
class MaskConfidence:
    """How sure a mask is of itself (eq. 23): over all its pixels, over the sure ones, at the best one."""

    average: float  # P_ave
    threshold: float  # P_thr
    maximum: float  # P_max


@dataclass(frozen=True, eq=False)
class FramePrediction:
    """What the network says of one sample: whether the object is there, and where."""

    frame_index: int  # in the file
    sample: int  # in the sequence of samples
    time_s: float
    score: float  # in [0, 1]
    box: Box  # in pixels of the original frame
    mask: Mask | None = field(default=None, repr=False)  # (h, w) inside `mask_box`, as the network decodes
    mask_box: Box | None = None  # what `mask` covers, in pixels of the original frame
    # (h, w) like `mask`: the confidence of each of its pixels
    mask_prob: NDArray[np.float32] | None = field(default=None, repr=False)
    confidence: MaskConfidence | None = None  # of a mask that was not kept


@dataclass(frozen=True, eq=False)
class FrameMaps:
    """What the network saw in one sample. Maps cover the whole frame, values in [0, 1] times 255."""

    sample: int
    foreground: Bytes  # (h, w) DPM's O: similarity to the query's foreground
    likelihood: Bytes  # (h, w) DPM's Z: the query rather than its background
    response: Bytes  # (h, w) of the correlation filter
    location: Bytes  # (h, w) QAM: the response under the ellipse
    mask: Bytes  # (4h, 4w) RAM
    ellipse: tuple[float, float, float, float]  # QAM's: centre x, y and semi-axes, in pixels of the frame
    drift: tuple[float, float]  # QAM's, since the sample before, in pixels of the frame


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """The score of every sample, kept so that the choice can be explained. Intervals are inclusive."""

    time_s: Floats = field(repr=False)
    raw: Floats = field(repr=False)
    smooth: Floats = field(repr=False)
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

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[FramePrediction]:
        return iter(self.predictions)

    def __getitem__(self, position: int) -> FramePrediction:
        return self.predictions[position]

    def __repr__(self) -> str:
        span = f"{self.start_s:.1f} s to {self.end_s:.1f} s"
        samples = f"{len(self)} sample{'' if len(self) == 1 else 's'}"
        return f"ResponseTrack({span}, {samples}, confidence {self.score:.2f})"

    @property
    def start(self) -> int:
        """The first sample."""
        return self.predictions[0].sample

    @property
    def end(self) -> int:
        """The last sample, inclusive."""
        return self.predictions[-1].sample

    @property
    def start_s(self) -> float:
        return self.predictions[0].time_s

    @property
    def end_s(self) -> float:
        """The time of the last sample."""
        return self.predictions[-1].time_s

    @property
    def boxes_xyxy(self) -> Floats:
        """(N, 4) in pixels of the original frame."""
        return np.array([prediction.box.xyxy for prediction in self.predictions])

    @property
    def scores(self) -> Floats:
        """(N,)"""
        return np.array([prediction.score for prediction in self.predictions])


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
    displacement: Floats  # (3,) in the camera at query time
    covariance: Floats = field(repr=False)  # (3, 3) of point_world
    unit: Literal["m", "sfm"]
    posed_frames: int
    num_frames: int
    query_frame: int  # whose pose stands for the query time
    views: tuple[ViewEvidence, ...] = field(default=(), repr=False)
    doubts: tuple[str, ...] = ()  # why it may be off by more than `uncertainty`

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.displacement))

    @property
    def uncertainty(self) -> float:
        """The longest half-axis of the ellipsoid that holds the point in 95 of 100 cases."""
        return DEVIATIONS_95 * math.sqrt(max(float(np.linalg.eigvalsh(self.covariance)[-1]), 0.0))


@dataclass(frozen=True)
class NotLocalized:
    """There is no 3D answer, and why."""

    reason: str
    posed_frames: int = 0
    num_frames: int = 0
