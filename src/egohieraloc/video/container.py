"""A video file: a table of frame times made without decoding, and exact reading of chosen frames.

The count and the times come from the packets, never from the container's own claim. Files that store no
presentation times (raw streams, AVI) are counted by decoding once and timed by their frame rate. Pixels are
the stored ones, turned upright; a pixel that is not square stays so.
"""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from av.stream import Disposition
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.images import MAX_PIXELS
from egohieraloc.types import Floats, Rgb, VideoInfo

LARGEST_ALLOCATION = 640 << 20  # bytes: more than a frame of MAX_PIXELS needs
HASHED_BLOCKS, BLOCK_BYTES = 1024, 1 << 20
SEEK_GAIN_FRAMES = 32  # a jump to a key frame must save this many frames to be worth it


@cache
def _limit_allocations() -> None:
    """Tables of a few kB can claim a GB; FFmpeg believes them. PyAV has no name for its limit, but its Linux
    wheels bring the library that has."""
    for library in Path(av.__file__).parents[1].glob("av.libs/libavutil*"):
        ctypes.CDLL(str(library)).av_max_alloc(ctypes.c_size_t(LARGEST_ALLOCATION))


@dataclass(frozen=True, eq=False)
class Container:
    """A file, its frames' times, and where decoding can begin."""

    path: Path
    info: VideoInfo
    times_s: Floats
    pts: NDArray[np.int64] | None  # (num_frames,) increasing; None when the file stores no times
    keys: NDArray[np.int64]  # numbers of the frames where decoding can begin
    seeks: NDArray[np.int64]  # what to seek to get there

    @classmethod
    def open(cls, path: Path) -> Container:
        packets = _scan(path)
        first = _first_frame(path)
        if packets is None or first.pts is None:
            return cls._by_counting(path, first)
        pts = packets.pts[packets.pts >= first.pts]  # a cut may begin with frames that cannot be decoded
        keys = np.searchsorted(pts, packets.keys)  # 0 for those before the first frame shown
        if packets.lost > 0:
            _warn(f"{path} ends early: {pts.size} of {pts.size + packets.lost} frames can be read.")
        fps = _rate(packets.rate, pts, packets.time_base)
        times_s = (pts - pts[0]) * packets.time_base.numerator / packets.time_base.denominator
        return cls(path, _info(first, fps, pts.size), times_s, pts, keys, packets.seeks)

    @classmethod
    def _by_counting(cls, path: Path, first: av.VideoFrame) -> Container:
        with _opened(path) as (container, stream):
            rate = _stated_rate(stream, "guessed_rate", "average_rate") or Fraction(25)
            count = sum(1 for _ in _decoded(container, stream))
        times_s = np.arange(count) * rate.denominator / rate.numerator
        start = np.zeros(1, np.int64)
        return cls(path, _info(first, rate, count), times_s, None, start, start)

    def content_hash(self) -> str:
        """Of all bytes; of a file over 1 GiB a part of them and the time of writing."""
        facts = self.path.stat()
        blocks = -(-facts.st_size // BLOCK_BYTES)
        sampled = f" of {facts.st_mtime_ns}" if blocks > HASHED_BLOCKS else ""
        digest = hashlib.blake2b(f"file of {facts.st_size} bytes{sampled}".encode(), digest_size=16)
        chosen = np.linspace(0, blocks - 1, min(blocks, HASHED_BLOCKS)).round()
        with self.path.open("rb") as file:
            for block in chosen:
                file.seek(int(block) * BLOCK_BYTES)
                digest.update(file.read(BLOCK_BYTES))
        return digest.hexdigest()

    def focal_35mm(self) -> float | None:
        """The focal length for a 36x24 mm image, as phones write it into QuickTime files."""
        with _opened(self.path) as (container, stream):
            tags = {**container.metadata, **stream.metadata}
        values = [v for k, v in tags.items() if k.lower().endswith("focal_length.35mm_equivalent")]
        with suppress(ValueError, IndexError):
            return float(values[0])
        return None

    def read(
        self, indices: Sequence[int], *, size: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Rgb]]:
        """Decode the given increasing frame numbers; only these are turned into RGB, scaled to `size` (width
        and height) where one is given."""
        given, size = 0, size or (self.info.width, self.info.height)
        converter = VideoReformatter()  # not set up anew for every frame
        with _opened(self.path) as (container, stream):
            for run in self._runs(indices):
                wanted = set(run)
                with closing(self._decoded_from(container, stream, run)) as decoded:
                    for number, frame in decoded:
                        if number in wanted:
                            yield number, _rgb(frame, size, converter)
                            given += 1
                        if number >= run[-1]:
                            break
        if given < len(indices):
            missing = len(indices) - given
            _warn(f"{self.path} is damaged: {missing} of {len(indices)} wanted frames cannot be decoded.")

    def _runs(self, indices: Sequence[int]) -> list[list[int]]:
        """Cut the numbers where a jump to a key frame saves decoding."""
        runs: list[list[int]] = []
        for index in indices:
            if not runs or self.keys[self._key_before(index)] - runs[-1][-1] > SEEK_GAIN_FRAMES:
                runs.append([])
            runs[-1].append(index)
        return runs

    def _key_before(self, index: int) -> int:
        return max(int(np.searchsorted(self.keys, index, side="right")) - 1, 0)

    def _decoded_from(
        self, container: Any, stream: Any, run: list[int]
    ) -> Generator[tuple[int, Any], None, None]:
        """Number and image of decoded frames, from at or before run[0] on."""
        if self.pts is None:
            yield from enumerate(_decoded(container, stream))
            return
        wanted = set(self.pts[run].tolist())
        key = self._key_before(run[0])
        # Some formats land late when they seek: then begin one key frame earlier, or at the first.
        for start in dict.fromkeys((key, max(key - 1, 0), 0)):
            container.seek(int(self.seeks[start]), stream=stream)
            landed = False
            for number, frame in _numbered(_decoded(container, stream, wanted), self.pts):
                if not landed and number > run[0] and start > 0:
                    break
                landed = True
                yield number, frame
            else:
                return


