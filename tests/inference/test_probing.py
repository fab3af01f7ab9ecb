"""Few samples of a long video are decoded, and the answer is that of decoding every promising one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from stored import Counts, Draws, decoded, sampled, search_over

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.answer import answer
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.probing import PIECE, Probed, pieces_of
from egohieraloc.inference.search import before_in_stretch, scores_of
from egohieraloc.inference.store import FeatureStore
from egohieraloc.inference.temporal import choose_interval
from egohieraloc.models.weights import Calibration
from egohieraloc.types import ResponseTrack
from egohieraloc.video.letterbox import Letterbox

CONFIG, RULE = SearchConfig(), TemporalConfig()
PROBED_AT_MOST, DECODED_AT_MOST = 120, 140


class Video(EncodedVideo):
    """Samples are their own features, and all of them are there."""

    def __init__(self, count: int) -> None:
        super().__init__(sampled(count), Letterbox(64, 48, 32), FeatureStore(Path("unused")))

    def pick(self, samples: Sequence[int]) -> list[int]:  # type: ignore[override]
        assert samples
        return list(samples)

    def pick_descriptors(self, samples: Sequence[int]) -> tuple[list[int], None]:  # type: ignore[override]
        return list(samples), None

    def fill(self, numbers: object, *, progress: object = None) -> None:
        pass


class Oracle(Draws):
    """Knows the score of each sample, and nearly knows it without state; counts what it is asked."""

    calibration = Calibration()
    can_follow = True

    def __init__(self, known: NDArray[np.float64], *, probe_error: float = 0.0) -> None:
        self.known = known
        self.nearly = known * (1 - probe_error * np.random.default_rng(1).random(len(known)))
        self.probed: list[int] = []
        self.decoded: set[int] = set()

    def scores(self, query: object, samples: list[int]) -> NDArray[np.float64]:
        self.probed += samples
        return self.nearly[samples]

    def start(self, query: object, *, runs: int = 1) -> Counts:
        return Counts([0] * runs)

    def follow(self, query: object, samples: list[int], scale: None, state: Counts) -> Counts:
        return state.after(len(samples))

    def decode(
        self, query: object, samples: list[int], state: Counts, *, outlined: bool = True
    ) -> tuple[list[Decoded], Counts]:
        self.decoded |= set(samples)
        times = len(samples) // len(state)
        counted = [count + time for count in state for time in range(times)]
        answers = [
            decoded(float(self.known[s]), left=c, outlined=outlined)
            for s, c in zip(samples, counted, strict=True)
        ]
        return answers, state.after(times)


def long_video(seed: int, count: int = 3000) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores and coarse scores of a video with some appearances, as sure as each other or less, and thirty
    objects that look like it at first sight."""
    random = np.random.default_rng(seed)
    known, coarse = 0.05 * random.random(count), random.normal(-4, 0.7, count)
    others = [(random.uniform(0.05, 0.4), random.uniform(0.6, 1.0)) for _ in range(30)]
    own = [(sure, sure) for sure in (0.95, 0.93, random.uniform(0.5, 0.95), random.uniform(0.1, 0.8))]
    places = random.permutation(count // 60) * 60  # apart from each other
    for (sure, similar), place in zip(others + own, places.tolist(), strict=False):
        start, length = place + int(random.integers(15)), int(random.integers(4, 40))
        rise = (np.minimum(np.arange(1, length + 1), np.arange(length, 0, -1)) / 3).clip(max=1)
        where = slice(start, start + length)
        known[where], coarse[where] = (
            sure * rise * random.uniform(0.93, 1, length),
            coarse[where] + 6 * similar * rise,
        )
    return known, coarse


def asked(known: NDArray[np.float64], coarse: NDArray[np.float64], config: SearchConfig, error: float = 0.0):
    oracle = Oracle(known, probe_error=error)
    search = search_over(Video(len(known)), oracle, config=config)
    return answer(search, search.decode(coarse)), oracle


@pytest.mark.parametrize("seed", range(40))
def test_few_are_decoded_and_the_answer_is_the_same(seed: int) -> None:
    known, coarse = long_video(seed)
    few, oracle = asked(known, coarse, CONFIG, error=0.3)
    every, exhaustive = asked(known, coarse, replace(CONFIG, probe=0))
    assert isinstance(few.track, ResponseTrack)
    assert isinstance(every.track, ResponseTrack)
    assert (few.track.start, few.track.end) == (every.track.start, every.track.end)
    assert few.track.score == every.track.score
    for sample in few.decoded:  # the state has seen what of the run lies in the same stretch of time, or more
        seen, all_of_it = (found.decoded[sample].box.x1 for found in (few, every))
        assert min(sample % STRETCH, all_of_it) <= seen <= all_of_it
    assert len(oracle.probed) <= PROBED_AT_MOST
    assert len(oracle.decoded) <= DECODED_AT_MOST
    assert oracle.decoded < exhaustive.decoded
    assert not exhaustive.probed


def test_the_state_before_a_sample_has_seen_its_stretch() -> None:
    assert before_in_stretch(20, range(64)) == [16, 17, 18, 19]
    assert before_in_stretch(16, range(64)) == []
    assert before_in_stretch(23, [3, 18, 20, 22, 23, 40]) == [18, 20, 22]


@pytest.mark.parametrize("seed", [0, 2, 3, 4])  # in 1 all that is decoded belongs to appearances
def test_masks_are_drawn_for_appearances_alone(seed: int) -> None:
    found, _ = asked(*long_video(seed), CONFIG)
    assert isinstance(found.track, ResponseTrack)
    shown = {p.sample for track in (found.track, *found.alternatives) for p in track.predictions}
    drawn = {sample for sample, said in found.decoded.items() if said.cells is None}
    assert drawn == shown & found.decoded.keys()
    assert drawn < found.decoded.keys()


def test_an_object_that_is_everywhere_costs_no_more() -> None:
    """Thirty appearances of forty samples: many are as good as the last."""
    known, coarse = np.zeros(3000), np.full(3000, -9.0)
    for start in range(20, 3000, 100):
        known[start : start + 40], coarse[start : start + 40] = 0.9, 3.0
    found, oracle = asked(known, coarse, CONFIG)
    assert isinstance(found.track, ResponseTrack)
    assert (found.track.start, found.track.end) == (2920, 2959)
    assert len(oracle.probed) <= PROBED_AT_MOST
    assert len(oracle.decoded) <= 2 * DECODED_AT_MOST


def test_a_surer_probe_is_decoded_before_the_answer_is_settled() -> None:
    """Also before what was found: the last appearance must come near the best one."""
    found = choice(dict.fromkeys(range(42, 46), 0.8))
    for probe, wanted in ((0.81, [1]), (0.8, [])):
        one_run = probed([range(48)], [0.3, probe, 0.0, 0.0, 0.0, 0.8], [5])
        assert one_run.next(found, replace(RULE, max_alternatives=0)) == [*wanted, 4]


def test_without_a_limit_nothing_is_probed() -> None:
    """As the paper asks."""
    known, coarse = long_video(0)
    _, oracle = asked(known, coarse, replace(CONFIG, max_decoded=0))
    assert not oracle.probed


def probed(runs: Sequence[Sequence[int]], probes: Sequence[float], done: Sequence[int]) -> Probed:
    pieces = pieces_of(runs, np.zeros(1000), PIECE)
    return Probed(pieces, np.array(probes), np.isin(np.arange(len(pieces)), done), 1)


def choice(scores: dict[int, float], count: int = 1000):
    raw = np.zeros(count)
    raw[list(scores)] = list(scores.values())
    return choose_interval(raw, np.arange(count) / 5, RULE)


NOTHING = choice({})


def test_pieces_are_nearly_equal_and_one_of_some_is_probed_where_it_is_most_similar() -> None:
    coarse = np.zeros(100)
    coarse[[13, 15]] = 5.0  # odd: what is beside them was looked at
    coarse[14] = 4.0
    pieces = pieces_of([range(10, 30), [50]], coarse, 20)
    assert [piece.samples for piece in pieces] == [
        tuple(range(10, 17)),
        tuple(range(17, 24)),
        tuple(range(24, 30)),
        (50,),
    ]
    assert [piece.probed for piece in pieces] == [14, None, None, 50]
    assert [piece.run for piece in pieces] == [0, 0, 0, 1]


def test_the_best_of_each_run_and_the_latest_hopeful_come_first() -> None:
    runs = [
        range(16),
        range(20, 24),
        range(30, 34),
        range(40, 44),
        range(50, 54),
        range(60, 64),
        range(70, 74),
    ]
    probes = [0.9, 0.8, 0.7, 0.05, 0.6, 0.2, 0.5, 0.1]
    first = probed(runs, probes, []).next(NOTHING, RULE)
    assert first == [0, 2, 4, 6]  # the best four, of which the last two are hopeful; 1 is of the run of 0
    assert probed(runs, probes, [0]).next(choice(dict.fromkeys(range(8), 0.2)), RULE)[0] == 1


def test_an_earlier_appearance_in_the_same_run_is_a_candidate() -> None:
    """Where everything looks like the object at first sight, the whole video is one run."""
    found = choice(dict.fromkeys(range(24, 32), 0.9))
    wanted = probed([range(48)], [0.8, 0.9, 0.05, 0.9, 0.05, 0.05], [3]).next(found, RULE)
    assert wanted == [1, 2, 4]  # the better piece of the earlier one; the others are beside the answer
    assert probed([range(48)], [0.8, 0.9, 0.05, 0.9, 0.05, 0.05], [1, 2, 3, 4]).next(found, RULE) == []
    unprobed = Probed(
        pieces_of([range(32)], np.zeros(32), 16), np.array([0.9, 0, 0.9, 0]), np.arange(4) == 3, 1
    )
    assert not unprobed.next(choice(dict.fromkeys(range(27, 30), 0.9)), RULE)  # all one appearance


def test_what_reaches_the_end_of_a_piece_goes_on_in_the_next() -> None:
    """Up to a gap that the temporal rule bridges."""
    run, probes = [range(24)], [0.9, 0.0, 0.0]
    for last, wanted in ((7, [1]), (5, [1]), (4, [])):
        found = choice(dict.fromkeys(range(2, last + 1), 0.9))
        assert probed(run, probes, [0]).next(found, RULE) == wanted
    for first, wanted in ((8, [0]), (10, [0]), (11, [])):
        found = choice(dict.fromkeys(range(first, 13), 0.9))
        assert probed(run, [0.0, 0.9, 0.0], [1]).next(found, RULE) == wanted
    found = choice(dict.fromkeys(range(8), 0.9))
    for start, wanted in ((10, [1]), (11, [])):  # of another run
        assert probed([range(8), range(start, 17)], [0.9, 0.0], [0]).next(found, RULE) == wanted


def test_other_candidates_are_decoded_whole_where_they_may_become_the_answer() -> None:
    runs = [range(16), range(20, 36)]
    found = choice(dict.fromkeys([*range(8), *range(20, 28)], 0.9))
    halfway = probed(runs, [0.9, 0.0, 0.9, 0.0], [0, 2])
    assert halfway.next(found, RULE) == [3]
    assert halfway.next(found, RULE, whole=True) == [1, 3]


def test_a_later_piece_is_decoded_only_where_it_may_be_the_answer() -> None:
    runs = [range(8), range(20, 28), range(40, 48)]
    found = choice(dict.fromkeys(range(22, 26), 0.9))
    four = replace(RULE, max_alternatives=0)
    for probe, wanted in ((0.5, [2]), (0.4, [])):
        assert probed(runs, [0.9, 0.9, probe], [1]).next(found, four) == wanted


def test_scores_are_told_by_sample() -> None:
    assert scores_of({3: decoded(0.5)}) == {3: 0.5}
