"""Real footage to learn from: objects of a data set, where they are seen, and what its frames show.

Frames are counted on a grid of the data set's own: the annotation's 5 a second, or annotated frames in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from egohieraloc.data.base import Ints, Track
from egohieraloc.types import Box, Mask, Rgb

SIDE_PX = 8.0  # boxes with a shorter side are passed over


@dataclass(frozen=True, kw_only=True)
class FootageConfig:
    """Ego4D-VQ and VISOR as training data. Paths begin at the data folder unless they are absolute."""

    annotations: str = "ego4d/vq_train.json"
    clips: str = "ego4d/clips"  # <clip_uid>.mp4, or a folder of frames for each clip
    pseudo_masks: str = "ego4d/pseudo_masks"  # written by `egohieraloc pseudo-masks`
    visor: str = "visor/annotations"  # *.json, one for each video
    visor_images: str = "visor/images"  # <video>/<name>.jpg
    visor_dense: bool = False  # the interpolated annotations instead of the sparse ones
    visor_share: float = 0.3  # of the clips of a batch; 0 trains without VISOR
    clip_frames: int = 8  # T, on the data set's own grid
    absent_share: float = 0.3  # clips that do not show the object at all
    replaced_share: float = 0.5  # queries cut from the response track instead of the annotated crop
    query_rotation_deg: float = 135.0  # either way
    brightness: float = 0.3  # of clip and query, each by a factor of up to 1 +- this
    workers: int = 8  # processes that read ahead; 0 reads in the training process

    def __post_init__(self) -> None:
        for name in ("visor_share", "absent_share", "replaced_share", "brightness"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.clip_frames < 1 or self.workers < 0:
            raise ValueError(
                f"clip_frames must be at least 1 and workers 0, got {self.clip_frames} and {self.workers}"
            )


@dataclass(frozen=True, eq=False)
class FootageObject:
    """One object in one stretch of video."""

    name: str  # its own
    same: str  # equal for what may be the same object
    place: str  # what was filmed elsewhere does not show it
    key: str  # by which its data set finds it: the clip, or a name
    boxes: Track  # where it is seen, in annotated pixels
    width: int  # of an image in annotated pixels
    height: int
    known: Ints  # (K,) increasing frames of which it is known whether they show the object
    crop_frame: int | None = None  # the frame, one of `boxes`, that was chosen to show it

    def box(self, frame: int, image: Rgb) -> Box | None:
        """Where it is in an image of any size, or None where the frame does not show it."""
        boxes, there = self.boxes.at(np.array([frame]))
        height, width = image.shape[:2]
        scale = np.array([width / self.width, height / self.height] * 2)
        return Box(*(boxes[0] * scale).tolist()) if there[0] else None


@dataclass(frozen=True, eq=False)
class View:
    """An image, and the object in it where it is there. Pixels are the image's own."""

    image: Rgb  # (H, W, 3)
    box: Box | None = None
    mask: Mask | None = None  # (H, W)


class Footage(Protocol):
    """A data set."""

    @property
    def objects(self) -> Sequence[FootageObject]: ...

    @property
    def trust(self) -> float:
        """Weight of its masks: 1 for real ones, 0.3 for pseudo-masks."""

    def views(self, target: FootageObject, frames: Ints) -> list[View]:
        """What increasing frames of the object's clip show."""


def large_enough(track: Track) -> Track:
    """Only the boxes whose sides are long enough to learn from."""
    sides = (track.boxes_xyxy[:, 2:] - track.boxes_xyxy[:, :2]).min(1, initial=np.inf)
    return Track(track.frames[sides >= SIDE_PX], track.boxes_xyxy[sides >= SIDE_PX])
