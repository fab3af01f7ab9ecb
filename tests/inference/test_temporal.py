from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import median_filter

from egohieraloc.config import TemporalConfig
from egohieraloc.errors import ConfigError
from egohieraloc.inference.temporal import TemporalChoice, choose_interval, median_filtered
from egohieraloc.settings import override

PAPER, EXTEND = TemporalConfig(rule="paper"), TemporalConfig()
RULES = pytest.mark.parametrize("config", [PAPER, EXTEND], ids=["paper", "extend"])
curves = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def choose(scores, config: TemporalConfig = EXTEND) -> TemporalChoice:
    return choose_interval(np.asarray(scores, float), np.arange(len(scores)) / 5, config)


def hill(*levels: tuple[float, int]) -> list[float]:
    return [level for level, count in levels for _ in range(count)]


@given(st.lists(st.floats(0, 1), min_size=7, max_size=60), st.sampled_from([1, 3, 5, 7]))
def test_median_is_that_of_scipy(scores: list[float], window: int) -> None:
    wanted = median_filter(np.array(scores), window, mode="mirror")
    assert median_filtered(np.array(scores), window).tolist() == wanted.tolist()


@pytest.mark.parametrize("scores", [[0.4], [0.4, 0.4], [0.4, 0.4, 0.4]])
def test_the_median_of_a_short_curve(scores: list[float]) -> None:
    assert median_filtered(np.array(scores), 7).tolist() == scores


def test_the_ends_of_the_curve() -> None:
    assert choose([0, 0, 0, 0, 0.9, 0.9]).chosen == (4, 5)
    assert choose([0, 0, 0, 0, 0, 0.9]).chosen is None
    assert choose([0.9, 0.9, 0, 0, 0, 0]).chosen == (0, 1)


@RULES
def test_nothing_there(config: TemporalConfig) -> None:
    for scores in ([], [0.0], [0.0] * 9):
        choice = choose(scores, config)
        assert choice.chosen is None
        assert choice.alternatives == choice.curve.intervals == ()
        assert choice.curve.threshold == 0


@RULES
def test_one_sample_and_a_plateau(config: TemporalConfig) -> None:
    assert choose([0.4], config).chosen == (0, 0)
    assert choose([0.4, 0.4], config).chosen == (0, 1)
    assert choose([0.5] * 30, config).chosen == (0, 29)


@RULES
def test_of_two_equal_peaks_the_last(config: TemporalConfig) -> None:
    choice = choose(hill((0, 5), (0.7, 6), (0, 6), (0.7, 8), (0, 5)), config)
    assert choice.chosen == (17, 24)
    assert choice.alternatives == ((5, 10),)
    assert choice.curve.intervals == ((5, 10), (17, 24))


def test_the_rules_differ_in_how_far_they_reach() -> None:
    scores = hill((0, 5), (0.4, 5), (1.0, 5), (0.85, 5), (0.12, 5), (0.08, 5))
    paper, extend = choose(scores, PAPER), choose(scores, EXTEND)
    assert (paper.chosen, paper.curve.threshold) == ((10, 19), 0.8)
    assert (extend.chosen, extend.curve.threshold) == ((5, 24), 0.1)


def test_a_later_low_peak_is_an_alternative_only() -> None:
    scores = hill((0, 5), (1.0, 5), (0, 5), (0.75, 5), (0, 5))
    extend = choose(scores, EXTEND)
    assert extend.chosen == (5, 9)
    assert extend.alternatives == ((15, 19),)
    assert choose(scores, TemporalConfig(peak_share=0.7)).chosen == (15, 19)


def test_a_score_equal_to_a_level_reaches_it() -> None:
    assert 0.8 * 0.07 > 0.056  # in floating point
    assert choose(hill((0.07, 5), (0.056, 5), (0, 9)), PAPER).chosen == (0, 9)


@pytest.mark.parametrize(("gap", "bridge", "wanted"), [(3, 2, (8, 12)), (3, 3, (0, 12)), (4, 3, (9, 13))])
def test_gaps_are_bridged_up_to_a_length(gap: int, bridge: int, wanted: tuple[int, int]) -> None:
    scores = hill((0.9, 5), (0, gap), (0.9, 5), (0, 9))
    assert choose(scores, TemporalConfig(bridge=bridge)).chosen == wanted


