"""Features of a video on disk, so that a second query neither decodes nor encodes it.

A store is a folder of chunks, each a file that is written whole or not at all, so whether a chunk is there is
known from its name alone. When a chunk is read its checksums are verified, and that no other user wrote it.
Features are a cache: chunks that were not used for long are thrown out when the cache is full, and made again
from the video when they are needed.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from egohieraloc.errors import ConfigError, OutputError
from egohieraloc.files import atomic_path, being_written, is_ours, private_folder
from egohieraloc.inference.packing import PackedFeatures

FORMAT = 3
DEFAULT_LIMIT_BYTES = 20_000_000_000
TRIM_EVERY_BYTES = 500_000_000  # written: how far a cache may grow past its limit
ABANDONED_S = 3600.0  # age of an unfinished file that nobody is writing any more


def default_cache() -> Path:
    """Where features are kept unless told otherwise: $EGOHIERALOC_CACHE, or the user's cache folder."""
    home = os.environ.get("EGOHIERALOC_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egohieraloc"


def cache_limit_bytes() -> float:
    """How large a cache may grow: $EGOHIERALOC_CACHE_GB, or 20 GB."""
    given = os.environ.get("EGOHIERALOC_CACHE_GB")
    if not given:
        return DEFAULT_LIMIT_BYTES
    with suppress(ValueError):
        if (gigabytes := float(given)) >= 0:
            return gigabytes * 1e9
    raise ConfigError(f"EGOHIERALOC_CACHE_GB is a number of gigabytes, such as 100, got '{given}'.")


class FeatureStore:
    """Chunks of one video, model and sampling rate."""

    def __init__(self, folder: Path, *, cache: Path | None = None) -> None:
        """`cache`: the folder of stores that is kept within its limit while this one grows."""
        self.folder = folder
        self._cache = cache
        self._untrimmed_bytes = TRIM_EVERY_BYTES

    @classmethod
    def of(cls, cache: Path, key: str) -> FeatureStore:
        """The store with that key."""
        cache_limit_bytes()  # a mistake in it is told before anything is read
        store = cls(cache / f"features-{FORMAT}-{key}", cache=cache)
        try:
            private_folder(store.folder)
        except OSError as error:
            raise OutputError(
                f"Features cannot be kept in {cache}: {error}. "
                "Give another --cache, or EGOHIERALOC_CACHE, that you may write to."
            ) from error
        return store

    @property
    def key(self) -> str:
        return self.folder.name.removeprefix(f"features-{FORMAT}-")

    def has(self, number: int) -> bool:
        """Whether a chunk is there. Nothing is read; `read` says whether it is sound."""
        return self._path(number).is_file()

    def write(self, number: int, packed: PackedFeatures) -> None:
        tensors = {f.name: np.ascontiguousarray(getattr(packed, f.name)) for f in fields(packed)}
        checks = {name: str(zlib.crc32(values.data)) for name, values in tensors.items()}
        with atomic_path(self._path(number), private=True) as temporary:
            save_file(tensors, temporary, metadata=checks)
        self._untrimmed_bytes += sum(values.nbytes for values in tensors.values())
        if self._cache is not None and self._untrimmed_bytes > TRIM_EVERY_BYTES:
            trim_cache(self._cache)
            self._untrimmed_bytes = 0

    def read(self, number: int) -> PackedFeatures | None:
        """A chunk, or None when it is missing, damaged or another user's."""
        tensors = self._load(number, [f.name for f in fields(PackedFeatures)])
        with suppress(ValueError, TypeError):  # of another kind or number than they should be
            return None if tensors is None else PackedFeatures(**tensors)
        return None

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]] | None:
        """Only the descriptors of a chunk and their scale."""
        tensors = self._load(number, ["match", "match_scale"])
        if tensors is None or tensors["match"].dtype != np.int8 or tensors["match_scale"].dtype != np.float16:
            return None
        return tensors["match"], tensors["match_scale"]

    def _load(self, number: int, names: list[str]) -> Mapping[str, NDArray[Any]] | None:
        try:
            if not is_ours(self._path(number).lstat()):
                return None
            with safe_open(self._path(number), "np") as file:
                checks = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in names}
        except (OSError, SafetensorError):
            return None
        if any(str(zlib.crc32(tensors[name].data)) != checks.get(name) for name in names):
            return None
        with suppress(OSError):  # of a folder that may only be read
            os.utime(self._path(number))  # used: among the last to be thrown out
        return tensors

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:06d}.safetensors"


def trim_cache(cache: Path, *, limit_bytes: float | None = None) -> None:
    """Throw out what was used longest ago, chunks of features and unfinished work on camera poses, until the
    rest fits. The limit is that of the environment unless given."""
    limit_bytes = cache_limit_bytes() if limit_bytes is None else limit_bytes
    found = sorted(_disposable(cache))
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= limit_bytes:
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):  # other processes throw out too
                path.unlink()
            with suppress(OSError):  # it stays where there is something in it
                path.parent.rmdir()
        total -= size


def _disposable(cache: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, size and path of all that can be made again."""
    for path in (*cache.glob("features-*/chunk-*"), *cache.glob("poses/*.work")):
        with suppress(FileNotFoundError):  # other processes write and throw out too
            inside = path.rglob("*") if path.is_dir() else (path,)
            size = sum(file.stat().st_size for file in inside)
            yield path.stat().st_mtime, size, path
    for path in cache.glob("features-*/.chunk-*"):  # being written, or left by a process that was killed
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - ABANDONED_S and not being_written(path.name):
                yield 0.0, path.stat().st_size, path
