"""Features on disk: written whole or not at all, damage noticed, the oldest thrown out."""

from __future__ import annotations

import os
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from stored import NumberReader, encode_all, numbered_folder, packed

from egohieraloc.errors import ConfigError, OutputError
from egohieraloc.inference import store as module
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.store import FeatureStore, default_cache, trim_cache


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore.of(tmp_path / "cache", "key")


def chunk_file(store: FeatureStore, number: int) -> Path:
    return sorted(store.folder.iterdir())[number]


def damage(path: Path) -> None:
    """Flip one bit of the last byte: of the data, not of the header."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_is_written_comes_back(store: FeatureStore) -> None:
    given = packed([3, 1, 4])
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
    assert store.read(0) is None


@pytest.mark.parametrize("name", ["match", "fine8"])
def test_features_of_another_kind_are_damaged(store: FeatureStore, name: str) -> None:
    class Other(PackedFeatures):
        def __post_init__(self) -> None:
            """Anything goes."""

    given = packed([1, 2])
    store.write(
        0, Other(**{f.name: getattr(given, f.name) for f in fields(given)} | {name: np.ones((2, 1, 1, 1))})
    )
    assert store.read(0) is None
    assert (store.read_match(0) is None) == (name == "match")


def test_nothing_is_read_to_know_what_is_there(store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(3, packed([1]))
    monkeypatch.setattr("builtins.open", None)
    monkeypatch.setattr(module, "safe_open", None)
    assert [store.has(number) for number in range(5)] == [False, False, False, True, False]


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


def test_the_chunks_used_longest_ago_are_thrown_out(tmp_path: Path) -> None:
    stores = [FeatureStore.of(tmp_path, key) for key in "ab"]
    for age, (number, store) in enumerate(product(range(2), stores)):
        store.write(number, packed([1]))
        os.utime(store.folder / f"chunk-{number:06d}.safetensors", (1000 + age, 1000 + age))
    (tmp_path / "memory-1-a").mkdir()
    (tmp_path / "memory-1-a" / "codewords").write_text("stays")

    def there() -> list[list[bool]]:
        return [[store.has(number) for number in range(2)] for store in stores]

    size = next(stores[0].folder.iterdir()).stat().st_size
    trim_cache(tmp_path, limit_bytes=4 * size)
    assert there() == [[True, True], [True, True]]
    assert stores[0].read(0) is not None  # used again: now the youngest
    trim_cache(tmp_path, limit_bytes=3 * size)
    assert there() == [[True, True], [False, True]]
    trim_cache(tmp_path, limit_bytes=size)
    assert there() == [[True, False], [False, False]]
    trim_cache(tmp_path, limit_bytes=0)
    assert [p.name for p in tmp_path.rglob("*")] == ["memory-1-a", "codewords"]
    stores[0].write(0, packed([1]))  # its folder comes back


def test_a_store_keeps_its_cache_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[Path] = []
    monkeypatch.setattr(module, "trim_cache", trimmed.append)
    monkeypatch.setattr(module, "TRIM_EVERY_BYTES", 100)
    store = FeatureStore.of(tmp_path, "key")
    for number in range(40):
        store.write(number, packed([1]))  # 12 bytes
    FeatureStore(tmp_path / "alone").write(0, packed([1]))
    assert trimmed == [tmp_path] * 5


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore.of(tmp_path, "key")
    store.write(0, packed([1]))
    trim_cache(tmp_path)
    assert store.has(0)
    monkeypatch.setenv("EGOHIERALOC_CACHE_GB", "1e-9")
    trim_cache(tmp_path)
    assert not store.has(0)
    for wrong in ("-1", "nan", "20 GB"):
        monkeypatch.setenv("EGOHIERALOC_CACHE_GB", wrong)
        with pytest.raises(ConfigError, match=f"a number of gigabytes, such as 100, got '{wrong}'"):
            FeatureStore.of(tmp_path, "key")


def test_unfinished_files_are_thrown_out_when_nobody_writes_them(tmp_path: Path) -> None:
    folder = FeatureStore.of(tmp_path, "key").folder
    fresh, old = folder / ".chunk-1.aa.safetensors", folder / ".chunk-2.bb.safetensors"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    trim_cache(tmp_path, limit_bytes=0)
    assert list(folder.iterdir()) == [fresh]


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


def test_trimming_while_others_throw_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was there when the folder was listed may be gone when it is looked at."""
    store = FeatureStore.of(tmp_path, "key")
    store.write(0, packed([1]))
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda folder, name: [*glob(folder, name), store.folder / "chunk-ghost"]
    )
    trim_cache(tmp_path, limit_bytes=0)
    assert not store.folder.exists()


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


def test_a_second_encoding_reads_nothing(
    store: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, count = NumberReader.make(), 2 * STRETCH + 3
    video = numbered_folder(tmp_path / "images", count)
    encode_all(video, reader, store)
    assert sorted(reader.encoded) == list(range(count))
    reader.encoded.clear()
    monkeypatch.setattr(type(video), "frames", None)
    again = encode_all(video, reader, store)
    assert reader.encoded == []
    assert again.pick(range(count)).match.ravel().tolist() == list(range(count))
