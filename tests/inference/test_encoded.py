"""Reading a video: only what is missing is made, on demand, and always the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stored import NumberReader, encode_all, numbered_folder, packed, reading_of, search_over

from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.inference.chunks import CHUNK, PHASES, STRETCH, all_chunks, samples_of, sparse_chunks
from egohieraloc.inference.encoded import EncodedVideo, store_features
from egohieraloc.inference.reading import Reading
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.types import Frame
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

COUNT = 4 * STRETCH + 6


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore.of(tmp_path / "cache", "key")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    return numbered_folder(tmp_path_factory.mktemp("images"), COUNT)


def chunk_file(store: FeatureStore, number: int) -> Path:
    return store.folder / f"chunk-{number:06d}.safetensors"


def damage(path: Path) -> None:
    """One bit of every number, none of the header."""
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:header] + bytes(byte ^ 1 for byte in content[header:]))


def values(encoded: EncodedVideo, samples: Sequence[int]) -> list[int]:
    return encoded.pick(samples).match.ravel().tolist()


def test_descriptors_alone_are_those_of_the_samples(store: FeatureStore, video: Video) -> None:
    encoded, some = reading_of(video, NumberReader.make(), store), [STRETCH + 3, 4, STRETCH + 2]
    match, scale = encoded.pick_descriptors(some)
    assert match.ravel().tolist() == some
    np.testing.assert_array_equal(scale, encoded.pick(some).match_scale)


def test_sparse_first_then_what_a_question_needs(store: FeatureStore, video: Video) -> None:
    reader = NumberReader.make()
    encoded = reading_of(video, reader, store)
    seen: list[tuple[str, int, int]] = []
    encoded.fill(sparse_chunks(COUNT), progress=lambda *words: seen.append(words))
    assert reader.encoded == list(range(0, COUNT, 2))
    assert seen[-1] == ("encode", COUNT // 2, COUNT // 2)
    reader.encoded.clear()
    assert values(encoded, [4, STRETCH + 3, STRETCH + 2]) == [4, STRETCH + 3, STRETCH + 2]
    assert reader.encoded == list(range(STRETCH + 1, 2 * STRETCH, 2))


def test_an_interrupted_reading_goes_on_where_it_stopped(store: FeatureStore, video: Video) -> None:
    reader = NumberReader.make()
    encoded = reading_of(video, reader, store)

    def interrupt(stage: str, done: int, total: int) -> None:
        assert total == COUNT
        if done > 2 * CHUNK:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoded.fill(all_chunks(COUNT), progress=interrupt)
    whole = len(list(store.folder.iterdir()))
    assert whole == 3
    reader.encoded.clear()
    encoded.fill(all_chunks(COUNT))
    assert len(reader.encoded) == COUNT - whole * CHUNK


def shorter(store: FeatureStore) -> None:
    store.write(2, packed([1, 2, 3]))


def test_what_was_kept_but_not_remembered_is_not_encoded_again(
    store: FeatureStore, video: Video, tmp_path: Path
) -> None:
    """A run that was stopped between the two."""
    reader = NumberReader.make()
    reading_of(video, reader, store).fill(sparse_chunks(COUNT)[:2])
    reader.encoded.clear()
    memory = RegionMemory.of(tmp_path / "cache", "key")
    encoded = replace(reading_of(video, reader, store), memory=memory)
    encoded.remember()
    assert reader.encoded == list(range(2 * STRETCH, COUNT, 2))
    assert all(memory.has(number) for number in sparse_chunks(COUNT))


@pytest.mark.parametrize(
    "harm",
    [
        lambda store: damage(chunk_file(store, 2)),
        lambda store: chunk_file(store, 2).unlink(),
        lambda store: chunk_file(store, 2).write_bytes(b""),
        shorter,
    ],
)
def test_what_was_damaged_is_made_again_on_the_spot_and_nothing_else(
    store: FeatureStore, video: Video, harm: object
) -> None:
    """In `pick`, and in the coarse look of a question; a video that was opened by its source alone."""
    reader = NumberReader.make()
    encode_all(video, reader, store)
    given = video.sampled(None)
    letterbox = reading_of(video, reader, store).letterbox
    encoded = EncodedVideo(given, letterbox, store, Reading(given, letterbox, reader))  # type: ignore[arg-type]
    for use in (
        lambda: values(encoded, range(COUNT)),
        lambda: search_over(encoded, reader).coarse_scores().tolist(),
    ):
        before = use()
        reader.encoded.clear()
        harm(store)  # type: ignore[operator]
        assert use() == before
        assert reader.encoded == list(samples_of(2, COUNT))
        reader.encoded.clear()
        assert use() == before
        assert reader.encoded == []


def test_without_the_video_what_is_lost_is_lost(store: FeatureStore, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    reader = NumberReader.make()
    video = numbered_folder(folder, 20)
    encode_all(video, reader, store)
    given = video.sampled(None)
    letterbox = reading_of(video, reader, store).letterbox
    encoded = EncodedVideo(given, letterbox, store, Reading(given, letterbox, reader))  # type: ignore[arg-type]
    folder.rename(tmp_path / "elsewhere")
    assert values(encoded, [3]) == [3]
    chunk_file(store, 1).unlink()
    with pytest.raises(VideoError, match=r"There is no video at .*images"):
        encoded.pick([3])
    with pytest.raises(VideoError, match=r"damaged or gone. Read the video again"):
        EncodedVideo(given, letterbox, store).pick([3])


def test_another_video_in_its_place_is_noticed(store: FeatureStore, tmp_path: Path) -> None:
    folder, reader = tmp_path / "images", NumberReader.make()
    video = numbered_folder(folder, 20)
    given, letterbox = video.sampled(None), reading_of(video, reader, store).letterbox
    encoded = EncodedVideo(given, letterbox, store, Reading(given, letterbox, reader))  # type: ignore[arg-type]
    write_image(folder / "0020.png", np.zeros((6, 8, 3), np.uint8))
    with pytest.raises(VideoError, match="another video than the one that was read before"):
        encoded.pick([3])


def test_samples_come_in_the_order_asked(store: FeatureStore, video: Video) -> None:
    encoded = encode_all(video, NumberReader.make(), store)
    order = [40, 3, 3, 17, COUNT - 1, 0]
    assert values(encoded, order) == order


def test_features_that_are_there_already(tmp_path: Path) -> None:
    encoded = store_features(packed(list(range(COUNT))), tmp_path / "made", Letterbox(32, 32, 32), fps=5)
    assert values(encoded, range(COUNT)) == list(range(COUNT))
    assert values(encoded.first(7), range(7)) == list(range(7))


def with_damage(video: Video, damaged: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that cannot be decoded are left out, as the reader does it."""

    def frames(self: Video, numbers: Sequence[int], size: tuple[int, int] | None) -> Iterator[Frame]:
        for index, rgb in self.backend.read([n for n in numbers if n not in damaged], size=size):
            yield Frame(index, float(self.times_s[index]), rgb)

    monkeypatch.setattr(type(video), "_frames", frames)


