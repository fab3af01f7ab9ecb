"""What a question to a library of many videos costs: seconds, and how many videos are asked.

    python benchmarks/library_hours.py [--data DIR] [--hours 1 10] [--segment 28.8] [--folder DIR]

The footage is that of memory_hours.py, in videos of `--segment` seconds such as `watch` records; the demo
clip, a video of its own, lies at seven tenths of it. Asked are where its object is, and where the objects of
`personal/` in DIR are, which is nowhere. `open` brings what is known of all videos from the catalogue,
`choose` finds those that are likely to show the object, `ask` asks them; medians of five questions after a
first one, in a process that has the network loaded. `--folder` keeps the footage for memory_hours.py too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from ego_dev import read_queries
from egohieraloc import Localizer, Query, demo, threads
from egohieraloc.inference.chunks import PHASES, STRETCH
from egohieraloc.inference.regions import Codes, RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.memory.library import Memory
from egohieraloc.memory.values import VideoEntry
from egohieraloc.memory.videos import Known
from egohieraloc.memory.wall_clock import Start
from egohieraloc.types import Ints, SampledVideo
from memory_hours import ASKED, FPS, changed, codewords, make_footage, row_of

BEGAN = datetime(2026, 3, 1, 8, tzinfo=UTC)
ABSENT = 5  # objects that no video shows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--segment", type=float, default=28.8, help="seconds of a video, whole stretches")
    parser.add_argument("--minutes", type=float, default=57.0, help="of distinct footage")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    threads.settle()
    print("| hours | videos | object | open s | choose s | ask s | question s | videos asked | right |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        make_footage(options, folder)
        localizer = Localizer.from_pretrained(options.model, device=options.device, cache=folder / "cache")
        there = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
        nowhere = absent_queries(options.data, Path(scratch)) if options.data else []
        for hours in options.hours:
            memory = Asked(Path(scratch) / f"library-{hours:g}", Localizer(localizer.weights))
            clip = fill(memory, folder, hours, options.segment)
            named = f"| {hours:g} | {len(memory.list())} |"
            print(named, "in the demo clip |", row([there] * (ASKED + 1), memory, clip), flush=True)
            if nowhere:
                print(named, "nowhere |", row([nowhere[0], *nowhere], memory, None), flush=True)


class Asked(Memory):
    """A memory that tells what it did."""

    def __init__(self, folder: Path, localizer: Localizer) -> None:
        super().__init__(folder, localizer)
        localizer.cache = self.folder / "features"
        self.asked = 0
        self.open_s = self.choose_s = 0.0

    def _known(self, entries, until):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        known = super()._known(entries, until)
        self.open_s = time.perf_counter() - started
        return known

    def _likely(self, query, entries, until, progress):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        chosen = super()._likely(query, entries, until, progress)
        self.choose_s = time.perf_counter() - started - self.open_s
        self.asked = 0
        return chosen

    def _ask(self, *words):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super()._ask(*words)


def row(queries: list[Query], memory: Asked, clip: VideoEntry | None) -> str:
    """Of questions, the first of which is not timed."""
    laps = []
    for query in queries:
        started = time.perf_counter()
        answer = memory.ask(query)
        total_s = time.perf_counter() - started
        seen_in = answer.sightings[0].video.id if answer.found else None
        right = seen_in == (clip and clip.id)
        ask_s = total_s - memory.open_s - memory.choose_s
        laps.append((memory.open_s, memory.choose_s, ask_s, total_s, memory.asked, right))
    *seconds, asked, right = zip(*laps[1:], strict=True)
    medians = " | ".join(f"{np.median(each):.2f}" for each in seconds)
    return f"{medians} | {np.median(asked):g} | {sum(right)} of {len(right)} |"


def absent_queries(data: Path, scratch: Path) -> list[Query]:
    """Of as many personal objects, one each."""
    built = scratch / "personal"
    build = [sys.executable, str(data / "personal" / "build.py"), "--out", str(built)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    by_target = {query.target: query.query for query in read_queries(built)}
    return list(by_target.values())[:ABSENT]


def fill(memory: Asked, folder: Path, hours: float, segment_s: float) -> VideoEntry:
    """Put videos in a row into a memory; the one that shows the object is told."""
    order, clip = row_of(folder, hours)
    books, size = codewords(folder), round(segment_s * FPS / STRETCH)
    place = int(np.flatnonzero(order < clip)[0])
    cuts = [*range(0, place, size), place, *range(place + clip, len(order), size), len(order)]
    whole = memory.add(demo.CLIP, start=BEGAN + timedelta(seconds=place * STRETCH / FPS))
    like = memory.encoded(whole)
    assert like is not None
    for start, end in pairwise(cuts):
        if start != place:
            add(memory, folder, whole, like.video, order[start:end], start, books)
    return whole


def add(
    memory: Asked,
    folder: Path,
    whole: VideoEntry,
    like: SampledVideo,
    order: Ints,
    start: int,
    books: Codes,
) -> None:
    """A video of some stretches of the footage. Its file is the demo clip: a look back sees its beginning."""
    name = f"{start:032d}"
    began = Start(BEGAN + timedelta(seconds=start * STRETCH / FPS), "given")
    seconds = len(order) * STRETCH / FPS
    entry = replace(whole, id="", content=name, duration_s=seconds, start=began)
    entry = memory.videos.begin(entry)
    store, remembered = FeatureStore.of(memory.cache, name), RegionMemory.of(memory.cache, name)
    for number, stretch in enumerate(order.tolist()):
        source = folder / "footage" / f"chunk-{stretch * PHASES:06d}.safetensors"
        for phase in range(PHASES):
            os.link(source, store.folder / f"chunk-{number * PHASES + phase:06d}.safetensors")
        remembered.add(number * PHASES, changed(books[stretch], np.random.default_rng(start + number)))
    count = np.arange(len(order) * STRETCH) % len(like)
    index, time_s = like.frame_index[count], np.arange(len(count)) / FPS
    sampled = replace(like, frame_index=index, time_s=time_s)
    predictor = memory.localizer.predictor
    known = Known(sampled, name, predictor.features_fingerprint, predictor.engine)
    memory.videos.finish(entry.id, known)


if __name__ == "__main__":
    main()
