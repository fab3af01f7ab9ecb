"""Small images of a video, one for every two seconds: what an answer shows when the video is gone.

They are made while the video is encoded, from the frames that are decoded anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from egohieraloc import images
from egohieraloc.types import Floats, Rgb, SampledVideo, VideoInfo
from egohieraloc.video.reader import Video

EVERY_S = 2.0
LONG_SIDE_PX = 240
QUALITY = 80
SeeFrame = Callable[[int, Rgb], None]  # number of the frame in the file, its image


def slots(video: SampledVideo) -> dict[int, int]:
    """The frame shown for each slot of two seconds: the first sample in it. By frame number, the slot."""
    if not len(video):
        return {}
    places = ((video.time_s - video.time_s[0]) // EVERY_S).astype(np.int64)
    _, first = np.unique(places, return_index=True)
    return dict(zip(video.frame_index[first].tolist(), places[first].tolist(), strict=True))


def to_jpeg(rgb: Rgb, long_side_px: int = LONG_SIDE_PX) -> bytes:
    """A JPEG of at most that size."""
    return images.to_jpeg(rgb, long_side_px / max(rgb.shape[:2]), QUALITY)


def watched(video: Video, see: SeeFrame) -> Video:
    """The same video; `see` gets every frame that is read of it."""
    return Video(_Watched(video, see))


@dataclass(frozen=True, eq=False)
class _Watched:
    video: Video
    see: SeeFrame

    @property
    def path(self) -> Path:
        return self.video.path

    @property
    def info(self) -> VideoInfo:
        return self.video.info

    @property
    def times_s(self) -> Floats:
        return self.video.times_s

    def content_hash(self) -> str:
        return self.video.content_hash

    def focal_35mm(self) -> float | None:
        return self.video.backend.focal_35mm()

    def read(
        self, indices: Sequence[int], *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Rgb]]:
        for index, rgb in self.video.backend.read(indices, size=size):
            self.see(index, rgb)
            yield index, rgb
