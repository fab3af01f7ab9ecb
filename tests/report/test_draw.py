from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from av.error import FFmpegError

from egohieraloc.errors import OutputError, VideoError
from egohieraloc.images import read_image, write_image
from egohieraloc.report.draw import COLOUR, DARK, draw_frame, write_curve, write_overlay
from egohieraloc.types import Box, Frame, FramePrediction, ScoreCurve
from egohieraloc.video.reader import Video

BOX = Box(20, 20, 60, 40)


@pytest.fixture
def video(tmp_path: Path) -> Video:
    """Four seconds of grey images of an odd size."""
    for number in range(20):
        write_image(tmp_path / "frames" / f"{number}.png", np.full((61, 101, 3), 90, np.uint8))
    return Video.open(tmp_path / "frames")


def prediction(sample: int, **more) -> FramePrediction:
    return FramePrediction(sample, sample, sample / 5, 0.75, BOX, **more)


def is_green(image: np.ndarray) -> np.ndarray:
    return image[..., 1].astype(int) - image[..., 0] > 40


def test_overlay_is_a_plain_h264_video_with_the_track_in_it(video: Video, tmp_path: Path) -> None:
    path = tmp_path / "out" / "overlay.mp4"
    write_overlay(path, video, [prediction(k) for k in (8, 9, 10)], margin_s=0.5)
    with av.open(str(path)) as container:
        codec = container.streams.video[0].codec_context
        assert (codec.name, codec.pix_fmt, codec.width, codec.height) == ("h264", "yuv420p", 100, 60)
    overlay = Video.open(path)
    assert overlay.times_s == pytest.approx(np.arange(7) / 5, abs=1e-4)  # samples 6 to 12
    drawn = [bool(is_green(frame.rgb)[19:22, 25:55].any()) for frame in overlay.samples(None)]
    assert drawn == [False, False, True, True, True, False, False]
    assert [p.name for p in path.parent.iterdir()] == ["overlay.mp4"]


def test_overlay_at_the_ends_of_the_video_and_shrunk(video: Video, tmp_path: Path) -> None:
    path = tmp_path / "overlay.mp4"
    write_overlay(path, video, [prediction(k) for k in range(20)], long_side=50)
    info = Video.open(path).info
    assert (info.width, info.height, info.num_frames) == (50, 30, 20)


def test_frames_keep_their_times(video: Video, tmp_path: Path) -> None:
    path = tmp_path / "overlay.mp4"
    write_overlay(path, video, [prediction(4), prediction(9)], fps=0.1, margin_s=0)
    assert Video.open(path).times_s == pytest.approx([0, 1.0], abs=1e-4)


def test_mask_lies_where_its_box_says() -> None:
    frame = Frame(0, 0.0, np.full((120, 200, 3), 90, np.uint8))
    mask = np.zeros((6, 10), bool)
    mask[2:4, 3:6] = True
    plain = draw_frame(frame, None, 100, 60)
    shown = FramePrediction(0, 0, 0.0, 0.5, Box(0, 0, 1, 1), mask, Box(0, 0, 200, 120))
    changed = (draw_frame(frame, shown, 100, 60) != plain).any(-1)
    rows, columns = np.nonzero(changed[18:45, 25:90])
    assert (columns.min() + 25, columns.max() + 26) == (30 - 2, 60 + 2)  # a bright line and a dark one
    assert (rows.min() + 18, rows.max() + 19) == (20 - 2, 40 + 2)
    assert not changed[26:38, 34:58].any()  # the object keeps its colours
    outside = FramePrediction(0, 0, 0.0, 0.5, Box(0, 0, 1, 1), np.ones((6, 10), bool), Box(-200, 0, -1, 120))
    assert not (draw_frame(frame, outside, 100, 60) != plain)[18:45, 35:90].any()


