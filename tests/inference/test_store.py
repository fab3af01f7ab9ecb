"""Features on disk: written whole or not at all, damage noticed, the oldest thrown out."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from stored import NumberReader, numbered_folder, packed, search_over

from egohieraloc.errors import OutputError, VideoError
from egohieraloc.inference import store as module
from egohieraloc.inference.encoded import encode_video
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.store import CHUNK, FeatureStore, default_cache, trim_cache
from egohieraloc.video.reader import Video

COUNT = 2 * CHUNK + 6


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore.of(tmp_path / "cache", "key")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    return numbered_folder(tmp_path_factory.mktemp("images"), COUNT)


def chunk_file(store: FeatureStore, number: int) -> Path:
    return sorted(store.folder.iterdir())[number]


def damage(path: Path) -> None:
    """Flip one bit of the last byte: of the data, not of the header."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_is_written_comes_back(store: FeatureStore) -> None:
    given = packed([3, 1, 4], [0, 6, 12])
    assert not store.has(5)
    store.write(5, given)
    assert store.has(5)
    found = store.read(5)
    assert found is not None
    for f in fields(PackedFeatures):
        value = getattr(found, f.name)
        np.testing.assert_array_equal(value, getattr(given, f.name))
        assert value.dtype == getattr(given, f.name).dtype
    match = store.read_match(5)
    assert match is not None
    np.testing.assert_array_equal(match[0], given.match)
    np.testing.assert_array_equal(match[1], given.match_scale)


def test_slices_are_written_as_they_look(store: FeatureStore) -> None:
    store.write(0, packed(list(range(10)))[1::3])
    found = store.read(0)
    assert found is not None
    assert found.match.ravel().tolist() == [1, 4, 7]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_chunk_is_missing(store: FeatureStore, share: float) -> None:
    store.write(0, packed([1, 2]))
    path = chunk_file(store, 0)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert store.read(0) is None
    assert store.read_match(0) is None


def test_a_flipped_bit_is_noticed(store: FeatureStore) -> None:
    store.write(0, packed([1, 2]))
    damage(chunk_file(store, 0))
    assert not store.has(0)


def test_interrupted_writing_leaves_the_old_chunk(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(0, packed([1, 2]))

    def fail(tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", fail)
    for number in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            store.write(number, packed([9]))
    assert store.has(0)
    assert not store.has(1)
    assert len(list(store.folder.iterdir())) == 1


def test_a_second_encoding_reads_nothing(
    store: FeatureStore, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = NumberReader.make()
    first = encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    assert reader.encoded == list(range(COUNT))
    monkeypatch.setattr(type(video), "frames", None)
    again = encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    assert reader.encoded == list(range(COUNT))
    np.testing.assert_array_equal(again.frame_index, first.frame_index)
    assert search_over(again, reader).coarse_scores().tolist() == list(range(COUNT))  # type: ignore[arg-type]


def test_interrupted_encoding_goes_on_where_it_stopped(store: FeatureStore, video: Video) -> None:
    reader = NumberReader.make()

    def interrupt(stage: str, done: int, total: int) -> None:
        assert total == COUNT
        if done > CHUNK + 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_video(video, video.sampled(None), reader, store, progress=interrupt)  # type: ignore[arg-type]
    assert [p.name for p in store.folder.iterdir()] == ["chunk-00000.safetensors"]
    reader.encoded.clear()
    encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    assert reader.encoded == list(range(CHUNK, COUNT))


def test_a_damaged_chunk_is_made_again_and_no_other(store: FeatureStore, video: Video) -> None:
    reader = NumberReader.make()
    encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    damage(chunk_file(store, 1))
    reader.encoded.clear()
    seen: list[tuple[int, int]] = []
    encoded = encode_video(
        video,
        video.sampled(None),
        reader,
        store,
        progress=lambda _, done, total: seen.append((done, total)),  # type: ignore[arg-type]
    )
    assert reader.encoded == list(range(CHUNK, 2 * CHUNK))
    assert seen[-1] == (COUNT, COUNT)
    assert search_over(encoded, reader).coarse_scores().tolist() == list(range(COUNT))  # type: ignore[arg-type]


def test_damage_in_the_middle_of_a_question_is_an_error(store: FeatureStore, video: Video) -> None:
    reader = NumberReader.make()
    encoded = encode_video(video, video.sampled(None), reader, store)  # type: ignore[arg-type]
    damage(chunk_file(store, 0))
    with pytest.raises(VideoError, match=r"damaged meanwhile. Ask again"):
        encoded.chunk(0)
    chunk_file(store, 0).unlink()
    with pytest.raises(VideoError, match=r"damaged meanwhile. Ask again"):
        search_over(encoded, reader).coarse_scores()  # type: ignore[arg-type]


def test_the_oldest_stores_are_thrown_out(tmp_path: Path) -> None:
    folders = []
    for age, key in enumerate("abc"):
        store = FeatureStore.of(tmp_path, key)
        store.write(0, packed([1]))
        os.utime(store.folder, (1000 + age, 1000 + age))
        folders.append(store.folder)
    (tmp_path / "something else").write_text("stays")
    size = sum(f.stat().st_size for f in folders[0].iterdir())
    trim_cache(tmp_path, limit_bytes=3 * size)
    assert all(f.exists() for f in folders)
    FeatureStore.of(tmp_path, "a")  # used again: now the youngest
    trim_cache(tmp_path, limit_bytes=2 * size)
    assert [f.exists() for f in folders] == [True, False, True]
    trim_cache(tmp_path, limit_bytes=0, keep=folders[2])
    assert [f.exists() for f in folders] == [False, False, True]
    assert (tmp_path / "something else").exists()


def test_unfinished_camera_poses_are_thrown_out_too(tmp_path: Path) -> None:
    images = tmp_path / "poses" / "key.work" / "images"
    images.mkdir(parents=True)
    (images / "000000.jpg").write_bytes(b"x" * 1000)
    (tmp_path / "poses" / "key.npz").write_bytes(b"poses")
    trim_cache(tmp_path, limit_bytes=10**6)
    assert images.exists()
    trim_cache(tmp_path, limit_bytes=999)
    assert [p.name for p in (tmp_path / "poses").iterdir()] == ["key.npz"]


def test_a_store_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FeatureStore.of(tmp_path, "key").write(0, packed([1]))

    def refuse(path: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert FeatureStore.of(tmp_path, "key").has(0)


def test_trimming_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was there when the folder was listed may have its final name when it is looked at."""
    busy, old = (FeatureStore.of(tmp_path, key) for key in ("busy", "old"))
    for store in (busy, old):
        store.write(0, packed([1]))
    rglob = Path.rglob

    def with_a_ghost(folder: Path, pattern: str) -> list[Path]:
        return [*rglob(folder, pattern), *([folder / ".chunk.tmp"] if folder == busy.folder else [])]

    monkeypatch.setattr(Path, "rglob", with_a_ghost)
    trim_cache(tmp_path, limit_bytes=0)
    assert busy.folder.exists()
    assert not old.folder.exists()


def test_trimming_an_absent_cache_does_nothing(tmp_path: Path) -> None:
    trim_cache(tmp_path / "absent", limit_bytes=0)
    assert not (tmp_path / "absent").exists()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EGOHIERALOC_CACHE", str(tmp_path / "own"))
    assert default_cache() == tmp_path / "own"
    monkeypatch.delenv("EGOHIERALOC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "egohieraloc"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="or EGOHIERALOC_CACHE, that you may write to"):
        FeatureStore.of(tmp_path / "file", "key")
