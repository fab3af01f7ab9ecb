"""Gives every parser of files from elsewhere many broken inputs: `make fuzz`, or

    python tools/fuzz.py --inputs 100000 --processes 16 --minutes 9 --json fuzz.json [PARSER ...]

Inputs come in portions, each in a process of its own. A find (another exception than is promised, more than
5 s or 1 GB) goes into tests/fuzz/corpus, is shown, and fails the run; so do parsers that did not get all of
their inputs within the minutes. A parser whose packages are not installed is left out and named.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
PORTION = 5000  # inputs; a process takes several portions of any parser


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


def fuzz(portion: tuple[str, int, int, float]) -> tuple[str, Any, float]:
    """So many inputs of a parser, from the first on, until a time by the wall clock; in another process."""
    from fuzz.runner import PARSERS, inputs_of, run_parser, seeds_of

    name, first, count, until = portion
    try:
        with tempfile.TemporaryDirectory() as folder:
            PARSERS[name](seeds_of(name)[0], Path(folder))  # imports what it needs
    except ModuleNotFoundError as error:
        return name, error.name, 0.0
    began = time.monotonic()
    end = began + until - time.time()
    outcome = run_parser(PARSERS[name], inputs_of(name, first, count), until=end)
    return name, outcome, time.monotonic() - began


def add(row: Row, outcome: Any, taken_s: float) -> None:
    from fuzz.runner import keep

    if isinstance(outcome, str | None):
        row.missing = str(outcome)
        return
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


def run(names: list[str], options: argparse.Namespace) -> list[Row]:
    rows = {name: Row(name) for name in names}
    until = time.time() + 60 * options.minutes if options.minutes < math.inf else 1e12
    portions = [
        (name, options.first + done, min(PORTION, options.inputs - done), until)
        for done in range(0, options.inputs, PORTION)
        for name in names
    ]
    context = multiprocessing.get_context("spawn")
    # A new process now and then: memory is counted from its start.
    with context.Pool(options.processes, maxtasksperchild=8) as pool:
        for name, outcome, taken_s in pool.imap_unordered(fuzz, portions):
            add(rows[name], outcome, taken_s)
    return list(rows.values())


def main() -> int:
    from fuzz.runner import PARSERS

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("parsers", nargs="*", default=[])
    arguments.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    arguments.add_argument("--first", type=int, default=1000, help="number of the first input")
    arguments.add_argument("--processes", type=int, default=os.cpu_count())
    arguments.add_argument("--minutes", type=float, default=math.inf, help="then it stops, done or not")
    arguments.add_argument("--json", type=Path, help="file for the table")
    arguments.add_argument("--atheris", metavar="PARSER")
    options = arguments.parse_args()
    if options.atheris:
        return with_atheris(options.atheris)
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    rows = run(options.parsers or list(PARSERS), options)
    print(f"{table(rows)}\n\n{time.monotonic() - began:.0f} s in {options.processes} processes")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    short = [row.parser for row in rows if row.inputs < options.inputs and not row.missing]
    if short:
        print(f"There was no time for all inputs of {', '.join(short)}.")
    return int(bool(short) or any(row.finds for row in rows))


def with_atheris(name: str) -> int:
    import atheris

    with atheris.instrument_imports(include=["egohieraloc"]):
        from fuzz.runner import CORPUS, PARSERS
    parser, folder = PARSERS[name], tempfile.TemporaryDirectory()
    corpus = [sys.argv[0], str(CORPUS / name), "-timeout=5", "-rss_limit_mb=2000"]
    atheris.Setup(corpus, lambda data: parser(data, Path(folder.name)))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
