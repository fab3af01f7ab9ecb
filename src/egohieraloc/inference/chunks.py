"""How the samples of a video are divided: into stretches of time, and each stretch into two chunks.

Chunk 2 n holds the even samples of stretch n, chunk 2 n + 1 the odd ones. The even ones alone are a sparse
reading of the whole video: an appearance of two samples or more, the shortest that the temporal rule accepts,
is in them. The odd ones are read where a question needs them.
"""

from __future__ import annotations

from collections.abc import Iterable

CHUNK = 8  # samples
PHASES = 2
STRETCH = CHUNK * PHASES


def chunk_of(sample: int) -> int:
    return sample // STRETCH * PHASES + sample % PHASES


def place_of(sample: int) -> int:
    """Where in its chunk a sample is."""
    return sample % STRETCH // PHASES


def samples_of(chunk: int, count: int) -> range:
    """The samples of a chunk in a video of `count`."""
    start = chunk // PHASES * STRETCH
    return range(start + chunk % PHASES, min(start + STRETCH, count), PHASES)


def sparse_chunks(count: int) -> range:
    """The chunks of the even samples of a video of `count`."""
    return range(0, -(-count // STRETCH) * PHASES, PHASES)


def all_chunks(count: int) -> list[int]:
    return chunks_with(range(count))


def chunks_with(samples: Iterable[int]) -> list[int]:
    """The chunks that hold any of these samples, in order."""
    return sorted({chunk_of(sample) for sample in samples})
