"""What is known of a video, kept on disk: a second query neither decodes nor encodes it.

A store is a folder of chunks, each written whole or not at all and carrying a checksum, so an interrupted
encoding goes on where it stopped and a damaged chunk is noticed and made again.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_path
from egohieraloc.inference.packing import PackedFeatures

CHUNK = 32  # samples
FORMAT = 1
DEFAULT_LIMIT_BYTES = 20_000_000_000


def default_cache() -> Path:
    """Where features are kept unless told otherwise: $EGOHIERALOC_CACHE, or the user's cache folder."""
    home = os.environ.get("EGOHIERALOC_CACHE")
    if home:
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egohieraloc"


class FeatureStore:
    """Chunks of one video, model and sampling rate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, cache: Path, key: str) -> FeatureStore:
        """The store with that key; using it makes it the last one to be thrown out."""
        store = cls(cache / f"features-{FORMAT}-{key}")
        try:
            store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"Features cannot be kept in {cache}: {error}. "
                "Give another --cache, or EGOHIERALOC_CACHE, that you may write to."
            ) from error
        with suppress(OSError):  # of a folder that may only be read
            os.utime(store.folder)
        return store

    def has(self, number: int) -> bool:
        """Whether a chunk is there and whole."""
        return self.read(number) is not None

    def write(self, number: int, packed: PackedFeatures) -> None:
        tensors = {f.name: np.ascontiguousarray(getattr(packed, f.name)) for f in fields(packed)}
        checks = {name: str(zlib.crc32(values.data)) for name, values in tensors.items()}
        with atomic_path(self._path(number)) as temporary:
            save_file(tensors, temporary, metadata=checks)

    def read(self, number: int) -> PackedFeatures | None:
        """A chunk, or None when it is missing or damaged."""
        tensors = self._load(number, [f.name for f in fields(PackedFeatures)])
        return None if tensors is None else PackedFeatures(**tensors)

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]] | None:
        """Only the descriptors of a chunk and their scale."""
        tensors = self._load(number, ["match", "match_scale"])
        return None if tensors is None else (tensors["match"], tensors["match_scale"])

    def _load(self, number: int, names: list[str]) -> Mapping[str, NDArray[Any]] | None:
        try:
            with safe_open(self._path(number), "np") as file:
                checks = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in names}
        except (OSError, SafetensorError):
            return None
        whole = all(str(zlib.crc32(tensors[name].data)) == checks.get(name) for name in names)
        return tensors if whole else None

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:05d}.safetensors"


def trim_cache(cache: Path, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, keep: Path | None = None) -> None:
    """Throw out what was used longest ago, features and unfinished work on camera poses, until the rest fits;
    `keep` always stays."""
    stores: list[tuple[float, int, Path]] = []  # last use, size, folder
    for folder in (*cache.glob("features-*"), *cache.glob("poses/*.work")):
        with suppress(FileNotFoundError):  # other processes write and throw out too
            size = sum(f.stat().st_size for f in folder.rglob("*"))
            stores.append((folder.stat().st_mtime, size, folder))
    total = sum(size for _, size, _ in stores)
    for _, size, folder in sorted(stores):
        if total <= limit_bytes:
            return
        if folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size
