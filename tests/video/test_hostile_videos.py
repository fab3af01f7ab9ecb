"""Video files made or broken so as to harm their reader: a clear error, whatever they claim."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from PIL import Image

from egohieraloc.errors import VideoError
from egohieraloc.video import container
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video


def write_video(path: Path, *, times: list[int] | None = None, codec: str = "mpeg4") -> Path:
    """Grey frames, each of its own brightness, at the given times in units of 1/1000 s."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=10)
        stream.width = stream.height = 48
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for number, time in enumerate(times or range(0, 1000, 100)):
            rgb = np.full((48, 48, 3), 20 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path


def test_a_stream_without_a_codec(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", codec="h264")
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz"))
    with pytest.raises(VideoError, match="cannot be decoded"):
        Video.open(path)


@pytest.mark.parametrize("stated", [Fraction(0), Fraction(-5), None])
def test_a_rate_that_is_none(stated: Fraction | None) -> None:
    class Stream:
        @property
        def average_rate(self) -> Fraction:
            return Fraction(1, 0)

        guessed_rate = stated

    assert container._stated_rate(Stream(), "average_rate", "guessed_rate") is None
    assert container._stated_rate(SimpleNamespace(a=stated, b=Fraction(30)), "a", "b") == 30


def test_more_pixels_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4")
    monkeypatch.setattr(container, "MAX_PIXELS", 47 * 48)
    with pytest.raises(VideoError, match="48x48; at most"):
        Video.open(path)


def write_jpegs(path: Path, *images: tuple[int, int]) -> Path:
    """Black squares of these sides at these times, in milliseconds."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = 48, 48, "yuvj420p"
        for side, time in images:
            data = io.BytesIO()
            Image.new("RGB", (side, side)).save(data, "jpeg")
            packet = av.Packet(data.getvalue())
            packet.stream, packet.pts, packet.time_base = stream, time, Fraction(1, 1000)
            output.mux(packet)
    return path


def test_a_later_frame_of_more_pixels_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In MJPEG each frame has a size of its own, whatever the file says at its start."""
    path = write_jpegs(tmp_path / "a.mkv", (48, 0), (128, 200), (48, 400))
    assert len(list(Video.open(path).frames([0, 1, 2]))) == 3
    monkeypatch.setattr(container, "MAX_PIXELS", 64 * 64)
    with pytest.warns(RuntimeWarning, match="1 of 3 wanted frames cannot be decoded"):
        assert len(list(Video.open(path).frames([0, 1, 2]))) == 2


def test_a_video_of_centuries(tmp_path: Path) -> None:
    path = write_jpegs(tmp_path / "a.mkv", (48, 0), (48, 200), (48, 10**13))
    with pytest.raises(VideoError, match="more than a year"):
        Video.open(path)


def test_a_variable_rate_keeps_the_stored_times(tmp_path: Path) -> None:
    times = [0, 40, 500, 520, 4000, 4040]
    video = Video.open(write_video(tmp_path / "a.mkv", times=times))
    assert video.times_s == pytest.approx(np.array(times) / 1000)
    assert video.frame_at(3.9).index == 3
    assert [frame.index for frame in video.samples(1.0)][-1] in (4, 5)


def test_negative_times_begin_at_zero(tmp_path: Path) -> None:
    video = Video.open(write_video(tmp_path / "a.mkv", times=[-300, -200, -100, 0, 100]))
    assert video.times_s[0] == 0
    assert np.diff(video.times_s) == pytest.approx(0.1)
    assert video.frame(4).rgb.mean() == pytest.approx(80, abs=3)


def test_8k(tmp_path: Path) -> None:
    """7680x4320, as cameras record it: read whole, and small for the network."""
    with av.open(str(tmp_path / "a.mkv"), "w") as output:
        stream = output.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = 7680, 4320, "yuvj420p"
        grey = av.VideoFrame(7680, 4320, "yuvj420p")
        for plane, value in zip(grey.planes, (200, 128, 128), strict=True):
            plane.update(bytes([value]) * plane.buffer_size)
        for number in range(2):
            grey.pts = number
            output.mux(stream.encode(grey))
        output.mux(stream.encode())
    video = Video.open(tmp_path / "a.mkv")
    assert (video.info.width, video.info.height, video.info.num_frames) == (7680, 4320, 2)
    rgb = video.frame(1).rgb
    assert rgb.shape == (4320, 7680, 3)
    assert Letterbox(7680, 4320, 64).apply(rgb)[32, 32] == pytest.approx(200, abs=3)
