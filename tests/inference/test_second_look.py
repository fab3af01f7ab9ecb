"""A second look cuts the right square out of the right frame; what it sees decides, and lies where it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import MAPS, decoded, sampled, search_over

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.answer import Answer, answer
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.second_look import Square, logit, look_again
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.weights import BothLooks, Calibration
from egohieraloc.types import Box, Frame, NotFound, ResponseTrack, Rgb
from egohieraloc.video.letterbox import Letterbox

WIDTH, HEIGHT, SIZE = 640, 480, 32
LETTERBOX = Letterbox(WIDTH, HEIGHT, SIZE)
LOOKS = BothLooks(first=0.5, second=0.5, threshold=0.3)
ONE = TemporalConfig(median=1)


class Eye:
    """A predictor that says how sure it is by the grey value of a square's middle: v / 255."""

    config = SimpleNamespace(input_size=SIZE)

    def __init__(self, looks: BothLooks = LOOKS) -> None:
        self.calibration = Calibration(threshold=0.2, looks=looks)
        self.seen: list[Rgb] = []

    def decode_images(self, query: object, canvases: Sequence[Rgb]) -> list[Decoded]:
        self.seen += canvases
        middle = Box(12, 12, 20, 20)
        mask = np.zeros((8, 8), np.uint8)
        mask[3:5, 3:5] = 255
        return [Decoded(float(c[16, 16, 0]) / 255, middle, mask, MAPS) for c in canvases]


