"""The walk from the best sample: how far it goes, when it stops, whose opinion counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import pytest
from stored import Counts, Draws, decoded, sampled, search_over

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.inference.answer import Answer, answer
from egohieraloc.inference.complete import WALK_SAMPLES, complete, completed
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.weights import Calibration
from egohieraloc.types import NotFound, ResponseTrack
from egohieraloc.video.letterbox import Letterbox

CONFIG = TemporalConfig()
LETTERBOX = Letterbox(64, 48, 32)


class Words(tuple[str, ...]):
    """A template: what is searched for."""

    def beside(self, other: Words) -> Words:
        return Words((*self, *other))


QUERY = Words(("query",))


class Video(EncodedVideo):
    """Samples are their own features."""

    def __init__(self, count: int, letterbox: Letterbox = LETTERBOX) -> None:
        super().__init__(sampled(count), letterbox, FeatureStore(Path("unused")))

    def pick(self, samples: Sequence[int]) -> list[int]:  # type: ignore[override]
        return list(samples)


class Seer(Draws):
    """Knows how well each sample matches the best one; the state counts samples."""

    def __init__(
        self,
        scores: Sequence[float],
        calibration: Calibration | None = None,
        lefts: Sequence[int] = range(1000),
        cuts: Sequence[int] = (),
    ) -> None:
        self.scores, self.calibration, self.lefts, self.cuts = scores, calibration, lefts, cuts
        self.remembered: list[tuple[list[int], Decoded]] = []
        self.asked: list[int] = []
        self.seen: set[int] = set()

    def shot(self, sample: int) -> int:
        return bisect_right(self.cuts, sample)

    def template_from_sample(self, packed: list[int], shown: Decoded) -> Words:
        self.remembered.append((packed, shown))
        return Words(("sample",))

    def start(self, template: Words, *, runs: int = 1) -> Counts:
        return Counts([0] * runs)

    def decode(
        self, template: Words, packed: list[int], state: Counts, *, outlined: bool
    ) -> tuple[list[Decoded], Counts]:
        assert template == ("sample", "query")
        times = len(packed) // len(state)
        assert times <= WALK_SAMPLES
        self.asked += packed
        self.seen.update(packed)
        seen = [
            decoded(self.scores[s], left=self.lefts[s], shot=self.shot(s), outlined=outlined) for s in packed
        ]
        return seen, state.after(times)


def run(
    scores: Sequence[float],
    own: dict[int, float],
    found: tuple[int, int],
    stride: int = 1,
    cuts: Sequence[int] = (),
):
    seer = Seer(scores, cuts=cuts)
    known = {sample: decoded(score, shot=seer.shot(sample)) for sample, score in own.items()}
    search = search_over(Video(len(scores)), seer, query=QUERY, config=SearchConfig(stride=stride))
    return seer, *complete(search, known, found)


def test_neighbours_that_look_like_the_best_sample_join() -> None:
    scores = [0.0, 0.0, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.0, 0.0, 0.0]
    seer, whole, joined = run(scores, {4: 0.5, 5: 0.8, 6: 0.6}, (4, 6))
    assert whole == (3, 7)
    assert seer.remembered[0][0] == [5]
    assert joined[7].score == 0.9
    assert joined[5].score == 0.8  # sure enough by itself
    assert joined[4].score == 0.9


def test_masks_are_drawn_of_the_whole_appearance_alone() -> None:
    """Also of what the query saw and no appearance held so far."""
    scores = [0.0, 0.0, 0.0, 0.9, 0.0, 0.9, 0.9, 0.9, 0.0, 0.0, 0.0, 0.0]
    own = {4: 0.3, 5: 0.8, 6: 0.6}
    seer = Seer(scores)
    known = {sample: decoded(score, outlined=sample != 4) for sample, score in own.items()}
    whole, joined = complete(search_over(Video(len(scores)), seer, query=QUERY), known, (5, 6))
    assert whole == (3, 7)
    assert joined[4].score == 0.3
    assert {sample for sample, said in joined.items() if said.cells is None} == set(range(3, 8))
    assert len(joined) > 5


def test_short_gaps_are_bridged_and_long_ones_end_it() -> None:
    scores = [0.9, 0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.9, 0.9]
    _, whole, _ = run(scores, {8: 0.9}, (8, 8))
    assert whole == (4, 8)


def test_a_cut_ends_an_appearance() -> None:
    """Also one that the query found on both sides of it; what the walk sees beyond does not count."""
    _, whole, joined = run([0.9] * 80, {40: 0.8, 41: 0.9, 45: 0.7}, (40, 45), cuts=(33, 44))
    assert whole == (33, 43)
    assert sorted(joined) == [*range(33, 44), 45]
    assert joined[45].score == 0.7  # the query's own


def test_of_an_object_shown_in_several_shots_the_last_is_the_answer() -> None:
    """Also where an earlier shot, right before it, shows the object best."""
    scores = [0.0] * 10 + [0.99] * 5 + [0.97] * 5 + [0.3] * 5 + [0.0] * 10
    seer = Seer(scores, Calibration(), cuts=(10, 15, 20, 25))
    search = search_over(Video(len(scores)), seer, query=QUERY)
    known = {sample: decoded(scores[sample], shot=seer.shot(sample)) for sample in range(5, 30)}
    found = completed(search, answer(search, known))
    assert isinstance(found.track, ResponseTrack)
    assert (found.track.start, found.track.end) == (15, 19)
    assert (found.alternatives[0].start, found.alternatives[0].end) == (10, 14)


def test_samples_far_apart_tell_no_cut() -> None:
    """Six frames between samples are a fifth of a second, twelve too much."""
    scores, own = [0.9] * 12, {4: 0.9, 6: 0.9}
    _, whole, _ = run(scores, own, (4, 6), stride=2, cuts=range(1, 8))
    assert whole == (0, 10)


def test_nothing_is_lost() -> None:
    """What the query found stays, also where the best sample's look is not found again."""
    scores = [0.0] * 4 + [0.9] + [0.0] * 10
    _, whole, joined = run(scores, dict.fromkeys(range(2, 9), 0.6) | {4: 0.9}, (2, 8))
    assert whole == (2, 8)
    assert joined[8].score == 0.6


