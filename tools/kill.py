"""Kills commands at random moments and looks at what the next run makes of it: `make kill`, or

    python tools/kill.py --kills 200 --jobs 2 [--first 0] [JOB ...]

After a KILL or a TERM no process may be left. The same command, run again, must leave the same files as one
that was never disturbed, bit for bit, and no others, also none among the temporary files; half of the runs of
`locate` begin with an earlier answer in place. A run that ends before its kill is tried again with an earlier
one. The commands are in `kill_jobs.py`.

Commands are forked from a process that has imported what they need, so that kills hit work and not imports.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kill_jobs import JOBS, Job, Words

MARK = "EGOHIERALOC_KILL_RUN"  # in the environment of all that a run starts
LONGEST_S = 600
PRELOADED = [
    "torch", "cv2", "av", "accelerate", "scipy.ndimage", "uvicorn", "fastapi", "torch.utils.tensorboard",
    "egohieraloc.cli.locate", "egohieraloc.cli.train", "egohieraloc.cli.eval", "egohieraloc.cli.serve",
    "egohieraloc.cli.memory", "egohieraloc.cli.watch", "egohieraloc.localize", "egohieraloc.memory.library",
    "egohieraloc.web.app",
    "egohieraloc.training.recipe", "egohieraloc.evaluation.run_vq2d", "egohieraloc.report.build",
]  # fmt: skip


@dataclass(frozen=True)
class World:
    """The inputs of a job, what an undisturbed run leaves, and how long it takes."""

    job: Job
    inputs: Path
    clean: Path
    files: dict[str, str]
    taken_s: float


@dataclass(frozen=True)
class Kill:
    """One kill: its signal, after what share of the run, and what was wrong afterwards."""

    job: str
    signal: signal.Signals
    share: float
    wrong: str | None


def run_commands(commands: list[Words], run: str, log: Path, temporary: Path) -> None:
    """In a process of its own: one command after the other."""
    os.setsid()
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ |= {MARK: run, "TMPDIR": str(temporary)}
    tempfile.tempdir = None
    for number, path in ((1, log.with_suffix(".out")), (2, log)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    from egohieraloc.cli import main

    for words in commands:
        sys.argv = ["egohieraloc", *words]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


@contextmanager
def started(commands: list[Words], run: str, work: Path) -> Iterator[Any]:
    """A run in a process that is gone at the end."""
    work.parent.mkdir(parents=True, exist_ok=True)
    log = work.with_suffix(".log")
    log.with_suffix(".out").unlink(missing_ok=True)
    process = multiprocessing.get_context("forkserver").Process(
        target=run_commands, args=(commands, run, log, work.with_suffix(".tmp"))
    )
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def left_running(run: str, session: int) -> list[str]:
    """Processes of a run that live on."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of_session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            marked = f"{MARK}={run}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if state != "Z" and (marked or int(of_session) == session):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def snapshot(work: Path, job: Job) -> dict[str, str]:
    """Names of all files and what is in them. Locks stay; logs of TensorBoard have times in their names."""
    found: dict[str, str] = {}
    for path in sorted(path for path in work.rglob("*") if path.is_file()):
        name = path.relative_to(work).as_posix()
        if not re.search(r"\.lock$|/events\.out", name):
            content = "free" if re.search(job.free, name) else digest(path, work)
            name = re.sub(job.any_name, "*", name)
            found[name] = " ".join(sorted([*found.get(name, "").split(), content]))
    return found


def digest(path: Path, work: Path) -> str:
    """Of the content, wherever the folder is; the entries in the header of a safetensors file come in any
    order."""
    data = path.read_bytes().replace(str(work).encode(), b"")
    if path.suffix == ".safetensors":
        end = 8 + int.from_bytes(data[:8], "little")
        data = json.dumps(json.loads(data[8:end]), sort_keys=True).encode() + data[end:]
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def call(url: str, data: bytes | None = None, kind: str = "application/octet-stream") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": kind}), timeout=60) as got:
        return json.load(got)


def address(process: Any, work: Path) -> str:
    """Where the server listens, as soon as it says so."""
    said = work.with_suffix(".out")
    while process.is_alive():
        found = re.search(r"http://[\d.:]+", said.read_text() if said.exists() else "")
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("the server did not start")


def ask_server(process: Any, inputs: Path, work: Path) -> dict[str, str]:
    """Send the clip if it is not there, ask if nobody has, and give the answers without ids and times."""
    url = address(process, work)
    clip, form = (inputs / "walk.mp4").read_bytes(), "application/x-www-form-urlencoded"
    video = next(iter(call(f"{url}/videos")), None) or call(f"{url}/videos?name=walk.mp4", clip)
    asking = f"{url}/videos/{video['id']}/queries"
    queries = call(asking) or [call(asking, b"time_s=1&box=30,30,40,40", form)]
    until = time.monotonic() + LONGEST_S
    while (query := call(f"{url}/queries/{queries[0]['id']}"))["status"] in ("waiting", "running"):
        assert time.monotonic() < until, query
        time.sleep(0.05)
    assert query["status"] == "done", query
    answer = {**query, "id": 0, "video_id": 0, "created_at": 0}
    return {"answer": json.dumps(answer, sort_keys=True).replace(query["id"], "").replace(video["id"], "")}


