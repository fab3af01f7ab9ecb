"""Gives every parser of files from elsewhere many broken inputs: `make fuzz`, or

    python tools/fuzz.py --inputs 100000 --processes 2 --minutes 5 --json fuzz.json [PARSER ...]

Inputs come in portions, each in a process of its own, forked from one that has imported what parsers need.
A find (another exception than is promised, more than 5 s or 1 GB, a process that crashes or hangs) goes into
tests/fuzz/corpus, is shown, and fails the run; so do parsers that did not get all of their inputs within the
minutes. With --json the next run goes on where this one stopped; a parser with finds begins again. A parser
whose packages are not installed is left out and named.
`--atheris PARSER` lets coverage choose the inputs instead, until it is stopped; atheris must be installed.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = (
    "1"  # before anything is imported that starts threads: they do not survive a fork
)
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from fuzz.runner import CORPUS, PARSERS, Outcome, inputs_of, keep, run_parser, seeds_of  # noqa: E402

FIRST = 1000  # number of the first input; `make test` gives those before it
PORTION = 5000  # inputs
STUCK_S = 60.0  # a process that is at the same input for so long is ended; by the wall clock
FORK = multiprocessing.get_context("fork")


@dataclass
class Row:
    """What became of a parser's inputs."""

    parser: str
    inputs: int = 0
    seconds: float = 0.0  # of all processes
    slowest_s: float = 0.0
    peak_mb: float = 0.0  # beyond what the process had at the start
    finds: int = 0
    missing: str = ""  # a package that it needs and that is not there


class Portion:
    """The next inputs of a parser, in a process of their own that stops at a time by `time.monotonic`."""

    def __init__(self, parser: str, first: int, count: int, until: float) -> None:
        self.parser, self.first, self.began = parser, first, time.monotonic()
        self.at = FORK.Value("Q", first, lock=False)  # the number of the input that it is given
        self.seen, self.seen_at = first, self.began
        self.answer, sender = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=self._run, args=(count, until, sender), daemon=True)
        self.process.start()
        sender.close()

    def _run(self, count: int, until: float, sender: Connection) -> None:
        def numbered() -> Iterator[bytes]:
            for number, data in enumerate(inputs_of(self.parser, self.first, count), self.first):
                self.at.value = number
                yield data

        sender.send(run_parser(PARSERS[self.parser], numbered(), until=until))

    def outcome(self) -> Outcome:
        """What it says at its end; where it crashed, the input is a find."""
        try:
            return self.answer.recv()
        except EOFError:
            self.process.join()
            number = self.at.value
            find = (
                f"the process ended with {self.process.exitcode}",
                next(iter(inputs_of(self.parser, number, 1))),
            )
            return Outcome(inputs=number - self.first + 1, finds={"crash": find})
        finally:
            self.process.join()
            self.answer.close()

    def end_if_stuck(self) -> None:
        if self.at.value != self.seen:
            self.seen, self.seen_at = self.at.value, time.monotonic()
        elif time.monotonic() - self.seen_at > STUCK_S:
            self.process.kill()


def add(row: Row, outcome: Outcome, taken_s: float) -> None:
    row.inputs += outcome.inputs
    row.seconds += taken_s
    row.slowest_s = max(row.slowest_s, outcome.slowest_s)
    row.peak_mb = max(row.peak_mb, outcome.grown_kb / 1000)
    row.finds += len(outcome.finds)
    for place, (text, data) in outcome.finds.items():
        print(f"\n{place}, kept as {keep(row.parser, data)}\n{text}", flush=True)


def table(rows: list[Row]) -> str:
    lines = ["| parser | inputs | seconds | slowest, s | memory, MB | finds |", "|---|---|---|---|---|---|"]
    for row in rows:
        what = f"{row.inputs} | {row.seconds:.0f} | {row.slowest_s:.2f} | {row.peak_mb:.0f} | {row.finds}"
        lines.append(f"| {row.parser} | {f'{row.missing} is not installed ||||' if row.missing else what} |")
    ran = [row for row in rows if not row.missing]
    count, seconds, finds = (sum(getattr(r, n) for r in ran) for n in ("inputs", "seconds", "finds"))
    slowest_s, peak_mb = (max((getattr(r, n) for r in ran), default=0) for n in ("slowest_s", "peak_mb"))
    last = f"{len(ran)} parsers | {count} | {seconds:.0f} | {slowest_s:.2f} | {peak_mb:.0f} | {finds}"
    return "\n".join([*lines, f"| {last} |"])


def run(rows: dict[str, Row], inputs: int, processes: int, until: float = math.inf) -> Iterator[Row]:
    """The parsers in turn, a portion each, one at a time of a parser; a row each time that it has grown."""
    running: dict[Any, Portion] = {}
    waiting = deque(row for row in rows.values() if row.inputs < inputs and import_packages(row))
    while waiting or running:
        while waiting and len(running) < processes:
            row = waiting.popleft()
            count = min(PORTION, inputs - row.inputs)
            portion = Portion(row.parser, FIRST + row.inputs, count, until)
            running[portion.answer] = portion
        for answer in wait(list(running), timeout=STUCK_S / 10):
            portion = running.pop(answer)
            row = rows[portion.parser]
            add(row, portion.outcome(), time.monotonic() - portion.began)
            if row.inputs < inputs and time.monotonic() < until:
                waiting.append(row)
            yield row
        if time.monotonic() > until:
            waiting.clear()
        for portion in running.values():
            portion.end_if_stuck()


def import_packages(row: Row) -> bool:
    """Give a parser a good input, so that what it needs is imported before the processes are forked."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            PARSERS[row.parser](seeds_of(row.parser)[0], Path(folder))
    except ModuleNotFoundError as error:
        row.missing = str(error.name)
    return not row.missing


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("parsers", nargs="*", default=[])
    arguments.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    arguments.add_argument("--processes", type=int, default=os.cpu_count())
    arguments.add_argument("--minutes", type=float, default=math.inf, help="then it stops, done or not")
    arguments.add_argument("--json", type=Path, help="file for the table, and to go on from")
    arguments.add_argument("--atheris", metavar="PARSER")
    options = arguments.parse_args()
    if options.atheris:
        return with_atheris(options.atheris)
    began = time.monotonic()
    rows = {name: Row(name) for name in PARSERS}
    if options.json and options.json.exists():
        before = [Row(**row) for row in json.loads(options.json.read_text())]
        rows |= {row.parser: row for row in before if not row.finds}
    chosen = {name: rows[name] for name in options.parsers or PARSERS}
    for _ in run(chosen, options.inputs, options.processes, began + 60 * options.minutes):
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows.values()], indent=1) + "\n")
    print(
        f"{table(list(chosen.values()))}\n\n{time.monotonic() - began:.0f} s, {options.processes} processes"
    )
    short = [row.parser for row in chosen.values() if row.inputs < options.inputs and not row.missing]
    if short:
        print(f"There was no time for all inputs of {', '.join(short)}.")
    return int(bool(short) or any(row.finds for row in chosen.values()))


def with_atheris(name: str) -> int:
    import atheris

    with atheris.instrument_imports(include=["egohieraloc"]):
        parser, folder = PARSERS[name], tempfile.TemporaryDirectory()
        parser(seeds_of(name)[0], Path(folder.name))
    corpus = [sys.argv[0], str(CORPUS / name), "-timeout=5", "-rss_limit_mb=2000"]
    atheris.Setup(corpus, lambda data: parser(data, Path(folder.name)))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
