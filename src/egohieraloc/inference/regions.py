"""What is remembered of a video for ever: some descriptors of each stretch, enough to know where to look.

Cells of a chunk's samples that look alike share a codeword, and what looks like nothing else has one of its
own, however few cells show it: that is what a query asks for. A query is a few prototypes of its foreground,
of which those that find the most similar codewords say how similar a stretch is.

Codewords lie in one file, where their chunk's number says, and a manifest to which lines are only ever added
tells which are there. A line whose writing was cut short is no line; codewords that do not match their line's
checksum are not there.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_path, private_folder
from egohieraloc.inference.chunks import PHASES
from egohieraloc.inference.packing import whole_products
from egohieraloc.threads import usable_cores

FORMAT = 1
CODEWORDS = 256  # of a chunk
PROTOTYPES = 16  # of a query ...
COUNTED = 4  # ... of which so many, the most similar ones, say how similar a chunk is
CHUNKS_PER_PRODUCT = 128  # chunks compared at a time ...
MOST_CORES = 4  # ... by each of so many cores, in threads of torch's: more would wait for the memory
FINEST = 63  # whole numbers that prototypes are rounded to; sums of larger ones overflow without VNNI
HEADER = re.compile(rb"egohieraloc-memory (\d+) (\d+) (\d{1,9})")
LINE = re.compile(rb"(\d{1,18}) ([0-9a-f]{8})")
Vectors = NDArray[np.float32]
Codes = NDArray[np.int8]


def codebook(match: Codes) -> Codes:
    """Codewords (CODEWORDS, D), times 127, of samples with descriptors (N, D, h, w)."""
    cells = match.reshape(*match.shape[:2], -1).transpose(0, 2, 1).reshape(-1, match.shape[1])
    words: Codes = np.round(centres(cells.astype(np.float32), CODEWORDS) * 127).astype(np.int8)
    return words


def prototypes(tokens: Vectors) -> Vectors:
    """Unit vectors (at most PROTOTYPES, D) that stand for a query's tokens (n, D)."""
    return centres(tokens, min(PROTOTYPES, len(tokens)))


def centres(vectors: Vectors, count: int) -> Vectors:
    """Unit vectors (count, D) that stand for vectors (n, D); some repeat where count > n.

    Each vector joins the nearest of `count` that are far from each other. Further rounds of k-means would
    draw the centres to where most vectors are, and away from what is rare.
    """
    vectors = _unit(vectors)
    seeds = far_apart(vectors, count)
    nearest = (vectors @ seeds.T).argmax(1)
    member = nearest == np.arange(count)[:, None]  # (count, n)
    sums = member.astype(np.float32) @ vectors
    return np.where(member.any(1, keepdims=True), _unit(sums), seeds)


def far_apart(vectors: Vectors, count: int) -> Vectors:
    """Of unit vectors (n, D) the first, then always the one that is least like all before it (count, D)."""
    chosen, highest_similarity = [0], np.full(len(vectors), -np.inf, np.float32)
    while len(chosen) < count:
        np.maximum(highest_similarity, vectors @ vectors[chosen[-1]], out=highest_similarity)
        chosen.append(int(highest_similarity.argmin()))
    return vectors[chosen]


def similarity(books: Codes, prototypes: Vectors) -> Vectors:
    """How similar chunks with codewords (N, CODEWORDS, D) are to a query (N,): the mean of what the COUNTED
    prototypes find that find the most."""
    unit = np.abs(prototypes).max(initial=1e-6) / FINEST
    rounded = np.round(prototypes.T / unit).astype(np.int8)
    found = whole_products(books.reshape(-1, books.shape[-1]), rounded).reshape(*books.shape[:2], -1)
    while found.shape[1] > 1:  # a maximum over halves takes a third of the time of `max`
        half = -(-found.shape[1] // 2)
        found = np.maximum(found[:, :half], found[:, -half:])
    best: Vectors = np.sort(found[:, 0], axis=1)[:, -COUNTED:].mean(1, dtype=np.float32)
    return best * np.float32(unit / 127)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-6), np.float32)


