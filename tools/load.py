"""Puts the page under load and measures it: `make load`, or

    python tools/load.py --clients 30 --seconds 180 --bombs 44 [--plot soak.png]

Clients open the page, list, look at frames and ask, while bursts of image bombs arrive. It fails at any
answer of 500 or above, or when the 95th percentile of the page's own requests is above 0.3 s. Memory and open
files of the server and its children are sampled each second; `--plot` draws them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
for folder in ("tests", "tests/web"):
    sys.path.insert(0, str(ROOT / folder))

START = "from egohieraloc.cli import main; main()"
OWN = ("/", "/about", "/videos", "/static/page.js", "/static/page.css")  # what the page itself needs
LIMIT_P95_S = 0.3


@dataclass
class Measured:
    """What all clients saw."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    own_s: list[float] = field(default_factory=list)
    usage: list[tuple[float, float, int]] = field(default_factory=list)  # time, MB, open files
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, status: int, taken_s: float) -> None:
        with self.lock:
            self.statuses[kind, status] += 1
            if kind == "own":
                self.own_s.append(taken_s)

    def table(self) -> str:
        """Answers by kind of request and status, and what the server took."""
        rows = ["| request | status | answers |", "|---|---|---|"]
        rows += [f"| {kind} | {status} | {n} |" for (kind, status), n in sorted(self.statuses.items())]
        memory, files = zip(*((memory, files) for _, memory, files in self.usage), strict=True)
        half = len(memory) // 2
        growth = max(memory[half:]) - max(memory[: half or 1]), max(files[half:]) - max(files[: half or 1])
        return "\n".join(
            [
                *rows,
                "",
                f"p95 of the page's own requests: {self.p95_s:.3f} s. With its processes the server took at "
                f"most {max(memory):.0f} MB and {max(files)} open files; the second half of the time "
                f"{growth[0]:+.0f} MB and {growth[1]:+d} files.",
            ]
        )

    @property
    def p95_s(self) -> float:
        return sorted(self.own_s)[int(0.95 * len(self.own_s))] if self.own_s else float("inf")


def call(url: str, data: bytes | None = None, kind: str = "application/octet-stream") -> tuple[int, bytes]:
    try:
        request = urllib.request.Request(url, data, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""  # hung up on


def form(image: bytes) -> tuple[bytes, str]:
    head = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    return head + image + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"


def client(url: str, video: str, measured: Measured, until: float, seed: int) -> None:
    draw = random.Random(seed)
    ask = f"{url}/videos/{video}/queries"
    while time.monotonic() < until:
        began = time.monotonic()
        choice = draw.random()
        if choice < 0.75:
            kind, (status, _) = "own", call(url + draw.choice((*OWN, f"/videos/{video}/queries")))
        elif choice < 0.95:
            kind, (status, _) = "frame", call(f"{url}/videos/{video}/frame?time_s={draw.uniform(0, 3.9):.2f}")
        elif choice < 0.98:
            words = b"time_s=1&box=30,30,40,40"
            kind, (status, _) = "ask", call(ask, words, "application/x-www-form-urlencoded")
        else:
            kind, (status, _) = "junk", call(f"{url}/videos?name=x", draw.randbytes(5000))
        measured.add(kind, status, time.monotonic() - began)
        time.sleep(draw.uniform(0, 0.3))


def bombs(url: str, video: str, measured: Measured, until: float, count: int) -> None:
    from hostile import lying_png, png_bomb

    bodies = [form(png_bomb(20_000, 20_000)), form(png_bomb(8000, 8000)), form(lying_png())]

    def send(number: int) -> None:
        began = time.monotonic()
        status, _ = call(f"{url}/videos/{video}/queries", *bodies[number % len(bodies)])
        measured.add("bomb", status, time.monotonic() - began)

    while time.monotonic() < until:
        burst = [threading.Thread(target=send, args=(number,)) for number in range(count)]
        for thread in burst:
            thread.start()
        for thread in burst:
            thread.join()
        time.sleep(5)


def watch(process: int, measured: Measured, until: float) -> None:
    began = time.monotonic()
    while time.monotonic() < until:
        memory, files = 0.0, 0
        for one in family(process):
            try:
                pages = int(Path(f"/proc/{one}/statm").read_text().split()[1])
                memory += pages * os.sysconf("SC_PAGE_SIZE") / 1e6
                files += len(list(Path(f"/proc/{one}/fd").iterdir()))
            except OSError:
                continue
        measured.usage.append((time.monotonic() - began, memory, files))
        time.sleep(1)


def family(process: int) -> list[int]:
    """A process and all it has started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(
                int(path.parent.name)
            )
        except OSError:
            continue
    found = [process]
    for one in found:
        found += parents.get(one, [])
    return found


def plot(path: Path, usage: list[tuple[float, float, int]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, sharex=True)
    times, memory, files = zip(*usage, strict=True)
    upper.plot(times, memory)
    upper.set_ylabel("memory, MB")
    lower.plot(times, files)
    lower.set(xlabel="time, s", ylabel="open files")
    figure.savefig(path)


def put_under_load(url: str, process: int, clip: bytes, options: Any) -> Measured:
    import json

    status, body = call(f"{url}/videos?name=walk.mp4", clip)
    assert status == 201, body
    video, measured = json.loads(body)["id"], Measured()
    until = time.monotonic() + options.seconds
    threads = [
        threading.Thread(target=client, args=(url, video, measured, until, n)) for n in range(options.clients)
    ]
    threads.append(threading.Thread(target=bombs, args=(url, video, measured, until, options.bombs)))
    threads.append(threading.Thread(target=watch, args=(process, measured, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return measured


def main() -> int:
    from fake_localizer import write_clip

    from untrained import untrained_model

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--clients", type=int, default=30)
    arguments.add_argument("--seconds", type=float, default=180)
    arguments.add_argument("--bombs", type=int, default=44, help="in a burst")
    arguments.add_argument("--plot", type=Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="egohieraloc-load-") as folder:
        model = untrained_model(Path(folder))
        place = ["--port", "0", "--folder", f"{folder}/page"]
        words = ["serve", *place, "--model", str(model), "--device", "cpu"]
        process = subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\d.:]+", process.stdout.readline())
            assert found, "the server did not start"
            clip = write_clip(Path(folder) / "walk.mp4").read_bytes()
            measured = put_under_load(found[0], process.pid, clip, options)
        finally:
            process.terminate()
            process.wait()
    print(measured.table())
    if options.plot:
        plot(options.plot, measured.usage)
    broken = sum(count for (_, status), count in measured.statuses.items() if status >= 500 or status == 0)
    return 1 if broken or measured.p95_s > LIMIT_P95_S else 0


if __name__ == "__main__":
    sys.exit(main())
