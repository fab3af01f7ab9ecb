"""Gives every parser of files from elsewhere many broken inputs: `make fuzz`, or

    python tools/fuzz.py --inputs 100000 --jobs 2 [PARSER ...]

Each parser has a process of its own. A find (another exception than is promised, more than 5 s or 1 GB) goes
into tests/fuzz/corpus, is shown, and fails the run. `--atheris PARSER` lets coverage choose the inputs
instead, until it is stopped; atheris must be installed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def fuzz(name: str, first: int, count: int) -> tuple[str, Any, float]:
    from fuzz.runner import PARSERS, inputs_of, run_parser

    began = time.monotonic()
    return name, run_parser(PARSERS[name], inputs_of(name, first, count)), time.monotonic() - began


def main() -> int:
    from fuzz.runner import PARSERS, keep

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("parsers", nargs="*", default=[])
    arguments.add_argument("--inputs", type=int, default=100_000, help="for each parser")
    arguments.add_argument("--first", type=int, default=1000, help="number of the first input")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--atheris", metavar="PARSER")
    options = arguments.parse_args()
    if options.atheris:
        return with_atheris(options.atheris)
    finds, began = 0, time.monotonic()
    context = multiprocessing.get_context("spawn")
    print(f"{'parser':18} {'inputs':>8} {'time':>8} {'slowest':>9} {'memory':>9} finds")
    # A process for each parser: memory is counted from its start.
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        names = options.parsers or list(PARSERS)
        running = [pool.submit(fuzz, name, options.first, options.inputs) for name in names]
        for done in as_completed(running):
            name, outcome, taken_s = done.result()
            finds += len(outcome.finds)
            print(
                f"{name:18} {outcome.inputs:8} {taken_s:6.0f} s {outcome.slowest_s:7.2f} s "
                f"{outcome.grown_kb / 1000:6.0f} MB {len(outcome.finds)}",
                flush=True,
            )
            for place, (text, data) in outcome.finds.items():
                print(f"\n{place}, kept as {keep(name, data)}\n{text}", flush=True)
    print(f"{len(names)} parsers, {finds} finds, {time.monotonic() - began:.0f} s")
    return 1 if finds else 0


def with_atheris(name: str) -> int:
    import atheris

    with atheris.instrument_imports(include=["egohieraloc"]):
        from fuzz.runner import CORPUS, PARSERS
    parser = PARSERS[name]
    atheris.Setup([sys.argv[0], str(CORPUS / name), "-timeout=5", "-rss_limit_mb=2000"], parser)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
