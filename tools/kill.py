"""Kills commands at random moments and looks at what the next run makes of it: `make kill`, or

    python tools/kill.py --kills 200 --jobs 2 [JOB ...]

After a KILL or a TERM no process may be left. The same command, run again, must leave the same files as one
that was never disturbed, bit for bit, and no others; half of the runs begin with an earlier answer in place.
A new job is a row of JOBS.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
for folder in ("tests", "tests/evaluation", "tests/geometry", "tests/web"):
    sys.path.insert(0, str(ROOT / folder))

MARK = "EGOHIERALOC_KILL_RUN"  # in the environment of a run and of all that it starts
EGOHIERALOC = [sys.executable, "-c", "from egohieraloc.cli import main; main()"]
RECIPE = """
preset = "tiny"
start = "random"
[network]
input_size = 128
query_sizes = [64, 32]
[optim]
steps = 12
batch = 2
precision = "no"
log_every = 1
checkpoint_every = 3
[composer]
query_px = 64
frame_px = 128
clip_frames = 1
twin_similarity = 2.0
min_visible_px = 8.0
"""


@dataclass(frozen=True)
class Job:
    """`words(inputs, work)` is the command, `again` what resumes it; `free` matches names of files whose
    content may differ, such as logs with times in them."""

    prepare: Callable[[Path], None]
    words: Callable[[Path, Path], list[str]]
    again: tuple[str, ...] = ()
    free: str = r"$^"
    serves: bool = False


def untrained(inputs: Path) -> None:
    from untrained import untrained_model

    untrained_model(inputs)


def moving_square(inputs: Path) -> None:
    import numpy as np

    from egohieraloc.images import write_image

    untrained(inputs)
    for number in range(100):
        image = np.full((48, 64, 3), 90, np.uint8)
        image[10:30, number % 40 : number % 40 + 20] = (230, 30, 30)
        write_image(inputs / "frames" / f"{number}.png", image)


def rendered_walk(inputs: Path) -> None:
    from box_world import walk

    from egohieraloc.images import write_image

    untrained(inputs)
    for shot in walk(14):
        write_image(inputs / "frames" / f"{shot.frame.index}.png", shot.frame.rgb)


def composed_clips(inputs: Path) -> None:
    from pack_files import write_packs

    write_packs(inputs, coloured=True)
    (inputs / "recipe.toml").write_text(RECIPE)


def benchmark(inputs: Path) -> None:
    from fake_ego4d import make_tree

    untrained(inputs)
    make_tree(inputs, 3)


def short_clip(inputs: Path) -> None:
    from fake_localizer import write_clip

    untrained(inputs)
    write_clip(inputs / "walk.mp4")


def locate(inputs: Path, work: Path) -> list[str]:
    return [
        "locate", str(inputs / "frames"), "--at", "1", "--box", "5,10,20,20", "--out", str(work / "out"),
        "--cache", str(work / "cache"), "--model", str(inputs / "tiny.safetensors"), "--device", "cpu",
    ]  # fmt: skip


def locate_3d(inputs: Path, work: Path) -> list[str]:
    quick = ["--set", "sfm.max_features=600", "--set", "sfm.num_threads=1"]
    return [*locate(inputs, work), "--3d", *quick]


def train(inputs: Path, work: Path) -> list[str]:
    recipe, out = str(inputs / "recipe.toml"), str(work / "out")
    return ["train", "--config", recipe, "--data", str(inputs), "--out", out]


def evaluate(inputs: Path, work: Path) -> list[str]:
    return [
        "eval", "vq2d", "--annotations", str(inputs / "vq_val.json"), "--clips", str(inputs / "clips"),
        "--out", str(work / "out" / "vq2d.jsonl"), "--cache", str(work / "cache"), "--device", "cpu",
        "--model", str(inputs / "tiny.safetensors"), "--workers", "2",
    ]  # fmt: skip


def serve(inputs: Path, work: Path) -> list[str]:
    model = str(inputs / "tiny.safetensors")
    return ["serve", "--port", "0", "--folder", str(work / "out"), "--model", model, "--device", "cpu"]


JOBS: dict[str, Job] = {
    "locate": Job(moving_square, locate, free=r"report\.html$"),
    "locate 3D": Job(rendered_walk, locate_3d, free=r"report\.html$|/poses/"),
    "train": Job(composed_clips, train, ("--resume",), free=r"log\.jsonl$|checkpoint|events\.out"),
    "eval": Job(benchmark, evaluate, ("--resume",), free=r"results\.json$"),
    "serve": Job(short_clip, serve, serves=True),
}


@dataclass(frozen=True)
class World:
    """The inputs of a job, what an undisturbed run leaves, and how long it takes."""

    job: Job
    inputs: Path
    clean: Path
    files: dict[str, str]
    taken_s: float


def snapshot(work: Path, free: str) -> dict[str, str]:
    """Names of all files and what is in them; names of locks do not count, they stay."""
    return {
        (name := path.relative_to(work).as_posix()): "free"
        if re.search(free, name)
        else hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        for path in sorted(work.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


@contextmanager
def started(words: list[str], run: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, MARK: run, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*EGOHIERALOC, *words], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def left_running(run: str) -> list[str]:
    """Processes of a run that live on."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}={run}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if marked and (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def call(url: str, data: bytes | None = None, kind: str = "application/octet-stream") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": kind}), timeout=30) as got:
        return json.load(got)


