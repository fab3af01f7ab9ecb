"""Frames on the network's canvas: decoded ahead, large ones scaled while they are decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from egohieraloc.types import Rgb
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.prefetch import prefetched
from egohieraloc.video.reader import Video


def counted(made: list[int], count: int = 100) -> Iterator[int]:
    for number in range(count):
        made.append(number)
        yield number


def test_items_come_in_order_and_few_of_them_too_early() -> None:
    made: list[int] = []
    for number, item in enumerate(prefetched(counted(made), 4)):
        assert item == number
        assert len(made) <= number + 7  # four wait, one is wanted, one is done and one may be begun


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def failing() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the fourth")

    items = prefetched(failing(), 8)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(items)


def test_giving_up_ends_the_thread() -> None:
    before, made = threading.active_count(), []
    items = prefetched(counted(made), 2)
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(made) < 10


def waves(width: int, height: int, shift: float) -> Rgb:
    """A smooth image: any good scaling gives nearly the same pixels."""
    y, x = np.mgrid[:height, :width] / height
    planes = [np.sin(9 * x + shift), np.cos(7 * y - shift), np.sin(5 * (x + y) + 2 * shift)]
    return np.round(127 + 100 * np.stack(planes, -1)).astype(np.uint8)


def write_video(path: Path, width: int, height: int, count: int = 4) -> Path:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", 10, options={"crf": "8"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(count):
            image = av.VideoFrame.from_ndarray(waves(width, height, 0.3 * number), format="rgb24")
            for packet in stream.encode(image):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)
    return path


@pytest.mark.parametrize(("width", "height"), [(160, 90), (320, 180), (90, 160)])
def test_canvases_are_the_letterboxed_frames(tmp_path: Path, width: int, height: int) -> None:
    """Of a canvas of 64, all three are scaled by the decoder; of one of 128 only the second."""
    video = Video.open(write_video(tmp_path / "video.mp4", width, height))
    for size in (64, 128):
        letterbox = Letterbox(width, height, size)
        canvases = list(video.canvases([0, 2, 3], letterbox))
        frames = list(video.frames([0, 2, 3]))
        assert [(c.index, c.time_s) for c in canvases] == [(f.index, f.time_s) for f in frames]
        for canvas, frame in zip(canvases, frames, strict=True):
            off = np.abs(canvas.rgb.astype(int) - letterbox.apply(frame.rgb))
            if max(width, height) <= 2 * size:
                assert off.max() == 0
            else:
                assert off.max() > 0
                assert off[letterbox.offset[1] + 1 : -letterbox.offset[1] - 1].mean() < 2.0
                assert off.max() <= 16


def test_wide_frames_are_compared_with_the_canvas_they_get(tmp_path: Path) -> None:
    """512 wide for 16:9, not 448: these are less than twice as large, and not scaled by the decoder."""
    video = Video.open(write_video(tmp_path / "video.mp4", 1000, 562, count=1))
    letterbox = Letterbox(1000, 562, 448)
    (canvas,) = video.canvases([0], letterbox)
    assert np.array_equal(canvas.rgb, letterbox.apply(video.frame(0).rgb))


def test_a_folder_gives_the_same_canvases(tmp_path: Path) -> None:
    from egohieraloc.images import write_image

    for number in range(3):
        write_image(tmp_path / f"{number}.png", waves(160, 90, number))
    video, letterbox = Video.open(tmp_path), Letterbox(160, 90, 64)
    for canvas, frame in zip(video.canvases([0, 1, 2], letterbox), video.frames([0, 1, 2]), strict=True):
        assert np.array_equal(canvas.rgb, letterbox.apply(frame.rgb))