class RegionMemory:
    """Codewords of the sparse chunks of one video."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifest, self._codewords = folder / "manifest.txt", folder / "codewords.int8"
        self._read_at: tuple[int, int] | None = None  # inode and size of the manifest when it was read
        self._checks: dict[int, int] = {}  # by chunk number
        self._width = 0  # D

    @classmethod
    def of(cls, cache: Path, key: str) -> RegionMemory:
        """The memory with that key: see `FeatureStore.of`."""
        memory = cls(cache / f"memory-{FORMAT}-{key}")
        with writing(memory.folder):
            private_folder(memory.folder)
        return memory

    def has(self, number: int) -> bool:
        """Whether a chunk is remembered; only the manifest is read."""
        self._read_manifest()
        return number in self._checks

    def add(self, number: int, words: Codes) -> None:
        """Remember the codewords (CODEWORDS, D) of a chunk."""
        self._read_manifest()
        with writing(self.folder):
            if self._width != words.shape[1]:
                self._begin(words.shape[1])
            data = np.ascontiguousarray(words).tobytes()
            with _opened(self._codewords, os.O_RDWR | os.O_CREAT) as file:
                os.pwrite(file, data, number // PHASES * len(data))
            # It begins with the end of a line: that of one whose writer was killed, or an empty one.
            line = f"\n{number} {zlib.crc32(data):08x}\n".encode()
            with _opened(self._manifest, os.O_WRONLY | os.O_APPEND) as file:
                os.write(file, line)
                status = os.fstat(file)
            if self._read_at == (status.st_ino, status.st_size - len(line)):  # nobody else added anything
                self._read_at = (status.st_ino, status.st_size)
                self._checks[number] = zlib.crc32(data)

    def flush(self) -> None:
        """Make what was added survive a power cut."""
        for path in (self._codewords, self._manifest):
            with suppress(OSError), _opened(path, os.O_RDWR) as file:
                os.fsync(file)

    def similarity(self, prototypes: Vectors, numbers: Sequence[int]) -> Vectors:
        """How similar chunks are to a query, in [-1, 1]; not a number where one is not remembered. They are
        consecutive sparse chunks."""
        self._read_manifest()
        if not (self._checks and len(numbers) and self._codewords.exists()):
            return np.full(len(numbers), np.nan, np.float32)
        blocks = [
            numbers[start : start + CHUNKS_PER_PRODUCT]
            for start in range(0, len(numbers), CHUNKS_PER_PRODUCT)
        ]
        cores = min(usable_cores(), MOST_CORES)
        with _opened(self._codewords, os.O_RDONLY) as file:
            if len(blocks) == 1:  # no threads for one of many short videos
                return self._similar(file, blocks[0], prototypes)
            with ThreadPoolExecutor(cores) as pool:
                parts = pool.map(lambda block: self._similar(file, block, prototypes), blocks)
                return np.concatenate(list(parts))

    def _similar(self, file: int, numbers: Sequence[int], prototypes: Vectors) -> Vectors:
        size = CODEWORDS * self._width
        words = np.zeros((len(numbers), size), np.int8)
        os.preadv(file, [words.data], numbers[0] // PHASES * size)
        sound = [zlib.crc32(row.data) == self._checks.get(n) for n, row in zip(numbers, words, strict=True)]
        found = similarity(words.reshape(len(numbers), CODEWORDS, self._width), prototypes)
        return np.where(sound, found, np.float32(np.nan))

    def _begin(self, width: int) -> None:
        """A new manifest, for descriptors of that width."""
        with atomic_path(self._manifest, private=True) as temporary:
            temporary.write_bytes(_header(width))
        self._read_manifest()

    def _read_manifest(self) -> None:
        """Look whether anything was added, here or by another process."""
        try:
            status = self._manifest.stat()
            if (status.st_ino, status.st_size) == self._read_at:
                return
            content = self._manifest.read_bytes()
        except FileNotFoundError:
            content, status = b"", None
        # What follows the last end of a line is still being written.
        header, *lines = content.split(b"\n")[:-1] or [b""]
        numbers = HEADER.fullmatch(header)
        self._width = int(numbers[3]) if numbers and header + b"\n" == _header(int(numbers[3])) else 0
        found = filter(None, map(LINE.fullmatch, lines if self._width else ()))
        self._checks = {int(line[1]): int(line[2], 16) for line in found}
        self._read_at = (status.st_ino, len(content)) if status else None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the system refuses becomes an error of ours."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"Cannot write to {folder}: {error}. Is the disk full?") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A file descriptor, closed at the end."""
    file = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _header(width: int) -> bytes:
    return f"egohieraloc-memory {FORMAT} {CODEWORDS} {width}\n".encode()
