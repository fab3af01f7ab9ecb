"""The shortlist as a plain matrix product, beside faiss: seconds, bytes, and what faiss misses.

    python benchmarks/faiss_shortlist.py [--hours 1 10] [--product-hours 1000] [--data DIR] [--folder DIR]

Codewords are those of memory_hours.py (the demo clip, or with DIR real and composed footage), over and over
with a change each time. The product is `RegionMemory.similarity`; for `--product-hours` it runs over the
longest file as often as that takes, from the file cache. faiss has an index of inverted lists with product
quantization (IVF, PQ of 24 bytes); it returns the 4,096 best codewords of each prototype, from which
stretches are ranked as the memory does. `found` is the share of the product's 64 best stretches among the 64
best of faiss. Needs faiss-cpu.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc import Localizer, Query, demo
from egohieraloc.inference.chunks import PHASES, STRETCH
from egohieraloc.inference.regions import CODEWORDS, COUNTED, RegionMemory, prototypes
from memory_hours import FPS, changed, codewords, make_footage

SHORTLIST, RETURNED, PROBED, CODE_BYTES = 64, 4096, 32, 24
ADDED = 512  # stretches at a time; faiss is trained on the first ones
ASKED, MOST_LISTS, ROUNDS = 5, 4096, 10
Codes = NDArray[np.int8]
Vectors = NDArray[np.float32]


def stretches(folder: Path, hours: float) -> Iterator[Codes]:
    """Codewords (CODEWORDS, D) of each stretch."""
    books, random = codewords(folder), np.random.default_rng(0)
    for place in range(round(hours * 3600 * FPS / STRETCH)):
        yield changed(books[place % len(books)], random)


def batches(folder: Path, hours: float) -> Iterator[Vectors]:
    """Unit vectors (many, D)."""
    some: list[Codes] = []
    for words in stretches(folder, hours):
        some.append(words)
        if len(some) == ADDED:
            yield unit(some)
            some = []
    if some:
        yield unit(some)


def unit(some: list[Codes]) -> Vectors:
    vectors = np.concatenate(some).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def product(memory: RegionMemory, query: Vectors, count: int) -> tuple[Vectors, float]:
    """Similarities of all stretches, and seconds."""
    numbers = range(0, count * PHASES, PHASES)
    similarity, laps = memory.similarity(query, numbers), []
    for _ in range(ASKED):
        begun = time.perf_counter()
        memory.similarity(query, numbers)
        laps.append(time.perf_counter() - begun)
    return similarity, float(np.median(laps))


def build(folder: Path, hours: float, width: int) -> Any:
    """An index of faiss."""
    import faiss

    lists = min(MOST_LISTS, round(2 * np.sqrt(hours * 3600 * FPS / STRETCH * CODEWORDS)))
    index = faiss.index_factory(width, f"IVF{lists},PQ{CODE_BYTES}", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = ROUNDS
    index.train(next(batches(folder, hours)))
    for vectors in batches(folder, hours):
        index.add(vectors)
    index.nprobe = PROBED
    return index


def best_of_faiss(index: Any, query: Vectors, count: int) -> tuple[list[int], float]:
    """The most similar of so many stretches, and seconds."""
    laps, best = [], []
    for _ in range(ASKED):
        begun = time.perf_counter()
        similarity, words = index.search(query, RETURNED)
        # What a prototype did not return is at most as similar as the last that it did.
        found = np.repeat(similarity[:, -1:], count, axis=1)
        np.maximum.at(found, (np.arange(len(query))[:, None], words // CODEWORDS), similarity)
        scores = np.sort(found, axis=0)[-COUNTED:].mean(0)
        best = np.argsort(-scores)[:SHORTLIST].tolist()
        laps.append(time.perf_counter() - begun)
    return best, float(np.median(laps))


def measure(folder: Path, memory: RegionMemory, hours: float, query: Vectors) -> tuple[int, str]:
    """How many stretches there are, and a row of the table."""
    import faiss

    count = 0
    for words in stretches(folder, hours):
        memory.add(count * PHASES, words)
        count += 1
    similarity, product_s = product(memory, query, count)
    begun = time.perf_counter()
    index = build(folder, hours, query.shape[1])
    built_s = time.perf_counter() - begun
    best, faiss_s = best_of_faiss(index, query, count)
    wanted = set(np.argsort(-similarity)[:SHORTLIST].tolist())
    found = len(wanted & set(best)) / len(wanted)
    sizes = megabytes(count, query), len(faiss.serialize_index(index)) / 1e6
    return count, (
        f"| {hours:g} | {product_s:.3f} | {sizes[0]:.0f} | {faiss_s:.3f} | {sizes[1]:.0f} | {built_s:.0f} "
        f"| {found:.0%} |"
    )


def megabytes(count: int, query: Vectors) -> float:
    """Of the codewords of so many stretches."""
    return count * CODEWORDS * query.shape[1] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--product-hours", type=float, default=1000.0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="of distinct footage, with --data")
    parser.add_argument("--folder", type=Path, help="keep the footage here; as of memory_hours.py")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "footage"
        make_footage(options, folder)
        localizer = Localizer.from_pretrained(options.model, device=options.device, cache=folder / "cache")
        view = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
        query = prototypes(localizer.predictor.tokens(localizer.predictor.prepare(view)))
        print("| hours | product s | MB | faiss s | MB | built in s | found |")
        print("|---|---|---|---|---|---|---|")
        for hours in options.hours:
            memory = RegionMemory(Path(scratch) / f"memory-{hours:g}")
            count, row = measure(folder, memory, hours, query)
            print(row, flush=True)
        turns = round(options.product_hours / hours)
        begun = time.perf_counter()
        for _ in range(turns):
            memory.similarity(query, range(0, count * PHASES, PHASES))
        seconds, size = time.perf_counter() - begun, turns * megabytes(count, query)
        print(f"| {turns * hours:g} | {seconds:.2f} | {size:.0f} | | | | |")


if __name__ == "__main__":
    main()