def _rgb(frame: av.VideoFrame, size: tuple[int, int], converter: VideoReformatter) -> Rgb:
    """The image upright, of this width and height."""
    turns = _quarter_turns(frame)
    width, height = size[::-1] if turns % 2 else size
    if width < frame.width:  # every pixel counts; to packed RGB, colours would be halved in resolution first
        frame = converter.reformat(frame, width, height, "gbrp", interpolation=Interpolation.AREA, threads=0)
    else:
        frame = converter.reformat(frame, width, height, "rgb24")
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(), turns))


def is_image(path: Path) -> bool:
    """Whether a file is a single image; FFmpeg takes one for a video of one frame."""
    return path.suffix.lower() in (".heic", ".heif", ".avif") or format_name(path).endswith(
        ("_pipe", "image2")
    )


def format_name(path: Path) -> str:
    """FFmpeg's name of a file's format, such as `matroska,webm`."""
    with _opened(path) as (container, _):
        return str(container.format.name)


def tags_of(path: Path) -> dict[str, str]:
    """What a file says in words of itself and its images, such as `creation_time`; names in small letters."""
    with _opened(path) as (container, stream):
        return {name.lower(): value for name, value in {**stream.metadata, **container.metadata}.items()}


@dataclass(frozen=True, eq=False)
class _Packets:
    """What the packets of a file say, in order of time."""

    pts: NDArray[np.int64]
    keys: NDArray[np.int64]  # times of key frames
    seeks: NDArray[np.int64]  # what to seek to find each of them
    time_base: Fraction
    rate: Fraction | None  # as the container states it
    lost: int  # packets that the container promises and does not hold


def _scan(path: Path) -> _Packets | None:
    """Read the packets' times without decoding; None when the file stores none that can be trusted."""
    times: list[int] = []
    found = 0
    seek_of_key: dict[int, int] = {}
    with _opened(path) as (container, stream):
        codec = stream.codec_context
        if container.format.name == "avi" and not codec.codec.intra_only:
            return None
        if not stream.time_base:
            return None
        seeks_by_pts = container.format.name.startswith(("matroska", "mov"))
        for packet in _packets(container, stream):
            if packet.size == 0:
                continue
            if packet.pts is None:
                return None
            found += 1
            if packet.is_keyframe or not seek_of_key:
                by_pts = seeks_by_pts or packet.dts is None
                seek_of_key[packet.pts] = packet.pts if by_pts else packet.dts
            if packet.is_discard or (codec.name == "vp8" and not memoryview(packet)[0] & 0x10):
                continue  # decoded for the sake of others and never shown
            times.append(packet.pts)
        keys = sorted(seek_of_key)
        return _Packets(
            pts=np.unique(np.array(times, np.int64)),
            keys=np.array(keys, np.int64),
            seeks=np.array([seek_of_key[key] for key in keys], np.int64),
            time_base=stream.time_base,
            rate=_stated_rate(stream, "average_rate"),
            lost=stream.frames - found,
        )


