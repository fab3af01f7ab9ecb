"""One parser against many inputs: what it raised, how long it took, how much memory."""

from __future__ import annotations

import hashlib
import itertools
import math
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mutations import mutated
from parsers import CORPUS, PARSERS, Parser

MAX_S, MAX_MEMORY_KB = 5.0, 1_000_000  # for an input; for the process, beyond what it had at the start


class TooSlowError(BaseException):
    """An input took too long. Not an Exception: no parser may catch it."""


@dataclass
class Outcome:
    """What became of the inputs of a parser."""

    inputs: int = 0
    slowest_s: float = 0.0
    grown_kb: int = 0
    finds: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # by the place in the code


def seeds_of(name: str) -> list[bytes]:
    """The corpus of a parser: good files, and inputs that once were a find."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def inputs_of(name: str, first: int, count: int) -> Iterable[bytes]:
    seeds = seeds_of(name)
    return (mutated(seeds, number) for number in range(first, first + count))


def run_parser(parser: Parser, inputs: Iterable[bytes], *, until: float = math.inf) -> Outcome:
    """Give all inputs to a parser, or as many as it can take until then (`time.monotonic`)."""
    outcome, before_kb = Outcome(), _memory_kb()
    previous = signal.signal(signal.SIGALRM, _too_slow)
    try:
        # In memory where that can be: what counts is the parser, not the disk.
        shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=shared) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for data in itertools.takewhile(lambda _: time.monotonic() < until, inputs):
                _run_one(parser, data, Path(folder), outcome)
                outcome.grown_kb = max(outcome.grown_kb, _memory_kb() - before_kb)
                if outcome.grown_kb > MAX_MEMORY_KB:
                    outcome.finds["memory"] = f"{outcome.grown_kb} kB", data
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return outcome


def _run_one(parser: Parser, data: bytes, folder: Path, outcome: Outcome) -> None:
    began = time.thread_time()
    signal.setitimer(signal.ITIMER_REAL, 4 * MAX_S)  # on a busy machine; what counts is the time to compute
    try:
        parser(data, folder)
    except (Exception, TooSlowError) as error:
        outcome.finds.setdefault(_place(error), ("".join(traceback.format_exception(error)), data))
    signal.setitimer(signal.ITIMER_REAL, 0)
    taken_s = time.thread_time() - began
    outcome.slowest_s = max(outcome.slowest_s, taken_s)
    outcome.inputs += 1
    if taken_s > MAX_S:
        outcome.finds.setdefault("time", (f"{taken_s:.1f} s", data))


def keep(name: str, data: bytes) -> Path:
    """Add a find to the corpus."""
    path = CORPUS / name / f"found-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
    path.write_bytes(data)
    return path


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.name}"


def _memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _too_slow(number: int, frame: FrameType | None) -> Any:
    raise TooSlowError


__all__ = ["CORPUS", "PARSERS", "Outcome", "Parser", "inputs_of", "keep", "run_parser", "seeds_of"]