def test_alternatives_by_falling_peak_then_latest() -> None:
    peaks = (0.5, 0.8, 0.6, 0.8, 1.0)
    scores = [s for peak in peaks for s in hill((0, 5), (peak, 5))]
    choice = choose(scores)
    assert choice.chosen == (45, 49)
    assert choice.alternatives == ((35, 39), (15, 19), (25, 29))
    assert choose(scores, TemporalConfig(max_alternatives=0)).alternatives == ()
    assert len(choice.curve.intervals) == 5


@RULES
@given(scores=curves, power=st.integers(-20, 0), factor=st.floats(0.5, 1))
def test_scale_does_not_matter(
    config: TemporalConfig, scores: list[float], power: int, factor: float
) -> None:
    scores = [round(score, 3) for score in scores]
    plain, scaled = choose(scores, config), choose(np.array(scores) * factor * 2.0**power, config)
    assert scaled.chosen == plain.chosen
    assert scaled.alternatives == plain.alternatives
    assert scaled.curve.intervals == plain.curve.intervals


@RULES
@given(scores=curves, count=st.integers(0, 20))
def test_low_samples_before_only_shift_the_answer(
    config: TemporalConfig, scores: list[float], count: int
) -> None:
    scores = [0.0] * 3 + [round(score, 3) for score in scores]  # a level of the least float rounds to 0
    plain, later = choose(scores, config), choose([0.0] * count + scores, config)
    if plain.chosen is None:
        assert later.chosen is None
    else:
        assert later.chosen == (plain.chosen[0] + count, plain.chosen[1] + count)


@RULES
@given(scores=curves)
def test_intervals_are_in_order_apart_and_hold_the_maximum(
    config: TemporalConfig, scores: list[float]
) -> None:
    choice = choose(scores, config)
    flat = [end for interval in choice.curve.intervals for end in interval]
    assert flat == sorted(flat)
    assert all(b - a > config.bridge + 1 for a, b in zip(flat[1::2], flat[2::2], strict=False))
    if choice.chosen is not None:
        start, end = choice.chosen
        assert choice.chosen in choice.curve.intervals
        assert choice.curve.smooth[start] >= choice.curve.threshold * (1 - 1e-8)
        assert choice.curve.smooth[end] >= choice.curve.threshold * (1 - 1e-8)
        highest = choice.curve.smooth.max()
        share = config.paper_share if config.rule == "paper" else config.peak_share
        assert choice.curve.smooth[start : end + 1].max() >= share * highest * (1 - 1e-8)
        assert (choice.curve.smooth[end + 1 :] < share * highest).all()


def test_bad_input() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"Scores must be finite, got {bad}"):
            choose([0.1, bad, 0.3])
    with pytest.raises(ValueError, match=r"one score and one time per sample, got \(2,\) and \(3,\)"):
        choose_interval(np.zeros(2), np.zeros(3), EXTEND)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("median=4", "odd number of samples, got 4"),
        ("median=-1", "odd number"),
        ("bridge=-1", "must not be negative"),
        ("max_alternatives=-1", "must not be negative"),
        ("extend_share=0.95", "extend_share at most peak_share"),
        ("paper_share=0.0", "above 0"),
        ("peak_share=1.5", "at most 1"),
        ("complete=0.0", "complete must be above 0"),
        ("complete=nan", "complete must be above 0"),
        ("rule=best", "must be one of 'extend', 'paper'"),
    ],
)
def test_bad_settings(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(EXTEND, [word])


def test_a_cut_ends_an_appearance_and_the_last_shot_with_a_peak_is_the_answer() -> None:
    scores = np.array(hill((0.0, 4), (1.0, 5), (0.95, 5), (0.5, 5), (0.0, 4)))
    times = np.arange(len(scores)) / 5
    assert choose_interval(scores, times, EXTEND).chosen == (4, 18)
    parted = choose_interval(scores, times, EXTEND, cuts=[14, 9])
    assert parted.chosen == (9, 13)
    assert parted.alternatives == ((4, 8), (14, 18))
    assert choose_interval(scores, times, PAPER, cuts=[9]).chosen == (4, 13)  # the paper knows no cuts
    inside_a_gap = np.array(hill((1.0, 4), (0.0, 2), (1.0, 4)))
    parted = choose_interval(inside_a_gap, np.arange(10) / 5, EXTEND, cuts=[5])
    assert (parted.chosen, parted.alternatives) == ((6, 9), ((0, 3),))