def _first_frame(path: Path) -> av.VideoFrame:
    with _opened(path) as (container, stream), closing(_decoded(container, stream)) as decoded:
        for frame in decoded:
            return frame
    raise VideoError(f"No frame of {path} can be decoded. The file is empty or damaged: copy it again.")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """The container and its first track of moving images.

    FFmpeg gets the open file and may open nothing by itself: some formats (concat, HLS ...) are lists of
    further files, which a negative's video must not make us read.
    """
    try:
        if path.stat().st_size == 0:
            raise VideoError(f"{path} is empty (0 bytes). Copy or record the video again.")
        _limit_allocations()
        with (
            path.open("rb") as file,
            av.open(file, options={"protocol_whitelist": "none"}, metadata_errors="ignore") as container,
        ):
            streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
            if not streams:
                found = "only sound" if container.streams.audio else "it is empty or cut off"
                raise VideoError(f"{path} holds no images: {found}. Give a whole file with a video track.")
            _check_codec(path, streams[0].codec_context)
            streams[0].codec_context.options = {"max_pixels": str(MAX_PIXELS)}  # of later frames too
            streams[0].thread_type = "AUTO"
            yield container, streams[0]
    except (FFmpegError, OSError) as error:
        raise VideoError(
            f"{path} cannot be read as a video ({error.strerror}). "
            "Is it cut off, damaged, a list of other files or something else?"
        ) from error


def _check_codec(path: Path, codec: Any) -> None:
    if codec is None:
        raise VideoError(f"{path} is stored in a way that cannot be decoded. Convert it, such as to H.264.")
    if codec.width * codec.height > MAX_PIXELS:
        raise VideoError(f"{path} is {codec.width}x{codec.height}; at most 8192x8192 pixels are read.")


def _stated_rate(stream: Any, *names: str) -> Fraction | None:
    """The first rate that a stream states and that can be one; some state 1/0."""
    for name in names:
        with suppress(ZeroDivisionError, ValueError):
            rate = Fraction(getattr(stream, name) or 0)
            if rate > 0:
                return rate
    return None


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """The whole packets as far as the file can be read, and an empty one that ends the decoding."""
    with suppress(FFmpegError):
        yield from (packet for packet in container.demux(stream) if not packet.is_corrupt)


def _decoded(
    container: Any, stream: Any, wanted: set[int] | None = None
) -> Generator[av.VideoFrame, None, None]:
    """Frames in order of time, passing over damaged ones. With `wanted` (times) others may be left out where
    that saves decoding and cannot change the wanted ones."""
    codec = stream.codec_context
    marked = _marks_unneeded(codec)
    for packet in _packets(container, stream):
        skip = wanted is not None and packet.size > 0 and packet.pts not in wanted
        if skip and codec.codec.intra_only:
            continue
        if marked:
            codec.skip_frame = "NONREF" if skip else "DEFAULT"  # no other frame builds on these
        with suppress(FFmpegError):
            yield from packet.decode()


def _marks_unneeded(codec: Any) -> bool:
    """Whether frames say that no other one builds on them. In HEVC they say so of their own temporal layer,
    so there must be one layer; the count is in the 22nd byte of what MP4 and Matroska store of the codec."""
    about = codec.extradata or b""
    one_layer = len(about) > 21 and about[0] == 1 and about[21] >> 3 & 7 == 1
    return codec.name == "h264" or (codec.name == "hevc" and one_layer)


def _numbered(frames: Iterator[av.VideoFrame], pts: NDArray[np.int64]) -> Iterator[tuple[int, av.VideoFrame]]:
    """Each frame with its number; frames at times that are not in the table are left out."""
    for frame in frames:
        if frame.pts is not None:
            number = int(np.searchsorted(pts, frame.pts))
            if number < pts.size and pts[number] == frame.pts:
                yield number, frame


def _quarter_turns(frame: av.VideoFrame) -> int:
    """How often the image must be turned by 90 degrees against the clock to stand upright."""
    return round(frame.rotation / 90) % 4


def _info(first: av.VideoFrame, fps: Fraction, num_frames: int) -> VideoInfo:
    upright = _quarter_turns(first) % 2 == 0
    width, height = (first.width, first.height) if upright else (first.height, first.width)
    return VideoInfo(width, height, fps, num_frames)


def _rate(stated: Fraction | None, pts: NDArray[np.int64], time_base: Fraction) -> Fraction:
    """The stated rate where the times bear it out (it is exact, times may be rounded), else the mean one."""
    span_s = int(pts[-1] - pts[0]) * time_base
    if span_s == 0:
        return Fraction(stated or 1)
    mean = (pts.size - 1) / span_s
    tolerance = max(5e-4, 2e-3 / float(span_s))
    if stated and abs(stated / mean - 1) < tolerance:
        return Fraction(stated)
    return mean.limit_denominator(10_000) or mean


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
