"""Videos in a row answer like each by itself, and those that show the object are found."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import packed

from egohieraloc import Localizer, Query, Video, demo
from egohieraloc.inference.chunks import STRETCH, all_chunks, chunk_of, place_of, sparse_chunks
from egohieraloc.inference.encoded import EncodedVideo, store_features
from egohieraloc.inference.joined import JoinedVideo
from egohieraloc.types import ResponseTrack
from egohieraloc.video.letterbox import Letterbox

LENGTHS = (STRETCH + 1, 5, 2 * STRETCH, 1)
CLIPS = 10  # of the demo's clip in the library


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[EncodedVideo]:
    """Sample i of video n says 40 n + i - 60."""
    folder = tmp_path_factory.mktemp("parts")
    return [
        store_features(
            packed([40 * number + sample - 60 for sample in range(length)]),
            folder / str(number),
            Letterbox(8, 6, 32),
            fps=5,
        )
        for number, length in enumerate(LENGTHS)
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10_000)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=40)
def test_samples_are_those_of_the_parts(parts: list[EncodedVideo], wanted: list[tuple[int, int]]) -> None:
    joined = JoinedVideo.of(parts)
    places = [(part, sample % LENGTHS[part]) for part, sample in wanted]
    samples = [joined.starts[part] * STRETCH + sample for part, sample in places]
    assert [joined.part_at(sample) for sample in samples] == [part for part, _ in places]
    said = [40 * part + sample - 60 for part, sample in places]
    assert joined.pick(samples).match.ravel().tolist() == said
    assert joined.pick_descriptors(samples)[0].ravel().tolist() == said


def test_up_to_the_next_stretch_a_last_sample_of_each_phase_is_repeated(parts: list[EncodedVideo]) -> None:
    joined = JoinedVideo.of(parts)
    assert len(joined) == 6 * STRETCH == len(joined.time_s)
    for part, length in enumerate(LENGTHS):
        start = joined.starts[part] * STRETCH
        padding = range(start + length, start + -(-length // STRETCH) * STRETCH)
        for sample in padding:
            (shown,) = joined.pick([sample]).match.ravel().tolist()
            assert shown - (40 * part - 60) in (length - 2, length - 1)


def test_a_chunk_ends_at_the_query_time(parts: list[EncodedVideo]) -> None:
    """What was stored after it is not shown."""
    joined = JoinedVideo.of([parts[0].first(4), parts[1]])
    assert joined.pick(range(STRETCH)).match.max() == -60 + 3


def test_what_is_remembered_stands_in_a_row(parts: list[EncodedVideo]) -> None:
    joined, prototypes = JoinedVideo.of(parts), np.ones((1, 1), np.float32)
    assert joined.similarity(prototypes).tolist() == pytest.approx(
        np.concatenate([part.similarity(prototypes) for part in parts]).tolist()
    )


def test_each_part_makes_what_it_misses(parts: list[EncodedVideo], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[int]] = {}

    def fill(video: EncodedVideo, numbers: set[int], *, progress: object) -> None:
        asked[video.store.folder.name] = sorted(numbers)

    joined = JoinedVideo.of(parts)
    monkeypatch.setattr(EncodedVideo, "fill", fill)
    joined.fill(all_chunks(len(joined)))
    # A single sample has no odd neighbours.
    assert asked == {"0": [0, 1, 2], "1": [0, 1], "2": [0, 1, 2, 3], "3": [0]}


@pytest.fixture(scope="module")
def clips(demo_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[EncodedVideo]:
    """The demo's clip, cut in pieces."""
    folder = tmp_path_factory.mktemp("clips")
    whole = Localizer.from_pretrained(device="cpu", cache=demo_cache).encode(Video.open(demo.CLIP))
    whole.fill(all_chunks(len(whole)))
    cuts = np.linspace(0, len(whole), CLIPS + 1).astype(int)
    return [
        store_features(whole.pick(range(start, end)), folder / str(start), whole.letterbox, fps=5)
        for start, end in pairwise(cuts)
    ]


def test_the_video_that_shows_the_object_last_is_likely(clips: list[EncodedVideo], demo_cache: Path) -> None:
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    localizer = Localizer.from_pretrained(
        device="cpu", cache=demo_cache, settings=["search.shortlist=8", "search.look_back=false"]
    )
    one_by_one = [localizer.ask(query, clip) for clip in clips]
    shown = [n for n, result in enumerate(one_by_one) if isinstance(result.track, ResponseTrack)]
    likely = localizer.likely(query, clips)
    assert shown
    assert max(shown) in likely
    assert len(likely) < len(clips)


def test_numbers_of_chunks_and_samples_agree(parts: list[EncodedVideo]) -> None:
    joined = JoinedVideo.of(parts)
    numbers = sparse_chunks(len(joined))
    match, _ = joined.descriptors(numbers)
    rows = [(number, place) for number in numbers for place in range(STRETCH // 2)]
    even = range(0, len(joined), 2)
    assert [(chunk_of(sample), place_of(sample)) for sample in even] == rows
    assert match.ravel().tolist() == joined.pick(even).match.ravel().tolist()
