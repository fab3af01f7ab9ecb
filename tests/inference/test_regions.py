"""What is remembered of a video: where to look is found again, and no cut or damage ever lies."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from egohieraloc.errors import OutputError
from egohieraloc.inference.chunks import PHASES, sparse_chunks
from egohieraloc.inference.regions import (
    CODEWORDS,
    COUNTED,
    FINEST,
    PROTOTYPES,
    RegionMemory,
    centres,
    codebook,
    prototypes,
)

WIDTH = 6
ROUNDING = 0.5 / FINEST * WIDTH**0.5  # of a prototype: half a step a side, against a unit vector
RANDOM = np.random.default_rng(0)


def directions(count: int, width: int = WIDTH) -> NDArray[np.float32]:
    vectors = RANDOM.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def words() -> NDArray[np.int8]:
    return np.round(directions(CODEWORDS) * 127).astype(np.int8)


@pytest.fixture
def memory(tmp_path: Path) -> RegionMemory:
    return RegionMemory.of(tmp_path, "key")


def test_few_kinds_of_vectors_are_found_exactly() -> None:
    """Whatever their lengths and shares."""
    kinds = np.linalg.qr(RANDOM.normal(size=(8, 8)))[0].astype(np.float32)[:4]
    cells = kinds[np.minimum(np.arange(40) // 4, 3)] * RANDOM.uniform(0.5, 2, (40, 1)).astype(np.float32)
    found = centres(cells, 12)
    np.testing.assert_allclose((found @ kinds.T).max(0), 1, atol=1e-5)
    np.testing.assert_allclose((found @ kinds.T).max(1), 1, atol=1e-5)


def test_a_centre_is_in_the_middle_of_its_vectors() -> None:
    middles = np.linalg.qr(RANDOM.normal(size=(96, 96)))[0].astype(np.float32)[:5]
    around = (middles[:, None] + 0.03 * RANDOM.normal(size=(5, 60, 96))).astype(np.float32)
    found = centres(around.reshape(-1, 96), 5)
    assert (found @ middles.T).max(0).min() > 0.99
    assert (around[:, 0] @ middles.T).max() / np.linalg.norm(around[0, 0]) < 0.98  # one alone is not


def test_more_centres_than_vectors_repeat_them() -> None:
    vectors = directions(3)
    similarity = centres(vectors, 8) @ vectors.T
    np.testing.assert_allclose(similarity.max(1), 1, atol=1e-6)
    np.testing.assert_allclose(similarity.max(0), 1, atol=1e-6)


def test_what_few_cells_show_has_a_codeword_of_its_own() -> None:
    """One cell of one sample among cells that all differ a little."""
    kinds = np.linalg.qr(RANDOM.normal(size=(96, 96)))[0][:40].astype(np.float32)
    cells = kinds[np.tile(np.arange(784) // 25, (8, 1))] + 0.05 * RANDOM.normal(size=(8, 784, 96))
    cells[5, 300] = kinds[39]
    match = np.round(80 * cells).astype(np.int8)
    found = codebook(match.transpose(0, 2, 1).reshape(8, 96, 28, 28))
    assert found.shape == (CODEWORDS, 96)
    assert (found.astype(np.float32) @ kinds[39]).max() / 127 > 0.95
    assert (found.astype(np.float32) @ kinds[38]).max() / 127 < 0.3  # nobody saw it


def test_a_query_is_few_prototypes() -> None:
    tokens = directions(100)
    assert prototypes(tokens).shape == (PROTOTYPES, WIDTH)
    np.testing.assert_allclose((prototypes(tokens[:3]) @ tokens[:3].T).max(0), 1, atol=1e-6)
    assert len(prototypes(tokens[:3])) == 3


@pytest.mark.parametrize("count", [3, COUNTED, PROTOTYPES])
def test_similarity_is_that_of_the_prototypes_that_find_the_most(memory: RegionMemory, count: int) -> None:
    numbers = sparse_chunks(150 * 16)
    books = {number: words() for number in numbers if number % 10}
    for number, book in books.items():
        memory.add(number, book)
    query = directions(count)
    found = RegionMemory(memory.folder).similarity(query, numbers)
    best = {number: sorted((book @ query.T).max(0) / 127) for number, book in books.items()}
    wanted = [np.mean(best[n][-COUNTED:]) if n in books else np.nan for n in numbers]
    np.testing.assert_allclose(found, wanted, atol=ROUNDING)
    np.testing.assert_allclose(memory.similarity(query, numbers[:7]), wanted[:7], atol=ROUNDING)
    assert memory.similarity(query, numbers[:0]).shape == (0,)
    assert np.isnan(RegionMemory(memory.folder / "other").similarity(query, numbers)).all()


def test_chunks_come_in_any_order_and_more_than_once(memory: RegionMemory) -> None:
    first, second = words(), words()
    for number in (8, 2, 8, 0):
        memory.add(number, first)
    memory.add(2, second)
    assert [memory.has(number) for number in range(0, 12, PHASES)] == [True, True, False, False, True, False]
    query = directions(1)
    found = memory.similarity(query, range(0, 12, PHASES))
    best = [(book @ query.T).max() / 127 for book in (first, second, first)]
    np.testing.assert_allclose(found[[0, 1, 4]], best, atol=ROUNDING)
    assert np.isnan(found[[2, 3, 5]]).all()


def test_what_another_process_adds_is_seen(memory: RegionMemory) -> None:
    other = RegionMemory(memory.folder)
    assert not other.has(0)
    memory.add(0, words())
    assert other.has(0)
    other.add(2, words())
    memory.add(4, words())
    assert all(each.has(number) for each in (memory, other) for number in (0, 2, 4))


def test_the_manifest_may_be_cut_at_any_byte(memory: RegionMemory) -> None:
    """What is left is a part of the truth, and adding goes on."""
    book = words()
    for number in (0, 2, 24):
        memory.add(number, book)
    path = memory.folder / "manifest.txt"
    content = path.read_bytes()
    before = 0
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        again = RegionMemory(memory.folder)
        kept = [number for number in range(0, 30, PHASES) if again.has(number)]
        assert kept == [0, 2, 24][: len(kept)]
        assert len(kept) >= before
        before = len(kept)
        again.add(6, book)
        assert [number for number in range(0, 30, PHASES) if RegionMemory(memory.folder).has(number)] in (
            sorted([*kept, 6]),
            sorted([*[0, 2, 24][: len(kept) + 1], 6]),  # a line that lacked nothing but its end
        )
    assert before == 3


def test_damaged_codewords_are_not_there(memory: RegionMemory) -> None:
    for number in (0, 2, 4):
        memory.add(number, words())
    path = memory.folder / "codewords.int8"
    content = bytearray(path.read_bytes())
    content[CODEWORDS * WIDTH] ^= 1
    path.write_bytes(content[:-1])
    found = RegionMemory(memory.folder).similarity(directions(1), range(0, 6, PHASES))
    assert np.isnan(found).tolist() == [False, True, True]
    path.unlink()
    assert np.isnan(RegionMemory(memory.folder).similarity(directions(1), range(0, 6, PHASES))).all()


def test_a_manifest_of_another_format_is_none(memory: RegionMemory) -> None:
    memory.add(0, words())
    path = memory.folder / "manifest.txt"
    path.write_bytes(path.read_bytes().replace(b"memory 1", b"memory 9"))
    again = RegionMemory(memory.folder)
    assert not again.has(0)
    path.write_bytes(b"egohieraloc-memory 1 256 " + b"9" * 5000 + b"\n")  # more digits than Python reads
    assert not again.has(0)
    again.add(2, words())
    with path.open("ab") as file:
        file.write(b"9" * 5000 + b" 00000000\n")
    assert [again.has(number) for number in (0, 2)] == [False, True]


WRITER = """
import sys
import numpy as np
from pathlib import Path
from egohieraloc.inference.regions import CODEWORDS, RegionMemory
memory = RegionMemory(Path(sys.argv[1]))
for number in range(0, 10**6, 2):
    memory.add(number, np.full((CODEWORDS, 6), number % 100, np.int8))
"""


def test_a_killed_writer_loses_nothing_it_had_added(memory: RegionMemory) -> None:
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(memory.folder)])
        try:
            before = _size(memory)
            deadline = time.monotonic() + 60
            while _size(memory) < before + 2000 and time.monotonic() < deadline:
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()
        again = RegionMemory(memory.folder)
        known = [number for number in range(0, 10**5, PHASES) if again.has(number)]
        assert len(known) > 10
        found = again.similarity(np.ones((1, 6), np.float32) / 6, known)
        np.testing.assert_allclose(found, [number % 100 / 127 for number in known], atol=1e-5)


def _size(memory: RegionMemory) -> int:
    path = memory.folder / "manifest.txt"
    return path.stat().st_size if path.exists() else 0


def test_a_full_disk_says_so(memory: RegionMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add(0, words())

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OutputError, match="Is the disk full"):
        memory.add(2, words())
    assert not memory.has(2)
