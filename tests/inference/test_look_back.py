"""A look back searches for what was found in the query's image, and helps to decide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stored import decoded, sampled, search_over

from egohieraloc.config import SearchConfig, TemporalConfig, preset
from egohieraloc.inference.answer import Answer, answer
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.look_back import look_back
from egohieraloc.inference.predict import Decoded, Predictor, over_views
from egohieraloc.inference.second_look import logit
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import BothLooks, Calibration, Weights
from egohieraloc.query import Query
from egohieraloc.types import Box, Frame, NotFound, ResponseTrack
from egohieraloc.video.letterbox import Letterbox

BACK = BothLooks(first=0.5, second=0.5, threshold=0.3)
ONE = TemporalConfig(median=1)


class Mirror:
    """A predictor to which the query's image shows a sample's object with the logit given for it; an image is
    as grey as its sample's number."""

    def __init__(self, logits: Mapping[int, float], back: BothLooks = BACK) -> None:
        self.calibration = Calibration(threshold=0.2, back=back)
        self._logits = logits
        self.asked: list[Query] = []

    def look_back(self, query: object, found: Sequence[Query]) -> list[float]:
        self.asked += found
        return [self._logits[int(one.image[0, 0, 0])] for one in found]


def frames(numbers: Iterable[int]) -> list[Frame]:
    return [Frame(n, n / 30, np.full((48, 64, 3), n // 6, np.uint8)) for n in numbers]


GONE = EncodedVideo(sampled(10), Letterbox(64, 48, 32), FeatureStore(Path("unused")))
VIDEO = replace(GONE, pixels=frames)


def ask(samples: dict[int, Decoded], mirror: Mirror, **changes: object) -> Answer:
    config = SearchConfig(**changes)  # type: ignore[arg-type]
    return answer(search_over(VIDEO, mirror, config=config, temporal=ONE), samples)


def test_it_decides_between_appearances() -> None:
    """The first look prefers the later one, which the query's image does not show."""
    found = ask({2: decoded(0.7), 8: decoded(0.8)}, Mirror({2: 3.0, 8: -3.0}))
    assert isinstance(found.track, ResponseTrack)
    assert (found.track.start, found.look) == (2, "back")
    both = 0.5 * logit(0.7) + 0.5 * 3.0
    assert found.track.score == pytest.approx(1 / (1 + math.exp(-both)), rel=1e-6)
    assert [other.start for other in found.alternatives] == [8]


def test_of_two_that_are_as_sure_the_later_one_is_the_answer() -> None:
    found = ask({2: decoded(0.8), 8: decoded(0.8)}, Mirror({2: 2.0, 8: 2.0}))
    assert isinstance(found.track, ResponseTrack)
    assert found.track.start == 8


@pytest.mark.parametrize(("later", "chosen"), [(0.3, 8), (-0.5, 2)])
def test_a_later_one_wins_from_half_the_highest_confidence_on(later: float, chosen: int) -> None:
    """The earlier one has sigmoid(5 / 2) = 0.92, and sigmoid(-0.3 / 2) is half of it."""
    samples = {2: decoded(0.5), 8: decoded(0.5)}
    found = ask(samples, Mirror({2: 5.0, 8: later}, replace(BACK, threshold=0.0)))
    assert isinstance(found.track, ResponseTrack)
    assert found.track.start == chosen


def test_what_the_query_does_not_show_is_refused() -> None:
    found = ask({2: decoded(0.7)}, Mirror({2: -4.0}))
    assert isinstance(found.track, NotFound)
    assert "an answer needs 0.30" in found.track.reason


def test_what_the_best_sample_shows_is_searched_for() -> None:
    """Cut out of the frame by its box, which is twice as large there; an appearance of which nothing was
    decoded, and a box outside the frame, show nothing."""
    mirror = Mirror({3: 1.0})
    outside = replace(decoded(0.9), box=Box(0, 0, 8, 3))  # in the border of the canvas
    seen = {2: decoded(0.6), 3: decoded(0.9), 4: decoded(0.8), 9: outside}
    assert look_back(search_over(VIDEO, mirror), seen, [(2, 4), (6, 7), (9, 9)]) == [1.0, None, None]
    (found,) = mirror.asked
    assert found.box.xyxy == pytest.approx(VIDEO.letterbox.box_from_canvas(seen[3].box).xyxy)


def test_a_video_that_cannot_be_read_is_answered_by_the_first_look() -> None:
    mirror = Mirror({2: -9.0})
    assert look_back(search_over(GONE, mirror), {2: decoded(0.7)}, [(2, 2)]) is None
    found = answer(search_over(GONE, mirror, temporal=ONE), {2: decoded(0.7)})
    assert isinstance(found.track, ResponseTrack)
    assert (found.look, found.track.score) == ("first", pytest.approx(0.7))


@pytest.mark.parametrize("why", ["switched off", "not calibrated", "paper"])
def test_without_it_the_first_look_answers(why: str) -> None:
    mirror = Mirror({2: -9.0}, BothLooks() if why == "not calibrated" else BACK)
    rule = TemporalConfig(median=1, rule="paper") if why == "paper" else ONE
    config = SearchConfig(look_back=why != "switched off")
    found = answer(search_over(VIDEO, mirror, config=config, temporal=rule), {2: decoded(0.7)})
    assert isinstance(found.track, ResponseTrack)
    assert found.track.score == pytest.approx(0.7)
    assert not mirror.asked


def test_more_candidates_are_weighed_than_are_told() -> None:
    """The fifth by the first look may be the answer; three others are told."""
    samples = {2 * k: decoded(0.9 - 0.05 * k) for k in range(5)}
    rule = TemporalConfig(median=1, bridge=0, max_alternatives=3)
    mirror = Mirror({0: -3.0, 2: -3.0, 4: -3.0, 6: -3.0, 8: 3.0})
    found = answer(search_over(VIDEO, mirror, temporal=rule), samples)
    assert isinstance(found.track, ResponseTrack)
    assert found.track.start == 8
    assert len(found.alternatives) == 3


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    torch.manual_seed(0)
    return Predictor(Weights(EgoHieraLocNet(preset("tiny")).eval(), Calibration(), "tiny"), device="cpu")


def noise(seed: int) -> Query:
    rng = np.random.default_rng(seed)
    return Query(rng.integers(0, 255, (160, 160, 3), dtype=np.uint8), Box(40, 40, 120, 120))


def test_a_window_lies_in_the_frame_at_the_same_place_in_every_map(predictor: Predictor) -> None:
    """Black but for one bright square, a window has its strongest cells at one place of the canvas."""
    network, size = predictor.network, predictor.config.input_size
    torch.manual_seed(0)
    with torch.inference_mode():
        window = torch.rand(1, 3, 128, 128)
        query = network.encode_query(window, torch.tensor([[0.2, 0.2, 0.8, 0.8]]), torch.ones(1, 1, 128, 128))
        frame = network.as_frame(query)
    start = 32  # of (224 - 128) / 2 = 48, the multiple of 32 below
    maps = {16: "match", 32: "context", 8: "fine8", 4: "fine4"}
    for stride, name in maps.items():
        there, own = getattr(frame, name), getattr(query.scales[0], name)
        assert there.shape[-2:] == (size // stride, size // stride)
        first, last = start // stride, (start + 128) // stride
        torch.testing.assert_close(there[..., first:last, first:last], own)
        assert float(there.abs().sum()) == pytest.approx(float(own.abs().sum()))


def test_views_are_weighed_together(predictor: Predictor) -> None:
    views, found = [noise(1), noise(2)], [noise(3)]
    (one,), (other,) = (predictor.look_back(predictor.prepare(view), found) for view in views)
    (together,) = predictor.look_back(predictor.prepare(Query.of_views(*views)), found)
    assert one != pytest.approx(other, abs=1e-3)
    assert together == pytest.approx(over_views(torch.tensor([one, other])), abs=2e-2)


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=16))
def test_several_views_say_no_more_than_the_likeliest_and_no_less_than_their_mean(said: list[float]) -> None:
    together = over_views(torch.tensor(said))
    assert np.mean(said) - 1e-4 <= together <= max(said) + 1e-4


def test_odds_of_views() -> None:
    """Odds of 1 and of 9 have the roots 1 and 3, whose mean is 2: odds of 4."""
    assert over_views(torch.tensor([0.0, math.log(9)])) == pytest.approx(math.log(4), abs=1e-5)


def test_what_is_found_together_is_searched_for_one_by_one(predictor: Predictor) -> None:
    query, found = predictor.prepare(noise(1)), [noise(2), noise(3), noise(4)]
    together = predictor.look_back(query, found)
    assert together[0] != pytest.approx(together[1], abs=1e-3)
    for each, logit_together in zip(found, together, strict=True):
        assert predictor.look_back(query, [each]) == pytest.approx([logit_together], abs=2e-2)
