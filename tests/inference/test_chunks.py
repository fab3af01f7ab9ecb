"""Which samples a chunk holds."""

from __future__ import annotations

import pytest

from egohieraloc.inference.chunks import (
    CHUNK,
    STRETCH,
    all_chunks,
    chunk_of,
    chunks_with,
    place_of,
    samples_of,
    sparse_chunks,
)

COUNTS = (0, 1, 2, CHUNK, STRETCH - 1, STRETCH, STRETCH + 1, 3 * STRETCH + 7)


@pytest.mark.parametrize("count", COUNTS)
def test_every_sample_is_in_one_chunk(count: int) -> None:
    held = [sample for number in all_chunks(count) for sample in samples_of(number, count)]
    assert sorted(held) == list(range(count))
    assert all(samples_of(chunk_of(s), count)[place_of(s)] == s for s in range(count))
    assert all(1 <= len(samples_of(number, count)) <= CHUNK for number in all_chunks(count))


@pytest.mark.parametrize("count", COUNTS)
def test_a_sparse_reading_is_every_second_sample(count: int) -> None:
    held = [sample for number in sparse_chunks(count) for sample in samples_of(number, count)]
    assert held == list(range(0, count, 2))


def test_chunks_with_some_samples() -> None:
    assert chunks_with([STRETCH + 3, 0, 2]) == [0, 3]
    assert samples_of(3, 10 * STRETCH) == range(STRETCH + 1, 2 * STRETCH, 2)
