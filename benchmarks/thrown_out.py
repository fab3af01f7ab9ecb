"""What a question costs when the features of a long video were thrown out of the cache.

    python benchmarks/thrown_out.py [--minutes 5 20] [--model mini] [--device D] [--engine E]

The demo clip is repeated to a video of that length and added to a memory. Seconds of reading it all, of a
question with its features there, and of the same question without them; how many samples that one reads
again; whether both answer alike.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import av
import numpy as np

from egohieraloc import Localizer, Memory, Query, demo
from egohieraloc.inference.chunks import PHASES, STRETCH, all_chunks

Value = TypeVar("Value")


def repeat_clip(path: Path, minutes: float) -> None:
    """The packets of the demo clip, over and over."""
    with av.open(str(demo.CLIP)) as source, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.dts is not None]
        ticks = packets[-1].dts - packets[0].dts + packets[-1].duration
        length_s = float(ticks * packets[0].time_base)
        for turn in range(max(1, round(60 * minutes / length_s))):
            for packet in packets:
                copied = av.Packet(bytes(packet))
                copied.pts, copied.dts = packet.pts + turn * ticks, packet.dts + turn * ticks
                copied.time_base, copied.stream = packet.time_base, stream
                copied.is_keyframe = packet.is_keyframe
                output.mux(copied)


def measure(options: argparse.Namespace, minutes: float, folder: Path) -> str:
    """A row of the table."""
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    repeat_clip(folder / "long.mp4", minutes)
    localizer = Localizer.from_pretrained(
        options.model, device=options.device, engine=options.engine, cache=folder / "cache"
    )
    memory = Memory.open(folder / "memory", localizer=localizer)
    entry, read_s = timed(lambda: memory.add(folder / "long.mp4"))
    memory.ask(query)  # the first question also reads samples between those that adding reads
    there, asked_s = timed(lambda: memory.ask(query))
    encoded = memory.encoded(entry)
    assert encoded is not None
    shutil.rmtree(encoded.store.folder)
    without, without_s = timed(lambda: memory.ask(query))
    assert there.result is not None
    assert without.result is not None
    same = np.array_equal(there.result.curve.raw, without.result.curve.raw)
    again = sum(encoded.store.has(number) for number in all_chunks(len(encoded))) * STRETCH // PHASES
    seconds = f"{read_s:.1f} | {asked_s:.1f} | {without_s:.1f}"
    return f"| {minutes:g} | {seconds} | {min(again, len(encoded))} of {len(encoded)} | {same} |"


def timed(act: Callable[[], Value]) -> tuple[Value, float]:
    begun = time.perf_counter()
    value = act()
    return value, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, nargs="+", default=[5.0, 20.0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--engine")
    options = parser.parse_args()
    print("| minutes | reading s | question s | thrown out s | samples read again | same answer |")
    print("|---|---|---|---|---|---|")
    for minutes in options.minutes:
        with tempfile.TemporaryDirectory() as scratch:
            print(measure(options, minutes, Path(scratch)), flush=True)


if __name__ == "__main__":
    main()