@pytest.mark.parametrize("batch", [CHUNK, 3 * CHUNK, 128])
@pytest.mark.parametrize("dense", [True, False])
def test_damaged_frames_are_stood_for_by_one_of_their_chunk(
    store: FeatureStore, video: Video, monkeypatch: pytest.MonkeyPatch, dense: bool, batch: int
) -> None:
    """The same one, whatever else was read and however many chunks are encoded at a time."""
    lost = {0, 3, 4, 14, 15, *range(STRETCH, 2 * STRETCH), *range(4 * STRETCH, COUNT)}
    with_damage(video, lost, monkeypatch)
    reader = NumberReader.make()
    reader.encode_batch = batch
    encoded = reading_of(video, reader, store)
    for wanted in (all_chunks(COUNT),) if dense else (sparse_chunks(COUNT), all_chunks(COUNT)):
        encoded.fill(wanted)
    found = values(encoded, range(COUNT))
    stand_ins = {0: 2, 3: 5, 4: 6, 14: 12, 15: 13}
    stand_ins |= dict.fromkeys(range(STRETCH, 2 * STRETCH), 2 * STRETCH)
    stand_ins |= dict.fromkeys(range(4 * STRETCH, COUNT), 4 * STRETCH - 1)
    assert found == [stand_ins.get(sample, sample) for sample in range(COUNT)]


def test_a_video_without_readable_frames_is_an_error(
    store: FeatureStore, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_damage(video, set(range(COUNT)), monkeypatch)
    with pytest.raises(VideoError, match="no frame could be decoded near number 0"):
        encode_all(video, NumberReader.make(), store)
    assert list(store.folder.iterdir()) == []


def test_chunks_are_encoded_together(store: FeatureStore, video: Video) -> None:
    """Three at a time, also where a stretch is divided; the last batch is what is left."""
    sizes: list[int] = []

    class Counting(NumberReader):
        def encode(self, canvases):  # type: ignore[no-untyped-def]
            sizes.append(len(canvases))
            return super().encode(canvases)

    reader = Counting.make()
    reader.encode_batch = 3 * CHUNK
    encode_all(video, reader, store)
    assert sizes == [24, 24, 19, 3]
    assert sorted(reader.encoded) == list(range(COUNT))


def test_frames_are_letterboxed(store: FeatureStore, video: Video) -> None:
    """The stand-in video is 8 x 6; its canvas is a square with black above and below."""
    assert video.frame(0).rgb.shape == (6, 8, 3)

    class Looking(NumberReader):
        def encode(self, canvases):  # type: ignore[no-untyped-def]
            assert {c.shape for c in canvases} == {(32, 32, 3)}
            assert len(canvases) <= CHUNK
            assert all((c[:3] == 0).all() for c in canvases)
            return super().encode(canvases)

    encode_all(video, Looking.make(), store)
    assert len(list(store.folder.iterdir())) == len(all_chunks(COUNT)) == PHASES * 5
