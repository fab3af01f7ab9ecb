"""How much faster than before, in one run: dense reading, the first answer, the second question, memory.

    python benchmarks/fast.py [--before SRC] [--read 2] [--minutes 10] [--busy 4] [--rounds 5] [--json FILE]

The bundled clip, repeated without encoding it again for `--read` minutes, is the video that is read; its
stored features, repeated for `--minutes`, are what the second question is about. Each side runs in a process
of its own: "now" as the command line does it, "before" with the package of another checkout, `--before
ITS/src`, or without one with the engine torch and threads as torch sets them. `--busy` keeps so many other
processes busy meanwhile.
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import av

HERE = Path(__file__).resolve().parents[1] / "src"
# What `threads.settle` sets: each side begins without.
THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_NUM_THREADS")
Figures = dict[str, float | str]
ROWS = {
    "start_s": "load the network, s",
    "dense_per_s": "dense reading, samples/s",
    "first_s": "first answer of the unread video, s",
    "stored_s": "a question about stored minutes, s",
    "second_s": "a second one, s",
    "peak_mb": "peak memory of all of it, MB",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="src folder of the state to compare with")
    parser.add_argument("--read", type=float, default=2.0, help="minutes of video that are read")
    parser.add_argument("--minutes", type=float, default=10.0, help="of stored video that are asked about")
    parser.add_argument("--busy", type=int, default=0, help="other processes that take all the time they get")
    parser.add_argument("--rounds", type=int, default=1, help="of both sides by turns; medians are told")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--measure", nargs=4, metavar=("VIDEO", "MINUTES", "MODEL", "ENGINE"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.measure:
        video, minutes, *how = options.measure
        print(json.dumps(measure(Path(video), float(minutes), *how)))
        return
    with tempfile.TemporaryDirectory() as folder, busy(options.busy):
        from egohieraloc import demo

        video = repeated(demo.CLIP, Path(folder) / "long.mp4", 60 * options.read)
        asked = options.minutes, options.model
        old = options.before or HERE, "" if options.before else "torch"
        rounds = [
            [run(source, video, *asked, engine) for source, engine in (old, (HERE, "settled"))]
            for _ in range(options.rounds)
        ]
    before, now = (middle(side) for side in zip(*rounds, strict=True))
    print(f"{options.read:g} minutes read, {options.minutes:g} asked about")
    print(f"{os.cpu_count()} cores, {options.busy} busy processes beside it, {options.rounds} rounds")
    print(f"{'':<36}{'before':>10}{'now':>10}{'times':>8}")
    for key, words in ROWS.items():
        times = now[key] / before[key] if key.endswith("per_s") else before[key] / now[key]
        print(f"{words:<36}{before[key]:10.2f}{now[key]:10.2f}{times:8.1f}")
    print(f"answer before: {before['answer']}\nanswer now:    {now['answer']}")
    if options.json:
        options.json.write_text(json.dumps({"before": before, "now": now}, indent=1))


def middle(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure, and the answer of the last round."""
    return {**rounds[-1], **{key: statistics.median(float(each[key]) for each in rounds) for key in ROWS}}


def run(source: Path, video: Path, minutes: float, model: str, engine: str) -> Figures:
    """The figures of a package in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in THREADS} | {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure", str(video), str(minutes), model, engine]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(video: Path, minutes: float, model: str, engine: str) -> Figures:
    """`engine`: "settled" chooses as the command line does; "" is for states that know no engines."""
    if engine == "settled":
        from egohieraloc import threads

        threads.settle()
    from egohieraloc import Localizer, Query, Video, demo

    sys.path[0] = str(Path(demo.__file__).parents[3] / "benchmarks")  # of the package that is measured
    import speed

    known = {"engine": "torch"} if engine == "torch" else {}
    dense = {"dense": True} if "dense" in inspect.signature(Localizer.encode).parameters else {}
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        localizer = Localizer.from_pretrained(model, device="cpu", cache=Path(folder) / "dense", **known)
        figures["start_s"] = time.perf_counter() - started
        started = time.perf_counter()
        encoded = localizer.encode(Video.open(video), **dense)
        figures["dense_per_s"] = len(encoded) / (time.perf_counter() - started)
        long = speed.repeated(encoded, minutes, Path(folder) / "long")
        for name in ("stored_s", "second_s"):
            started = time.perf_counter()
            figures["answer"] = localizer.ask(query, long).summary
            figures[name] = time.perf_counter() - started
        del localizer, encoded, long
        fresh = Localizer.from_pretrained(model, device="cpu", cache=Path(folder) / "fresh", **known)
        started = time.perf_counter()
        fresh.locate(query, video)
        figures["first_s"] = time.perf_counter() - started
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return figures


def repeated(clip: Path, path: Path, seconds: float) -> Path:
    """A video that shows a clip over and over for about so long, or its beginning; packets are copied."""
    with av.open(str(clip)) as source, av.open(str(path), "w") as target:
        stream = source.streams.video[0]
        packets = [packet for packet in source.demux(stream) if packet.dts is not None]
        timed = [(packet, packet.pts, packet.dts) for packet in packets]
        length = max(pts for _, pts, _ in timed) + (packets[0].duration or 1)
        rounds = seconds / float(length * stream.time_base)
        copy = target.add_stream_from_template(stream)
        for number in range(round(rounds) or 1):
            for packet, pts, dts in timed[: max(1, round(min(rounds, 1) * len(timed)))]:
                packet.pts, packet.dts = pts + number * length, dts + number * length
                packet.stream = copy
                target.mux(packet)
    return path


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that never rest, meanwhile."""
    others = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.terminate()


def _burn() -> None:
    while True:
        sum(range(10_000))


if __name__ == "__main__":
    main()
