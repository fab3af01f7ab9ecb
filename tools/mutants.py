"""Break the code on purpose, one line at a time, and see that a test turns red.

    python tools/mutants.py [--jobs N] [--only WORD]

Each mutant of `mutants.toml` names a file, a text in it, what replaces the text, and the tests that must fail
then. The work is done in temporary copies; the checkout is never changed. Prints a Markdown table. A mutant
that survives, a text that is gone, code that no longer imports, or tests that fail without any mutant end the
run with 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
PACKAGE = Path("src/egohieraloc")
TIMEOUT_S = 900
PASSED, FAILED = 0, 1  # what pytest exits with


@dataclass(frozen=True)
class Mutant:
    """A fault that the named tests must notice."""

    name: str
    file: str  # below the package
    old: str
    new: str
    tests: tuple[str, ...]  # below tests/


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    verdict: str  # killed, survived, gone or broken
    seconds: float


def read_mutants(path: Path) -> list[Mutant]:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


class Copies:
    """Copies of the project, one for each job."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = folder / str(number)
            for name in COPIED:
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy2(source, copy / name)
            self._free.put(copy)

    @contextmanager
    def one(self) -> Iterator[Path]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def run_tests(copy: Path, tests: tuple[str, ...]) -> int:
    """What pytest exits with; tests that never end have failed."""
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # a mutant may have the size and the second of what it replaces
        "OMP_NUM_THREADS": "1",
    }
    paths = [f"tests/{test}" for test in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *paths]
    try:
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return FAILED
    return ended.returncode


def try_mutant(mutant: Mutant, copies: Copies) -> Outcome:
    started = time.perf_counter()
    with copies.one() as copy:
        path = copy / PACKAGE / mutant.file
        whole = path.read_text(encoding="utf-8") if path.is_file() else ""
        if whole.count(mutant.old) != 1:
            return Outcome(mutant, "gone", 0.0)
        path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            code = run_tests(copy, mutant.tests)
        finally:
            path.write_text(whole, encoding="utf-8")
    verdict = {PASSED: "survived", FAILED: "killed"}.get(code, "broken")
    return Outcome(mutant, verdict, time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="tests that run at the same time")
    parser.add_argument("--only", default="", help="mutants with this word in their file or name")
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in read_mutants(Path(__file__).with_suffix(".toml"))
        if options.only in f"{mutant.file} {mutant.name}"
    ]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies = Copies(Path(folder), options.jobs)

        def passes(test: str) -> bool:
            with copies.one() as copy:
                return run_tests(copy, (test,)) == PASSED

        tests = sorted({test for mutant in mutants for test in mutant.tests})
        red = [test for test, passed in zip(tests, pool.map(passes, tests), strict=True) if not passed]
        print("| mutant | file | verdict | s |\n|---|---|---|---|")
        survivors = 0
        for outcome in pool.map(lambda mutant: try_mutant(mutant, copies), mutants):
            mutant = outcome.mutant
            print(
                f"| {mutant.name} | `{mutant.file}` | {outcome.verdict} | {outcome.seconds:.0f} |", flush=True
            )
            survivors += outcome.verdict != "killed"
    print(f"\n{len(mutants) - survivors} of {len(mutants)} mutants were killed.")
    for test in red:
        print(f"tests/{test} fails without any mutant.", file=sys.stderr)
    return int(bool(survivors or red))


if __name__ == "__main__":
    sys.exit(main())
