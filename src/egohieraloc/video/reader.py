"""A video, from any file PyAV opens or any folder of images: exact times, any rate, bounded memory.

Time zero is the first frame shown, unless a folder's `times.txt` says otherwise. A `Video` holds a table of
frame times and nothing that must be closed: each reading opens the file for itself and closes it when it ends
or is given up.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.types import Floats, Frame, Ints, Rgb, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.aria import AriaRecording
from egohieraloc.video.container import Container, is_image
from egohieraloc.video.folder import Folder
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.prefetch import prefetched

DIAGONAL_35MM = math.hypot(36, 24)
DEFAULT_FOLDER_FPS = 5.0
AHEAD = 16  # frames decoded before they are asked for
SCALED_ABOVE = 2  # times as large as on the canvas: such frames are scaled by the decoder's library
MAX_SPAN_S = 366 * 86400.0  # from the first frame to the last, whatever a file claims
ROUNDING_S = 1e-3  # Matroska and its like round frame times to a millisecond


class Backend(Protocol):
    """What reads the frames: a file or a folder."""

    @property
    def path(self) -> Path: ...

    @property
    def info(self) -> VideoInfo: ...

    @property
    def times_s(self) -> Floats: ...

    def content_hash(self) -> str: ...

    def focal_35mm(self) -> float | None: ...

    def read(
        self, indices: Sequence[int], *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Rgb]]: ...


@dataclass(frozen=True, eq=False)
class Video:
    """Frames by number, by time, or sampled at a rate."""

    backend: Backend

    def __post_init__(self) -> None:
        if self.times_s[-1] - self.times_s[0] > MAX_SPAN_S:
            raise VideoError(f"{self.path} claims to last more than a year: its times are damaged.")

    def __repr__(self) -> str:
        info = self.info
        return (
            f"Video({str(self.path)!r}, {info.width}x{info.height}, {self.duration_s:.1f} s, "
            f"{float(info.fps):g} frames a second)"
        )

    @classmethod
    def open(cls, path: str | Path, *, folder_fps: float = DEFAULT_FOLDER_FPS) -> Video:
        """Open a video file, a recording of Project Aria (.vrs), or a folder of images that were taken
        `folder_fps` times a second."""
        path = Path(path)
        if not path.exists():
            raise VideoError(f"There is no video at {path}. Give a video file or a folder of images.")
        if path.suffix.lower() == ".vrs":
            return cls(AriaRecording.open(path))
        if path.is_dir():
            return cls(Folder.open(path, folder_fps))
        if is_image(path):
            raise VideoError(f"{path} is an image. Give a video file, or a folder of images.")
        return cls(Container.open(path))

    @classmethod
    def reopen(cls, source: VideoSource) -> Video:
        """Open the video that a `video.source` describes."""
        return cls.open(source.path, folder_fps=source.folder_fps or DEFAULT_FOLDER_FPS)

    @property
    def source(self) -> VideoSource:
        """A small value from which this video can be opened again."""
        rate = float(self.info.fps) if isinstance(self.backend, Folder) else None
        return VideoSource(str(self.path.absolute()), rate)

    def sampled(self, fps: float | None = 5.0, *, indices: Ints | None = None) -> SampledVideo:
        """The samples at `fps` (all frames with None), or the frames of these numbers, which increase."""
        chosen = self.sample_indices(fps) if indices is None else np.array(self._checked(indices), np.int64)
        rate = min(float(self.info.fps), fps or math.inf)
        return SampledVideo(self.source, self.info, rate, chosen, self.times_s[chosen])

    @property
    def path(self) -> Path:
        return self.backend.path

    @property
    def info(self) -> VideoInfo:
        return self.backend.info

    @property
    def times_s(self) -> Floats:
        """(num_frames,) when each frame of the file appears, increasing."""
        return self.backend.times_s

    @property
    def duration_s(self) -> float:
        """Until the last frame has been shown for one mean frame time."""
        return float(self.times_s[-1] - self.times_s[0]) + float(1 / self.info.fps)

    @cached_property
    def content_hash(self) -> str:
        """Equal for equal content, wherever it lies. A file of up to 1 GiB is hashed whole and a larger one
        by its size, its time of writing and 1024 blocks of 1 MiB spread over it; a folder by its rate and of
        every image its name, size, time of writing, first and last bytes."""
        return self.backend.content_hash()

    @property
    def focal_px(self) -> float | None:
        """The focal length in pixels where the file or its first image states one, else None."""
        focal_35mm = self.backend.focal_35mm()
        if not focal_35mm or not math.isfinite(focal_35mm) or focal_35mm < 0:
            return None
        return focal_35mm / DIAGONAL_35MM * math.hypot(self.info.width, self.info.height)

    def frame(self, index: int) -> Frame:
        """One frame by its number in the file."""
        for frame in self.frames([index]):
            return frame
        raise VideoError(f"Frame {index} of {self.path} is damaged and cannot be decoded. Choose another.")

    def frame_at(self, time_s: float) -> Frame:
        """The frame shown at a time."""
        start_s = float(self.times_s[0])
        if not start_s <= time_s <= start_s + self.duration_s:
            raise VideoError(
                f"Time {time_s} s is not in {self.path}: it must lie between {start_s:g} and "
                f"{start_s + self.duration_s:.3f} s."
            )
        return self.frame(int(self.shown_at(np.array([time_s]))[0]))

    def frames(
        self, indices: Sequence[int] | NDArray[np.integer], *, size: tuple[int, int] | None = None
    ) -> Iterator[Frame]:
        """Frames by increasing number, decoding no more than they need; scaled to `size`, width and height,
        where one is given. Damaged ones are left out with a warning."""
        return self._frames(self._checked(indices), size)

    def canvases(
        self, indices: Sequence[int] | NDArray[np.integer], letterbox: Letterbox
    ) -> Generator[Frame]:
        """Frames as `frames` gives them, but on a letterbox's canvas, and decoded ahead in a thread.

        Those more than twice as large as the canvas are made smaller where they are decoded: they cost
        little more than small ones, and their colours differ by a rounding from those of `Letterbox.apply`.
        """
        large = max(letterbox.frame_size) > SCALED_ABOVE * max(letterbox.content_size)
        frames = self.frames(indices, size=letterbox.content_size if large else None)
        canvases = (Frame(frame.index, frame.time_s, letterbox.apply(frame.rgb)) for frame in frames)
        return prefetched(canvases, AHEAD)

    def _checked(self, indices: Sequence[int] | NDArray[np.integer]) -> list[int]:
        numbers = [int(index) for index in indices]
        if any(late <= early for early, late in pairwise(numbers)):
            raise VideoError("Frame numbers must increase: sort them and give each one once.")
        for index in numbers[:1] + numbers[-1:]:
            if not 0 <= index < self.info.num_frames:
                raise VideoError(
                    f"Frame {index} is not in {self.path}: it has frames 0 to {self.info.num_frames - 1}."
                )
        return numbers

    def _frames(self, numbers: Sequence[int], size: tuple[int, int] | None) -> Iterator[Frame]:
        for index, rgb in self.backend.read(numbers, size=size):
            yield Frame(index, float(self.times_s[index]), rgb)

    def samples(
        self, fps: float | None = 5.0, *, start_s: float = -math.inf, until_s: float = math.inf
    ) -> Iterator[Frame]:
        """The frames of `sample_indices`, one after the other."""
        return self.frames(self.sample_indices(fps, start_s=start_s, until_s=until_s))

    def sample_indices(
        self, fps: float | None = 5.0, *, start_s: float = -math.inf, until_s: float = math.inf
    ) -> Ints:
        """Numbers of the frames shown at the start and every 1/fps after it; all frames with `fps` None.

        No frame comes twice, and a video whose mean rate is not above `fps` gives each of its frames once.
        Kept are those whose own time lies in start_s <= time < until_s, so neighbouring spans neither
        overlap nor leave anything out.
        """
        if fps is not None and not (math.isfinite(fps) and fps > 0):
            raise VideoError(f"A sampling rate must be a positive number of frames a second, got {fps}.")
        if math.isnan(start_s) or math.isnan(until_s):
            raise VideoError(f"Times must be numbers of seconds, got start {start_s} and until {until_s}.")
        if fps is None or self.info.fps <= fps * (1 + 1e-4):
            indices = np.arange(self.info.num_frames)
        else:
            count = max(1, math.ceil((self.duration_s - ROUNDING_S) * fps))
            indices = np.unique(self.shown_at(self.times_s[0] + np.arange(count) / fps))
        times_s = self.times_s[indices]
        return indices[(times_s >= start_s) & (times_s < until_s)]

    def shown_at(self, time_s: Floats) -> Ints:
        """Number of the last frame that begins at or before each time (N,), forgiving the file's rounding."""
        slack_s = min(ROUNDING_S, float(1 / self.info.fps) / 4)
        return np.maximum(np.searchsorted(self.times_s, time_s + slack_s, side="right") - 1, 0)

    def shown_every(self, fps: float) -> Ints:
        """Number of the frame shown at each n / fps seconds (N,), as annotations count frames."""
        return self.shown_at(np.arange(math.ceil(self.duration_s * fps - 0.01)) / fps)