def finish(job: Job, inputs: Path, work: Path, run: str) -> dict[str, str]:
    """Run to the end; what is there then."""
    out = work / "out"
    begun = job.resume and out.exists() and any(re.search(job.resumes, path.name) for path in out.iterdir())
    commands = [[*words, *(job.resume if begun else ())] for words in job.commands(inputs, work)]
    with started(commands, run, work) as process:
        if job.serves:
            answers = ask_server(process, inputs, work)
            os.kill(process.pid, signal.SIGINT)
        process.join(LONGEST_S)
        code = process.exitcode
    assert code == 0 or job.serves, (code, work.with_suffix(".log").read_text()[-1500:])
    left = {f"temporary/{path.name}": "left" for path in work.with_suffix(".tmp").iterdir()}
    if job.serves:
        return {**answers, **left, "incoming": str(list((out / "incoming").iterdir()))}
    return {**snapshot(work, job), **left}


def undisturbed(name: str, root: Path) -> World:
    """What a job leaves when nobody kills it; it must be the same twice."""
    job, inputs, clean = JOBS[name], root / name / "inputs", root / name / "clean"
    inputs.mkdir(parents=True)
    job.prepare(inputs)
    before = finish(job, inputs, clean, f"{name}-first")
    shutil.rmtree(clean)
    began = time.monotonic()
    files = finish(job, inputs, clean, f"{name}-clean")
    assert files == before, f"{name} does not repeat: {difference(before, files)}"
    return World(job, inputs, clean, files, time.monotonic() - began)


def difference(wanted: dict[str, str], found: dict[str, str]) -> dict[str, Any]:
    pairs = {name: (wanted.get(name), found.get(name)) for name in wanted.keys() | found.keys()}
    return dict([(name, pair) for name, pair in pairs.items() if pair[0] != pair[1]][:6])


def kill_once(world: World, run: str, work: Path, number: signal.Signals, moment_s: float) -> str | None:
    """Start the job and kill it; None where it had ended, else what lived on."""
    job = world.job
    with started(job.commands(world.inputs, work), run, work) as process, ThreadPoolExecutor(1) as asking:
        if job.serves:
            asked = asking.submit(ask_server, process, world.inputs, work)
        process.join(moment_s)
        if process.exitcode is not None:
            return None
        os.kill(process.pid, number)
        process.join(60)
        session, code = process.pid, process.exitcode
        if job.serves:
            asked.exception()
    if code is None:
        return f"{number.name} did not end it"
    until = time.monotonic() + 15
    while left := left_running(run, session):
        if time.monotonic() > until:
            return f"still running: {left}"
        time.sleep(0.1)
    return ""


def trial(name: str, world: World, number: int, root: Path) -> Kill:
    """One kill, and what the next run makes of it."""
    job, draw = world.job, random.Random(f"{name} {number}")
    work, kind = root / name / f"run{number}", (signal.SIGKILL, signal.SIGTERM)[number % 2]
    earlier = not job.resume and not job.serves and draw.random() < 0.5
    share = draw.uniform(0.0, 1.0)
    lives_on = None
    while lives_on is None:
        shutil.rmtree(work, ignore_errors=True)
        if earlier and (world.clean / "out").exists():
            shutil.copytree(world.clean / "out", work / "out")
        lives_on = kill_once(world, f"{name}-{number}", work, kind, share * world.taken_s)
        share *= 0.8 if lives_on is None else 1
    if lives_on:
        return Kill(name, kind, share, lives_on)
    try:
        wrong: Any = difference(world.files, finish(job, world.inputs, work, f"{name}-{number}-again"))
    except (AssertionError, OSError) as error:
        wrong = "".join(traceback.format_exception_only(error))
    if wrong:
        return Kill(name, kind, share, str(wrong))
    shutil.rmtree(work)
    return Kill(name, kind, share, None)


def table(kills: list[Kill], seconds: float) -> str:
    rows = ["| command | KILL | TERM | the next run as if undisturbed |", "|---|---|---|---|"]
    for name in JOBS:
        mine = [kill for kill in kills if kill.job == name]
        hard = sum(kill.signal == signal.SIGKILL for kill in mine)
        good = sum(kill.wrong is None for kill in mine)
        if mine:
            rows.append(f"| `{name}` | {hard} | {len(mine) - hard} | {good} of {len(mine)} |")
    good = sum(kill.wrong is None for kill in kills)
    return "\n".join([*rows, "", f"{good} of {len(kills)} kills left nothing behind, in {seconds:.0f} s."])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="JOB", help=", ".join(JOBS))
    arguments.add_argument("--kills", type=int, default=200, help="in all")
    arguments.add_argument("--first", type=int, default=0, help="number of the first kill; others are others")
    arguments.add_argument("--jobs", type=int, default=2, help="runs at a time")
    arguments.add_argument("--keep", type=Path, help="folder to work in, which stays")
    options = arguments.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    names, began = options.names or list(JOBS), time.monotonic()
    share = options.kills / sum(JOBS[name].kills for name in names)
    kills = []
    with tempfile.TemporaryDirectory(prefix="egohieraloc-kill-") as folder:
        root = options.keep or Path(folder)
        worlds = {name: undisturbed(name, root) for name in names}
        for name, world in worlds.items():
            print(f"{name}: {world.taken_s:.1f} s undisturbed, {len(world.files)} files", flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            trials = [
                pool.submit(trial, name, worlds[name], number, root)
                for name in names
                for number in range(options.first, options.first + round(share * JOBS[name].kills))
            ]
            for done in as_completed(trials):
                kill = done.result()
                kills.append(kill)
                what = kill.wrong or "as if nothing had happened"
                print(f"{kill.job}, {kill.signal.name} after {kill.share:.2f}: {what}", flush=True)
    print(f"\n{table(kills, time.monotonic() - began)}")
    return int(any(kill.wrong for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
