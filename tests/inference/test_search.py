"""Which samples of a video are encoded, which are decoded, and that the state runs through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from stored import NumberReader, numbered_folder, packed, reading_of, search_over

from egohieraloc.config import SearchConfig
from egohieraloc.errors import VideoError
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.encoded import EncodedVideo, store_features
from egohieraloc.inference.search import promising
from egohieraloc.inference.store import FeatureStore
from egohieraloc.video.letterbox import Letterbox

ONLY = SearchConfig(coarse_margin=0, coarse_neighbours=0, probe=0)


def encoded_values(tmp_path: Path, values: list[int]) -> EncodedVideo:
    """A stored video whose sample i has descriptor values[i]."""
    return store_features(packed(values), tmp_path, Letterbox(32, 32, 32), fps=5)


def chosen(coarse: list[float], config: SearchConfig) -> list[int]:
    return np.flatnonzero(promising(np.array(coarse, float), config)).tolist()


def test_promising_are_those_near_the_best() -> None:
    coarse = [0.0, 5.0, 1.1, 0.9, 4.0]
    assert chosen(coarse, SearchConfig(coarse_margin=4, coarse_neighbours=0)) == [1, 2, 4]
    assert chosen(coarse, ONLY) == [1]


def test_neighbours_of_promising_samples_are_decoded_too() -> None:
    coarse = [0.0] * 4 + [9.0] + [0.0] * 4
    assert chosen(coarse, SearchConfig(coarse_margin=1, coarse_neighbours=2)) == [2, 3, 4, 5, 6]
    assert chosen([9.0, 0, 0], SearchConfig(coarse_margin=1, coarse_neighbours=1)) == [0, 1]


def test_of_too_many_the_best_and_the_latest_are_decoded() -> None:
    coarse = [3.0, 1.0, 4.0, 1.5, 2.0]
    assert chosen(coarse, SearchConfig(coarse_margin=9, coarse_neighbours=0, max_decoded=2)) == [2, 4]
    everything = SearchConfig(coarse_margin=9, coarse_neighbours=0, max_decoded=0)
    assert chosen(coarse, everything) == [0, 1, 2, 3, 4]


def test_nothing_is_promising_in_an_empty_video() -> None:
    assert promising(np.zeros(0), SearchConfig()).shape == (0,)


def test_each_stretch_is_decoded_with_a_state_of_its_own(tmp_path: Path) -> None:
    reader = NumberReader.make()
    coarse = np.array([0.0, 9, 9, 0, 0, 9])
    encoded = encoded_values(tmp_path, [1] * 6)
    found = search_over(encoded, reader, config=ONLY).decode(coarse)
    assert {sample: answer.score for sample, answer in found.items()} == {1: 0, 2: 1, 5: 0}


def test_the_state_runs_on_across_chunks(tmp_path: Path) -> None:
    reader = NumberReader.make()
    encoded = encoded_values(tmp_path, [1] * (STRETCH + 3))
    seen: list[tuple[str, int, int]] = []
    search = search_over(encoded, reader, config=ONLY, progress=lambda *words: seen.append(words))
    found = search.decode(np.ones(STRETCH + 3))
    assert [found[s].score for s in range(STRETCH + 3)] == list(range(STRETCH + 3))
    assert [len(b) for b in reader.batches] == [16, 3]
    assert seen == [("decode", done, STRETCH + 3) for done in (16, 19)]


def test_stretches_go_side_by_side_and_answer_as_each_alone(tmp_path: Path) -> None:
    """Lengths 4, 4, 5, 8 and 9: whoever ends early keeps its first answers, and little is decoded twice."""
    reader = NumberReader.make()
    lengths = [5, 4, 9, 4, 8]
    coarse = np.concatenate([[0.0] + [1.0] * length for length in lengths])
    encoded = encoded_values(tmp_path, list(range(len(coarse))))
    found = search_over(encoded, reader, config=ONLY).decode(coarse)
    starts = np.cumsum([0, *lengths[:-1]]) + np.arange(1, len(lengths) + 1)
    expected = {
        first + time: time for first, length in zip(starts, lengths, strict=True) for time in range(length)
    }
    assert {sample: answer.score for sample, answer in found.items()} == expected
    assert all(answer.box.x1 == sample for sample, answer in found.items())
    assert [len(batch) for batch in reader.batches] == [8, 5, 16, 2]


@pytest.mark.parametrize("stride", [2, 3, 5, STRETCH + 1])
@pytest.mark.parametrize("first", [0, 4])
def test_skipping_keeps_its_distance_across_chunks(tmp_path: Path, stride: int, first: int) -> None:
    reader = NumberReader.make()
    count = 2 * STRETCH + 5
    encoded = encoded_values(tmp_path, list(range(count)))
    coarse = np.arange(count) >= first
    config = replace(ONLY, stride=stride)
    found = search_over(encoded, reader, config=config).decode(coarse.astype(float))
    assert sorted(found) == list(range(first, count, stride))
    assert all(answer.box.x1 == sample for sample, answer in found.items())


def test_every_second_sample_is_looked_at(tmp_path: Path) -> None:
    """One between them has the higher score of its neighbours, the last one that of the one before."""
    values = [5, 100, 1, 100, 7, 100]
    for count, wanted in ((6, [5, 5, 1, 7, 7, 7]), (5, [5, 5, 1, 7, 7]), (1, [5]), (2, [5, 5])):
        encoded = encoded_values(tmp_path / str(count), values[:count])
        assert search_over(encoded, NumberReader.make()).coarse_scores().tolist() == wanted


def test_coarse_scores_end_with_the_question(tmp_path: Path) -> None:
    """Chunks are made whole; what lies after the query time is not looked at."""
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 3 * STRETCH)
    whole = reading_of(video, reader, FeatureStore.of(tmp_path, "key"))
    encoded = whole.until(1.95)
    assert encoded.frame_index.tolist() == list(range(20))
    assert encoded.video.until_s == 1.95
    assert search_over(encoded, reader).coarse_scores()[-4:].tolist() == [16, 18, 18, 18]
    assert reader.encoded == list(range(0, 2 * STRETCH, 2))
    for time_s in (-1.0, float("nan")):
        with pytest.raises(VideoError, match="must be a number of seconds, 0 or more"):
            encoded.until(time_s)
    assert len(encoded.until(0.0)) == 0
    assert len(whole.until(None)) == 3 * STRETCH


@dataclass
class Known:
    """A memory that knows how similar each stretch is."""

    values: list[float]

    def similarity(self, prototypes: object, numbers: Sequence[int]) -> NDArray[np.float32]:
        return np.array([self.values[number // 2] for number in numbers], np.float32)


def looked_at(
    tmp_path: Path, similarity: list[float], shortlist: int, margin: float = 2.0
) -> tuple[list[int], NDArray[np.float64]]:
    """The stretches that are looked at, and the scores; sample i has the value i."""
    count = len(similarity) * STRETCH
    encoded = replace(encoded_values(tmp_path, list(range(count))), memory=Known(similarity))  # type: ignore[arg-type]
    config = SearchConfig(shortlist=shortlist, coarse_margin=margin)
    search = search_over(encoded, NumberReader.make(), config=config)
    scores = search.coarse_scores()
    return [number // 2 for number in search.shortlist()], scores


def test_the_shortlist_is_the_best_and_the_latest_near_it(tmp_path: Path) -> None:
    similarity = [0.0, 9.0, 1.0, 8.0, 7.5, 2.0]
    places, scores = looked_at(tmp_path, similarity, 2)
    assert places == [1, 4]
    known = np.flatnonzero(np.isfinite(scores)).tolist()
    assert known == [*range(15, 32), *range(63, 80)]  # and the sample between two stretches
    everywhere = looked_at(tmp_path, similarity, 0)[1]
    np.testing.assert_array_equal(scores[16:31], everywhere[16:31])
    assert looked_at(tmp_path, similarity, 2, margin=0.5)[0] == [1]


@pytest.mark.parametrize("shortlist", [0, 6, 7])
def test_a_shortlist_without_end_is_everything(tmp_path: Path, shortlist: int) -> None:
    places, scores = looked_at(tmp_path, [0.0, 9, 1, 8, 7.5, 2], shortlist)
    assert places == list(range(6))
    assert scores[::2].tolist() == list(range(0, 6 * STRETCH, 2))


def test_what_is_not_remembered_is_looked_at(tmp_path: Path) -> None:
    assert looked_at(tmp_path, [np.nan, 9.0, 1.0, np.nan, 0.0], 2)[0] == [0, 1, 3]
    assert looked_at(tmp_path, [np.nan] * 5, 2)[0] == list(range(5))


def test_asking_before_the_first_frame(tmp_path: Path) -> None:
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 3)
    encoded = reading_of(video, reader, FeatureStore.of(tmp_path, "k")).until(0.0)
    search = search_over(encoded, reader)
    coarse = search.coarse_scores()
    assert coarse.shape == (0,)
    assert search.decode(coarse) == {}
    assert reader.encoded == []


def test_what_is_decoded_is_read_first(tmp_path: Path) -> None:
    """Of the samples between those looked at, only the chunks that are decoded."""
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 3 * STRETCH)
    told: list[tuple[str, int, int]] = []
    encoded = reading_of(video, reader, FeatureStore.of(tmp_path, "k"))
    search = search_over(encoded, reader, config=ONLY, progress=lambda *words: told.append(words))
    coarse = np.zeros(3 * STRETCH)
    coarse[STRETCH : STRETCH + 3] = 1
    found = search.decode(coarse)
    assert [answer.box.x1 for answer in found.values()] == [STRETCH, STRETCH + 1, STRETCH + 2]
    assert sorted(reader.encoded) == list(range(STRETCH, 2 * STRETCH))
    assert told == [("encode", 8, 16), ("encode", 16, 16), ("decode", 3, 3)]


def test_a_stride_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        SearchConfig(stride=0)