def ask_server(process: subprocess.Popen[str], inputs: Path) -> dict[str, str]:
    """Send the clip if it is not there, ask if nobody has, and give the answers without ids and times."""
    assert process.stdout is not None
    found = re.search(r"http://[\d.:]+", process.stdout.readline())
    assert found, "the server did not start"
    url = found[0]
    video = next(iter(call(f"{url}/videos")), None) or call(
        f"{url}/videos?name=walk.mp4", (inputs / "walk.mp4").read_bytes()
    )
    queries = call(f"{url}/videos/{video['id']}/queries") or [
        call(
            f"{url}/videos/{video['id']}/queries",
            b"time_s=1&box=30,30,40,40",
            "application/x-www-form-urlencoded",
        )
    ]
    until = time.monotonic() + 300
    while (query := call(f"{url}/queries/{queries[0]['id']}"))["status"] in ("waiting", "running"):
        assert time.monotonic() < until, query
        time.sleep(0.05)
    assert query["status"] == "done", query
    return {"answer": json.dumps({**query, "id": 0, "video_id": 0, "created_at": 0}, sort_keys=True)}


def finish(job: Job, inputs: Path, work: Path, run: str, *, again: bool) -> dict[str, str]:
    """Run to the end; what is there then."""
    words = [*job.words(inputs, work), *(job.again if again else ())]
    with started(words, run, work.with_suffix(".log")) as process:
        if job.serves:
            answers = ask_server(process, inputs)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            left = [p.name for p in (work / "out" / "incoming").iterdir()]
            return {**answers, "incoming": str(left)}
        out, _ = process.communicate(timeout=900)
        assert process.returncode == 0, (
            process.returncode,
            out,
            work.with_suffix(".log").read_text()[-2000:],
        )
    return snapshot(work, job.free)


def undisturbed(name: str, root: Path) -> World:
    job, inputs, clean = JOBS[name], root / name / "inputs", root / name / "clean"
    inputs.mkdir(parents=True)
    job.prepare(inputs)
    finish(job, inputs, clean, f"{name}-warm-up", again=False)
    shutil.rmtree(clean)
    began = time.monotonic()
    files = finish(job, inputs, clean, f"{name}-clean", again=False)
    return World(job, inputs, clean, files, time.monotonic() - began)


def can_resume(job: Job, work: Path) -> bool:
    """Whether there is something that `--resume` needs."""
    names = [path.name for path in (work / "out").iterdir()] if (work / "out").exists() else []
    return any(name.startswith(("checkpoint", "vq2d.jsonl")) for name in names)


def trial(name: str, world: World, number: int, root: Path) -> str | None:
    """One kill. What was wrong, or None."""
    job, draw = world.job, random.Random(f"{name} {number}")
    run, work = f"{name}-{number}", root / name / f"run{number}"
    if not job.again and not job.serves and draw.random() < 0.5:
        shutil.copytree(world.clean / "out", work / "out")  # an earlier answer
    kind = draw.choice((signal.SIGKILL, signal.SIGTERM))
    moment_s = draw.uniform(0.0, 1.05) * world.taken_s
    with started(job.words(world.inputs, work), run, work.with_suffix(".log")) as process:
        if job.serves:
            with ThreadPoolExecutor(1) as asking:
                asked = asking.submit(ask_server, process, world.inputs)
                time.sleep(moment_s)
                process.send_signal(kind)
                asked.exception()
                process.wait(timeout=60)
        else:
            try:
                process.wait(timeout=moment_s)
            except subprocess.TimeoutExpired:
                process.send_signal(kind)
                process.wait(timeout=60)
    until = time.monotonic() + 15
    while left := left_running(run):
        if time.monotonic() > until:
            return f"still running: {left}"
        time.sleep(0.1)
    done = not job.again or not can_resume(job, work)
    if job.again and (work / "out" / "weights.safetensors").exists():
        return None  # it came to its end
    try:
        found = finish(job, world.inputs, work, f"{run}-again", again=not done)
    except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
        return f"{kind.name} at {moment_s:.2f} s, then: {error}"
    wrong = {n: (world.files.get(n), found.get(n)) for n in world.files.keys() | found.keys()}
    wrong = {n: pair for n, pair in wrong.items() if pair[0] != pair[1]}
    if wrong:
        return f"{kind.name} at {moment_s:.2f} s: {dict(list(wrong.items())[:6])}"
    shutil.rmtree(work)
    return None


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="JOB", help=", ".join(JOBS))
    arguments.add_argument("--kills", type=int, default=200, help="in all")
    arguments.add_argument("--jobs", type=int, default=2, help="runs at a time")
    options = arguments.parse_args()
    names = options.names or list(JOBS)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="egohieraloc-kill-") as folder:
        root = Path(folder)
        worlds = {}
        for name in names:
            worlds[name] = undisturbed(name, root)
            print(
                f"{name}: {worlds[name].taken_s:.1f} s undisturbed, {len(worlds[name].files)} files",
                flush=True,
            )
        with ThreadPoolExecutor(options.jobs) as pool:
            trials = {
                pool.submit(trial, name, worlds[name], number, root): f"{name} {number}"
                for number in range(-(-options.kills // len(names)))
                for name in names
            }
            for done in as_completed(trials):
                wrong = done.result()
                bad += wrong is not None
                print(f"{trials[done]}: {wrong or 'as if nothing had happened'}", flush=True)
    print(f"{len(trials) - bad} of {len(trials)} kills left nothing behind.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
