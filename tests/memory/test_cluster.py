"""Reading on many workers: the same features as on one, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from recordings import red_square, write_recording

from egohieraloc import Localizer, Memory, Video
from egohieraloc.memory import cluster
from egohieraloc.memory.cluster import System, read_on_ray, read_segment, segments
from egohieraloc.types import VideoSource


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirteen seconds: 65 samples, three chunks."""
    return write_recording(tmp_path_factory.mktemp("walk") / "20260401_120000.mp4", 5, seconds=13)


def system_of(model: Path, cache: Path) -> System:
    return System(str(model), "cpu", "torch", 5.0, (), cache)


def same_answers(one: Memory, other: Memory) -> None:
    first, second = one.ask(red_square()), other.ask(red_square())
    assert np.array_equal(first.result.curve.raw, second.result.curve.raw)
    assert [e.path for e in one.list()] == [e.path for e in other.list()]
    for mine, theirs in zip(one.list(), other.list(), strict=True):
        slots = one.videos.thumbnail_slots(mine.id)
        assert slots == other.videos.thumbnail_slots(theirs.id)
        for slot in slots:
            assert one.thumbnail(mine, 2.0 * slot) == other.thumbnail(theirs, 2.0 * slot)


def test_a_video_is_cut_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SEGMENT_SAMPLES", 32)
    cut = segments("id", VideoSource("walk.mp4"), 65)
    assert [(s.first, s.last) for s in cut] == [(0, 32), (32, 64), (64, 65)]
    assert segments("id", VideoSource("walk.mp4"), 0) == []


def test_segments_in_any_order_give_what_one_reading_gives(
    model: Path, localizer: Localizer, walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SEGMENT_SAMPLES", 32)
    whole = Memory.open(tmp_path / "whole", localizer=localizer)
    whole.add(walk)
    system = system_of(model, tmp_path / "cache")
    apart = Memory.open(
        tmp_path / "apart", localizer=Localizer.from_pretrained(model, device="cpu", cache=system.cache)
    )
    video = Video.open(walk)
    entry = apart.begin(video)
    for segment in reversed(segments(entry.id, video.source, 65)):
        apart.videos.add_thumbnails(entry.id, read_segment(system, segment))
    monkeypatch.setattr(type(localizer.predictor), "encode", lambda *_: pytest.fail("read again"))
    apart.add(walk)
    monkeypatch.undo()
    same_answers(whole, apart)


class HereAndNow:
    """Stands in for Ray: tasks are done in this process; the last one is ready first."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, task: Callable[..., Any]) -> Any:
        run = SimpleNamespace(remote=lambda *words: partial(task, *words))
        return SimpleNamespace(options=lambda **_: run)

    def wait(self, running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return running[-1:], running[:-1]

    def get(self, task: Callable[[], Any]) -> Any:
        return task()


def test_all_segments_of_all_videos_are_read(
    model: Path, localizer: Localizer, walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SEGMENT_SAMPLES", 16)
    monkeypatch.setattr(cluster, "ray_cluster", lambda address: nullcontext(HereAndNow()))
    system = system_of(model, tmp_path / "cache")
    memory = Memory.open(
        tmp_path / "memory", localizer=Localizer.from_pretrained(model, device="cpu", cache=system.cache)
    )
    told: list[tuple[str, int, int]] = []
    videos = [walk, write_recording(tmp_path / "20260402_120000.mp4", 6)]
    read_on_ray(
        memory,
        [Video.open(path) for path in videos],
        system,
        "local",
        zone=ZoneInfo("Asia/Tokyo"),
        progress=lambda *step: told.append(step),
    )
    assert told == [("encode", done, 6) for done in range(1, 7)]
    assert [entry.start.time.utcoffset() for entry in memory.list()] == [timedelta(hours=9)] * 2
    with monkeypatch.context() as patch:
        patch.setattr(type(localizer.predictor), "encode", lambda *_: pytest.fail("read again"))
        assert all(memory.add(path).ready for path in videos)
    whole = Memory.open(tmp_path / "whole", localizer=localizer)
    for path in videos:
        whole.add(path)
    same_answers(whole, memory)


@pytest.mark.slow
def test_a_killed_workers_segment_is_done_again(
    model: Path, localizer: Localizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(cluster, "SEGMENT_SAMPLES", 32)
    videos = [write_recording(tmp_path / f"2026040{n}_120000.mp4", n, seconds=26) for n in range(1, 5)]
    system = system_of(model, tmp_path / "cache")
    memory = Memory.open(
        tmp_path / "memory", localizer=Localizer.from_pretrained(model, device="cpu", cache=system.cache)
    )
    paths = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    ray.init(num_cpus=3, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    killed: list[int] = []
    try:
        killer = threading.Thread(target=kill_one, args=(killed,))
        killer.start()
        read_on_ray(memory, [Video.open(path) for path in videos], system, "local")
        killer.join()
    finally:
        ray.shutdown()
    assert killed
    whole = Memory.open(tmp_path / "whole", localizer=localizer)
    for path in videos:
        memory.add(path)
        whole.add(path)
    same_answers(whole, memory)


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
        found.append(pid)
    return found


def kill_one(killed: list[int]) -> None:
    """Kill the first worker that is seen at work."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not killed:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                working = b"ray::read_segment" in (process / "cmdline").read_bytes()
                ours = os.getpid() in ancestors(int(process.name))
            except OSError:
                continue
            if working and ours:
                os.kill(int(process.name), signal.SIGKILL)
                killed.append(int(process.name))
                return
        time.sleep(0.01)