def test_the_walk_stops() -> None:
    seer, whole, _ = run([0.0] * 100 + [0.9] + [0.0] * 100, {100: 0.9}, (100, 100))
    assert whole == (100, 100)
    assert len(seer.asked) <= 4 * WALK_SAMPLES


def test_an_object_that_is_always_in_sight() -> None:
    """The walk has a limit, beyond either end of what was found, and tells how far it is."""
    seer, told = Seer([0.9] * 500), []
    config = TemporalConfig(complete_reach=20)
    search = search_over(
        Video(500), seer, query=QUERY, temporal=config, progress=lambda *report: told.append(report)
    )
    whole, _ = complete(search, {250: decoded(0.9), 255: decoded(0.8)}, (250, 255))
    assert whole == (230, 275)
    assert seer.seen == set(range(230, 276)) - {250}  # of which the query is sure
    assert {stage for stage, _, _ in told} == {"follow"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == ("follow", 47, 47)


@pytest.mark.parametrize("edge", [0, 9])
def test_the_ends_of_the_video(edge: int) -> None:
    _, whole, _ = run([0.9] * 10, {edge: 0.9}, (edge, edge))
    assert whole == (0, 9)


def test_skipped_samples_are_skipped_here_too() -> None:
    seer, whole, _ = run([0.9] * 13, {3: 0.8, 6: 0.9}, (3, 8), stride=3)
    assert set(seer.asked) == {0, 9, 12}
    assert whole == (0, 12)


def test_without_a_decoded_sample_there_is_nothing_to_start_from() -> None:
    seer, whole, joined = run([0.9] * 5, {0: 0.9}, (2, 3))
    assert (whole, list(joined), seer.asked) == ((2, 3), [0], [])


def ask(
    config: TemporalConfig,
    *,
    threshold: float = 0.5,
    lefts: Sequence[int] = range(1000),
    letterbox: Letterbox = LETTERBOX,
) -> tuple[Seer, Answer, Answer]:
    """The query finds samples 8 and 9, and doubtfully 3 and 13; the object is there from 7 to 13."""
    scores = [0.0] * 7 + [0.9] * 7 + [0.0] * 6
    known = {3: decoded(0.4), 8: decoded(0.9), 9: decoded(0.9), 13: decoded(0.4)}
    seer = Seer(scores, Calibration(threshold=threshold), lefts)
    search = search_over(Video(len(scores), letterbox), seer, query=QUERY, temporal=config)
    found = answer(search, known)
    return seer, found, completed(search, found)


def samples(track: ResponseTrack | NotFound) -> list[int]:
    assert isinstance(track, ResponseTrack)
    return [p.sample for p in track.predictions]


def test_a_candidate_that_belongs_to_the_answer_is_no_other_one() -> None:
    _, found, whole = ask(TemporalConfig(median=1))
    assert samples(found.track) == [8, 9]
    assert sorted(samples(a) for a in found.alternatives) == [[3], [13]]
    assert samples(whole.track) == list(range(7, 14))
    assert [samples(a) for a in whole.alternatives] == [[3]]
    assert isinstance(found.track, ResponseTrack)
    assert isinstance(whole.track, ResponseTrack)
    assert whole.track.score == found.track.score  # it is the query that is asked about


@pytest.mark.parametrize(("most", "expected"), [(3, [[8], [3]]), (1, [[8]]), (0, [])])
def test_the_other_object_that_looks_like_it_is_the_first_candidate(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: list[list[int]]
) -> None:
    monkeypatch.setattr("egohieraloc.inference.complete.steady", lambda joined, _: {8: joined[8]})
    _, _, whole = ask(TemporalConfig(median=1, max_alternatives=most))
    assert [samples(other) for other in whole.alternatives] == expected


def test_a_box_that_leaps_across_the_image_is_on_another_object() -> None:
    """The canvas is 32 pixels wide: from sample to sample 16 may be a turn of the head, more may not."""
    for far, end in ((16, 13), (17, 11)):
        _, _, whole = ask(TemporalConfig(median=1), lefts=[0] * 12 + [far] * 8)
        assert samples(whole.track) == list(range(7, end + 1))
    for far, start in ((16, 7), (17, 8)):
        _, _, whole = ask(TemporalConfig(median=1), lefts=[far] * 8 + [0] * 12)
        assert samples(whole.track) == list(range(start, 14))


def test_a_wide_image_is_leapt_across_by_half_its_own_width() -> None:
    wide = Letterbox(1920, 1080, 448)
    assert wide.content_size == (512, 288)
    for far, end in ((250, 13), (260, 11)):
        _, _, whole = ask(TemporalConfig(median=1), lefts=[0] * 12 + [far] * 8, letterbox=wide)
        assert samples(whole.track) == list(range(7, end + 1))


@pytest.mark.parametrize(
    ("config", "threshold"),
    [
        (TemporalConfig(median=1, complete=2.0), 0.5),
        (TemporalConfig(median=1, rule="paper"), 0.5),
        (CONFIG, 0.99),
    ],
)
def test_left_out_where_nobody_wants_it(config: TemporalConfig, threshold: float) -> None:
    seer, found, whole = ask(config, threshold=threshold)
    assert whole is found
    assert not seer.asked