def test_box_edges_and_boxes_that_leave_the_image() -> None:
    frame = Frame(0, 0.0, np.zeros((200, 300, 3), np.uint8))
    image = draw_frame(frame, FramePrediction(0, 0, 0.0, 0.5, Box(100, 80, 200, 160)), 300, 200)
    rows, columns = np.nonzero((image == COLOUR).all(-1))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (100, 80, 200, 160)
    assert not np.array_equal(frame.rgb, image)
    assert not frame.rgb.any()
    draw_frame(frame, FramePrediction(0, 0, 0.0, 0.5, Box(-50, -50, 400, 400)), 300, 200)


def test_overlay_leaves_nothing_half_written(video: Video, tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise FFmpegError(28, "No space left on device")

    target = tmp_path / "out"
    with pytest.raises(OutputError, match="the track is empty"):
        write_overlay(target / "overlay.mp4", video, [])
    (video.path / "9.png").write_text("damaged")
    with pytest.raises(VideoError, match=r"9\.png is not an image"):
        write_overlay(target / "overlay.mp4", video, [prediction(k) for k in range(5, 15)])
    monkeypatch.setattr("egohieraloc.report.draw._encode", fail)
    with pytest.raises(OutputError, match=r"overlay\.mp4: No space left on device. Is the disk full"):
        write_overlay(target / "overlay.mp4", video, [prediction(1)])
    assert list(target.iterdir()) == []


def curve(count: int) -> ScoreCurve:
    time_s = np.arange(count) / 5
    scores = np.clip(np.sin(time_s) ** 2, 0, 1)
    intervals = ((2, 10), (18, 25)) if count > 25 else ()
    return ScoreCurve(time_s, scores, scores, 0.3, intervals)


def test_curve_shades_the_chosen_interval(tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    write_curve(path, curve(40), chosen=(18, 25))
    chosen = read_image(path)
    assert chosen.shape == (450, 1350, 3)
    write_curve(path, curve(40), chosen=(2, 10))
    other = read_image(path)
    write_curve(path, curve(40))
    none = read_image(path)

    def green_columns(image: np.ndarray) -> np.ndarray:
        row = image[20:60, 100:1100].astype(int)
        return np.flatnonzero(((row[..., 1] - row[..., 0]) > 60).all(0))

    assert green_columns(other).max() < green_columns(chosen).min()
    write_curve(path, curve(40), chosen=(15, 30))  # completed beyond the interval of the curve
    longer = read_image(path)
    assert green_columns(longer).min() < green_columns(chosen).min()
    assert green_columns(longer).max() > green_columns(chosen).max()
    assert green_columns(none).size == 0
    assert (red(chosen) > 100).any()
    assert not (red(none) > 100).any()  # nothing was found, so nothing can end
    grey = (other == (234, 237, 239)).all(2).sum()  # the interval that was not chosen
    assert grey > 1000 > (none == (234, 237, 239)).all(2).sum()


def red(image: np.ndarray) -> np.ndarray:
    return image[..., 0].astype(int) - image[..., 1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_curves(tmp_path: Path, count: int) -> None:
    write_curve(tmp_path / "curve.png", curve(count))
    assert read_image(tmp_path / "curve.png").std() > 0


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np\n"
        "from egohieraloc.report.draw import write_curve\n"
        "from egohieraloc.types import ScoreCurve\n"
        "assert 'matplotlib' not in sys.modules\n"
        "z = np.arange(3.0)\n"
        f"write_curve({str(tmp_path / 'c.png')!r}, ScoreCurve(z, z, z, 0.5))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_lines_have_a_dark_edge_on_any_ground() -> None:
    frame = Frame(0, 0.0, np.full((400, 400, 3), COLOUR, np.uint8))
    mask = np.ones((10, 10), bool)
    shown = FramePrediction(0, 0, 0.0, 0.5, Box(20, 40, 90, 90), mask, Box(120, 120, 320, 320))
    image = draw_frame(frame, shown, 400, 400)
    assert [image[60, x].tolist() for x in (19, 20, 21)] == [list(DARK), list(COLOUR), list(DARK)]
    assert [image[220, x].tolist() for x in (118, 119)] == [list(DARK), list(COLOUR)]
