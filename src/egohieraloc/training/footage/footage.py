"""Annotated footage as training data: the objects of a data set, where they are seen, and the images.

Frames are numbered as in the data set's annotation: at 5 per second, or the annotated frames in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from egohieraloc.data.base import Ints, Track
from egohieraloc.types import Box, Mask, Rgb

MIN_SIDE_PX = 8.0  # boxes with a shorter side are ignored


@dataclass(frozen=True, kw_only=True)
class FootageConfig:
    """Ego4D-VQ and VISOR as training data. Paths are relative to the data folder, or absolute."""

    annotations: str = "ego4d/vq_train.json"
    clips: str = "ego4d/clips"  # <clip_uid>.mp4, or a folder of frames per clip
    pseudo_masks: str = "ego4d/pseudo_masks"  # written by `egohieraloc pseudo-masks`
    frames: str = "ego4d/frames"  # written by `egohieraloc frames`; clips that are not there are read instead
    visor: str = "visor/annotations"  # *.json, one per video
    visor_images: str = "visor/images"  # <video>/<name>.jpg
    visor_dense: bool = False  # the interpolated annotations instead of the sparse ones
    visor_share: float = 0.3  # of the clips of a batch; 0 trains on Ego4D-VQ alone
    clip_frames: int = 8  # T, consecutive annotated frames
    absent_share: float = 0.3  # clips that do not show the object at all
    replaced_share: float = 0.5  # queries cut from the track instead of the annotated crop
    query_rotation_deg: float = 135.0  # largest angle, in both directions
    brightness: float = 0.3  # clip and query are each scaled by a factor within 1 +- this
    workers: int = 8  # processes that load ahead; 0 loads in the training process

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

    name: str  # unique
    identity: str  # equal for objects that may be the same
    location: str  # footage of other locations does not show the object
    key: str  # how its data set finds it: the clip's uid, or the object's name
    boxes: Track  # where it is visible, in annotation pixels
    width: int  # of the annotated images
    height: int
    labelled: Ints  # (K,) increasing frames known to show or not to show the object
    crop_frame: int | None = None  # the frame of the annotated query crop, one of `boxes`

    def box(self, frame: int, image: Rgb) -> Box | None:
        """Its box in the frame's image, which may have any size; None where the frame does not show it."""
        boxes, visible = self.boxes.at(np.array([frame]))
        height, width = image.shape[:2]
        scale = np.array([width / self.width, height / self.height] * 2)
        return Box(*(boxes[0] * scale).tolist()) if visible[0] else None


@dataclass(frozen=True, eq=False)
class AnnotatedFrame:
    """An image with the box and mask of an object, if it is visible, in pixels of the image."""

    image: Rgb  # (H, W, 3)
    box: Box | None = None
    mask: Mask | None = None  # (H, W)


class Footage(Protocol):
    """A data set of objects in video."""

    @property
    def objects(self) -> Sequence[FootageObject]: ...

    @property
    def trust(self) -> float:
        """Weight of its masks: 1 for real ones, 0.3 for pseudo-masks."""

    def annotated_frames(self, target: FootageObject, frames: Ints) -> list[AnnotatedFrame]:
        """The images of increasing frames of the object's clip, annotated with this object."""


def drop_small_boxes(track: Track) -> Track:
    """Only the boxes large enough to learn from."""
    sides = (track.boxes_xyxy[:, 2:] - track.boxes_xyxy[:, :2]).min(1, initial=np.inf)
    return Track(track.frames[sides >= MIN_SIDE_PX], track.boxes_xyxy[sides >= MIN_SIDE_PX])