def video_of(values: Sequence[int], *, readable: bool = True) -> EncodedVideo:
    """Sample s shows grey of value values[s]."""

    def frames(numbers: Sequence[int]) -> list[Frame]:
        assert list(numbers) == sorted(set(numbers))
        return [Frame(n, n / 30, np.full((HEIGHT, WIDTH, 3), values[n // 6], np.uint8)) for n in numbers]

    encoded = EncodedVideo(sampled(len(values)), LETTERBOX, FeatureStore(Path("unused")))
    return replace(encoded, pixels=frames) if readable else encoded


def ask(samples: dict[int, Decoded], video: EncodedVideo, eye: Eye, **changes: object) -> Answer:
    config = SearchConfig(**{"look_shares": (2.0,), **changes})  # type: ignore[arg-type]
    return answer(search_over(video, eye, config=config, temporal=ONE), samples)


def test_the_second_look_decides_between_appearances() -> None:
    """The first look prefers the later one; seen from close by, it is the earlier."""
    eye = Eye()
    samples = {2: decoded(0.7), 8: decoded(0.8)}
    found = ask(samples, video_of([0, 0, 250, 0, 0, 0, 0, 0, 10, 0]), eye)
    assert isinstance(found.track, ResponseTrack)
    assert (found.track.start, found.track.end, found.look) == (2, 2, "second")
    both = 0.5 * logit(0.7) + 0.5 * logit(250 / 255)
    assert found.track.score == pytest.approx(1 / (1 + math.exp(-both)), rel=1e-6)
    (other,) = found.alternatives
    assert other.start == 8
    assert len(eye.seen) == 2


def test_of_two_that_are_as_sure_the_later_one_is_the_answer() -> None:
    found = ask({2: decoded(0.8), 8: decoded(0.8)}, video_of([0, 0, 250, 0, 0, 0, 0, 0, 250, 0]), Eye())
    assert isinstance(found.track, ResponseTrack)
    assert found.track.start == 8


def test_what_looks_different_from_close_by_is_refused() -> None:
    found = ask({2: decoded(0.7)}, video_of([0, 0, 5, 0]), Eye())
    assert isinstance(found.track, NotFound)
    assert "an answer needs 0.30" in found.track.reason
    assert found.track.score == pytest.approx(found.alternatives[0].score)


@pytest.mark.parametrize("why", ["no video", "switched off", "not calibrated"])
def test_without_a_second_look_the_first_one_answers_and_the_answer_says_so(why: str) -> None:
    eye = Eye(BothLooks() if why == "not calibrated" else LOOKS)
    video = video_of([0, 0, 5, 0], readable=why != "no video")
    found = ask({2: decoded(0.7)}, video, eye, second_look=why != "switched off")
    assert isinstance(found.track, ResponseTrack)
    assert (found.look, found.track.score) == ("first", pytest.approx(0.7))
    assert not eye.seen


def test_frames_that_cannot_be_read_are_not_looked_back_at_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egohieraloc.inference.answer.look_back", lambda *_: pytest.fail("tried again"))
    eye = Eye()
    eye.calibration = replace(eye.calibration, back=LOOKS)
    assert ask({2: decoded(0.7)}, video_of([0, 0, 5, 0], readable=False), eye).look == "first"


def test_a_box_that_is_sure_replaces_the_first_one_in_its_frame() -> None:
    """The middle quarter of the square round (0, 10, 8, 14) on the canvas, which is 160 x 80 in the frame."""
    samples = {2: decoded(0.7), 3: decoded(0.6)}
    found = ask(samples, video_of([0, 0, 250, 250]), Eye())
    assert isinstance(found.track, ResponseTrack)
    best, other = found.track.predictions
    # The square is 320 wide and begins at the frame's left edge, 160 above the box's middle at y = 160.
    assert best.box.xyxy == pytest.approx((120, 120, 200, 200), abs=1e-6)
    assert other.box.xyxy == pytest.approx((0, 120, 160, 200), abs=1e-6)
    assert found.curve.raw.tolist() == [0, 0, 0.7, 0.6]  # the curve stays the first look's
    unsure = ask(samples, video_of([0, 0, 100, 100]), Eye())
    assert isinstance(unsure.track, ResponseTrack)
    assert unsure.track.predictions[0].box.xyxy == pytest.approx((0, 120, 160, 200), abs=1e-6)


def test_an_object_that_fills_the_frame_is_not_looked_at_again() -> None:
    eye = Eye()
    large = replace(decoded(0.7), box=Box(0, 4, 30, 28))
    look = look_again(search_over(video_of([0]), eye, temporal=ONE), {0: large}, [(0, 0)])
    assert look is not None
    assert look[0].logit is None
    assert not eye.seen


def test_an_object_that_fills_the_frame_is_judged_by_the_first_look() -> None:
    """Its confidence and threshold are those of one look, beside others seen twice."""
    large = replace(decoded(0.7), box=Box(0, 4, 30, 28))
    found = ask({2: large, 8: decoded(0.6)}, video_of([0, 0, 0, 0, 0, 0, 0, 0, 10, 0]), Eye())
    assert isinstance(found.track, ResponseTrack)
    assert (found.track.start, found.look) == (2, "first")
    assert found.track.score == pytest.approx(0.7)
    refused = ask({2: replace(large, score=0.1)}, video_of([0, 0, 0]), Eye())
    assert isinstance(refused.track, NotFound)
    assert "an answer needs 0.20" in refused.track.reason


@given(st.floats(0, 600), st.floats(0, 400), st.floats(8, 40), st.floats(8, 40), st.floats(1.5, 6))
def test_a_square_lies_round_its_box_inside_the_frame(
    x: float, y: float, width: float, height: float, share: float
) -> None:
    box = Box.from_xywh(x, y, width, height).clipped(WIDTH, HEIGHT)
    square = Square.round(box, share, WIDTH, HEIGHT)
    assert 0 <= square.left <= WIDTH - square.side
    assert 0 <= square.top <= HEIGHT - square.side
    cx, cy = box.center
    assert square.left - 1 <= cx <= square.left + square.side + 1
    assert square.top - 1 <= cy <= square.top + square.side + 1


def test_what_is_cut_out_goes_back_where_it_was() -> None:
    """A bright block in the frame: its box and mask in the square, put back, lie on the block."""
    frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    frame[200:260, 300:360] = 255
    square = Square.round(Box(290, 190, 370, 270), 4.0, WIDTH, HEIGHT)
    cut = square.cut(frame, 448)
    rows, columns = np.flatnonzero(cut[..., 0].max(1) > 127), np.flatnonzero(cut[..., 0].max(0) > 127)
    box = Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
    letterbox = Letterbox(WIDTH, HEIGHT, 448)
    mask = np.ascontiguousarray(cut[::4, ::4, 0])
    back = square.onto_canvas(Decoded(0.9, box, mask, MAPS), letterbox)
    assert letterbox.box_from_canvas(back.box).xyxy == pytest.approx((300, 200, 360, 260), abs=1.5)
    shown, covered = letterbox.mask_to_frame(back.mask)
    rows, columns = np.nonzero(shown > 127)
    per_cell = covered.width / shown.shape[1]
    assert (columns.mean() + 0.5) * per_cell == pytest.approx(330, abs=3)
    assert (rows.mean() + 0.5) * per_cell + covered.y1 == pytest.approx(230, abs=3)
    assert len(rows) * per_cell**2 == pytest.approx(3600, rel=0.2)
