"""Which samples of a video are encoded, which are decoded, and that the state runs through them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stored import NumberReader, numbered_folder, packed, sampled, search_over

from egohieraloc.config import SearchConfig
from egohieraloc.errors import VideoError
from egohieraloc.inference.encoded import EncodedVideo, encode_video
from egohieraloc.inference.search import promising
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.types import Frame
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

ONLY = SearchConfig(coarse_margin=0, coarse_neighbours=0)


def encoded_values(tmp_path: Path, values: list[int]) -> EncodedVideo:
    """A stored video whose sample i has descriptor values[i]."""
    store = FeatureStore.of(tmp_path, "key")
    for number in range(0, len(values), CHUNK):
        store.write(number // CHUNK, packed(values[number : number + CHUNK]))
    return EncodedVideo(sampled(len(values)), Letterbox(64, 48, 32), store)


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
    values = [0, 9, 9, 0, 0, 9]
    encoded = encoded_values(tmp_path, values)
    search = search_over(encoded, reader, config=ONLY)
    found = search.decode(search.coarse_scores())
    assert {sample: answer.score for sample, answer in found.items()} == {1: 0, 2: 1, 5: 0}


def test_the_state_runs_on_across_chunks(tmp_path: Path) -> None:
    reader = NumberReader.make()
    encoded = encoded_values(tmp_path, [1] * (CHUNK + 3))
    seen: list[tuple[str, int, int]] = []
    search = search_over(encoded, reader, config=ONLY, progress=lambda *words: seen.append(words))
    found = search.decode(np.ones(CHUNK + 3))
    assert [found[s].score for s in range(CHUNK + 3)] == list(range(CHUNK + 3))
    assert [len(b) for b in reader.batches] == [16, 16, 3]
    assert seen == [("decode", done, CHUNK + 3) for done in (16, 32, 35)]


def test_stretches_go_side_by_side_and_answer_as_each_alone(tmp_path: Path) -> None:
    """Lengths 1, 2, 3, 5 and 9: whoever ends early keeps its first answers."""
    reader = NumberReader.make()
    lengths = [5, 1, 9, 3, 2]
    coarse = np.concatenate([[0.0] + [1.0] * length for length in lengths])
    encoded = encoded_values(tmp_path, list(range(len(coarse))))
    found = search_over(encoded, reader, config=ONLY).decode(coarse)
    starts = np.cumsum([0, *lengths[:-1]]) + np.arange(1, len(lengths) + 1)
    expected = {
        first + time: time for first, length in zip(starts, lengths, strict=True) for time in range(length)
    }
    assert {sample: answer.score for sample, answer in found.items()} == expected
    assert all(answer.box.x1 == sample for sample, answer in found.items())
    assert len(reader.batches) < len(lengths)
    assert max(map(len, reader.batches)) <= reader.largest_batch


@pytest.mark.parametrize("stride", [2, 3, 5, CHUNK + 1])
@pytest.mark.parametrize("first", [0, 4])
def test_skipping_keeps_its_distance_across_chunks(tmp_path: Path, stride: int, first: int) -> None:
    reader = NumberReader.make()
    count = 2 * CHUNK + 5
    encoded = encoded_values(tmp_path, list(range(count)))
    coarse = np.arange(count) >= first
    config = SearchConfig(coarse_margin=0, coarse_neighbours=0, stride=stride)
    found = search_over(encoded, reader, config=config).decode(coarse.astype(float))
    assert sorted(found) == list(range(first, count, stride))
    assert all(answer.box.x1 == sample for sample, answer in found.items())


def test_coarse_scores_end_with_the_question(tmp_path: Path) -> None:
    """Chunks are encoded whole; what lies after the query time is not looked at."""
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 40)
    store = FeatureStore.of(tmp_path, "key")
    encoded = encode_video(video, video.sampled(None), reader, store, until_s=1.95)  # type: ignore[arg-type]
    assert encoded.frame_index.tolist() == list(range(20))
    assert search_over(encoded, reader).coarse_scores().tolist() == list(range(20))  # type: ignore[arg-type]
    assert reader.encoded == list(range(CHUNK))
    later = encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    assert len(later.frame_index) == 40
    assert reader.encoded == list(range(40))


def test_asking_before_the_first_frame(tmp_path: Path) -> None:
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 3)
    encoded = encode_video(video, video.sampled(5), reader, FeatureStore.of(tmp_path, "k"), until_s=0.0)  # type: ignore[arg-type]
    assert encoded.num_chunks == 0
    assert reader.encoded == []
    search = search_over(encoded, reader)
    coarse = search.coarse_scores()
    assert coarse.shape == (0,)
    assert search.decode(coarse) == {}


def test_progress_counts_whole_chunks(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    video = numbered_folder(tmp_path / "frames", CHUNK)
    encode_video(
        video,
        video.sampled(5.0, indices=np.arange(CHUNK)),
        NumberReader.make(),  # type: ignore[arg-type]
        FeatureStore.of(tmp_path, "key"),
        until_s=1.0,
        progress=lambda *report: told.append(report),
    )
    assert told == [("encode", done, CHUNK) for done in range(8, CHUNK + 1, 8)]


def test_samples_are_taken_at_the_working_rate(tmp_path: Path) -> None:
    reader = NumberReader.make()
    video = numbered_folder(tmp_path / "images", 20)  # 10 a second
    encoded = encode_video(video, video.sampled(5), reader, FeatureStore.of(tmp_path, "k"))  # type: ignore[arg-type]
    assert encoded.frame_index.tolist() == list(range(0, 20, 2))
    np.testing.assert_allclose(encoded.time_s, np.arange(10) / 5)


def test_take_cuts_across_chunks(tmp_path: Path) -> None:
    encoded = encoded_values(tmp_path, list(range(CHUNK + 10)))
    parts = list(encoded.take(CHUNK - 2, CHUNK + 1))
    assert [p.match.ravel().tolist() for p in parts] == [[CHUNK - 2, CHUNK - 1], [CHUNK, CHUNK + 1]]


def with_damage(video: Video, lost: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = type(video)._frames

    def frames(self: Video, numbers: list[int], size: tuple[int, int] | None) -> object:
        return (frame for frame in whole(self, numbers, size) if frame.index not in lost)

    monkeypatch.setattr(type(video), "_frames", frames)


def test_damaged_frames_are_stood_for_by_a_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = numbered_folder(tmp_path / "images", 8)
    with_damage(video, {0, 3, 4, 7}, monkeypatch)
    reader = NumberReader.make()
    encoded = encode_video(video, video.sampled(None), reader, FeatureStore.of(tmp_path, "k"))  # type: ignore[arg-type]
    values = encoded.chunk(0).match.ravel().tolist()
    assert len(values) == 8
    for sample in (1, 2, 5, 6):
        assert values[sample] == sample
    assert all(abs(value - sample) <= 2 for sample, value in enumerate(values))
    assert encoded.chunk(0).frame_index.tolist() == list(range(8))


def test_a_video_without_readable_frames_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = numbered_folder(tmp_path / "images", 4)
    with_damage(video, set(range(4)), monkeypatch)
    store = FeatureStore.of(tmp_path, "k")
    with pytest.raises(VideoError, match="no frame could be decoded near number 0"):
        encode_video(video, video.sampled(None), NumberReader.make(), store)  # type: ignore[arg-type]
    assert list(store.folder.iterdir()) == []


def test_a_stride_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        SearchConfig(stride=0)


def test_frames_are_letterboxed(tmp_path: Path) -> None:
    """The stand-in video is 8 x 6; its canvas is a square with black above and below."""
    video = numbered_folder(tmp_path / "images", 1)
    frame: Frame = video.frame(0)
    assert frame.rgb.shape == (6, 8, 3)

    class Looking(NumberReader):
        def encode(self, canvases, frame_index, time_s):  # type: ignore[no-untyped-def]
            assert [c.shape for c in canvases] == [(32, 32, 3)]
            return super().encode(canvases, frame_index, time_s)

    encode_video(video, video.sampled(None), Looking.make(), FeatureStore.of(tmp_path, "k"))  # type: ignore[arg-type]
