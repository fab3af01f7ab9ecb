"""Killed at any moment, and many processes at once: the catalogue stays sound, nothing finished is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from recordings import red_square, write_recording

from egohieraloc import Localizer, Memory
from egohieraloc.memory.shelf import Shelf
from egohieraloc.memory.values import VideoEntry

HERE = Path(__file__).parent
VIDEOS = 6
# Adds, watches and asks without end; says when it begins.
WORK = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from recordings import red_square
from egohieraloc import Localizer, Memory
from egohieraloc.memory.camera import Camera
from egohieraloc.memory.watch import WatchOptions, watch
folder = Path(sys.argv[1])
localizer = Localizer.from_pretrained(sys.argv[2], device="cpu", cache=folder / "memory" / "features")
memory = Memory.open(folder / "memory", localizer=localizer)
print("begun", flush=True)
videos = sorted(folder.glob("*.mp4"))
memory.objects.save("square", red_square())
for path in videos:
    memory.add(path)
    memory.ask(red_square())
options = WatchOptions(name="hall", segment_s=0.5)
watch(memory, Camera(str(videos[0])), options, lambda event: None, threading.Event())
print("done", flush=True)
"""


def start(folder: Path, model: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WORK, str(folder), str(model), str(HERE)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def killed(folder: Path, model: Path, delay_s: float) -> bool:
    """Whether the process was killed before it was done."""
    process = start(folder, model)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(delay_s)
    process.kill()
    return "done" not in process.communicate()[0]


def kill_often(folder: Path, model: Path, times: int) -> None:
    for number in range(VIDEOS):
        write_recording(folder / f"2026030{number + 1}_120000.mp4", number, seconds=1)
    chance, ready, questions, hits = random.Random(0), set(), 0, 0
    for _ in range(times):
        hits += killed(folder, model, chance.uniform(0, 1.5))
        shelf = Shelf(folder / "memory")
        assert shelf.catalogue.check() == []
        now = {entry.id for entry in shelf.list() if entry.ready}
        assert ready <= now  # what was finished is there
        assert len(shelf.questions.all()) >= questions
        ready, questions = now, len(shelf.questions.all())
        shelf.catalogue.close()
        if ready and hits == times // 2:  # now and then all is forgotten, to be done again
            for entry in shelf.list():
                shelf.remove(entry)
            ready = set()
    assert hits
    process = start(folder, model)
    assert "done" in process.communicate()[0]
    shelf = Shelf(folder / "memory")
    assert shelf.catalogue.check() == []
    assert all(entry.ready for entry in shelf.list())
    assert {entry.path for entry in shelf.list()} >= set(folder.glob("*.mp4"))
    recordings = folder / "memory" / "recordings" / "hall"
    assert {e.path for e in shelf.list() if e.camera} == set(recordings.glob("*.mp4"))
    assert list(recordings.glob("*.unfinished")) == []


def test_killed_twice(tmp_path: Path, model: Path) -> None:
    kill_often(tmp_path, model, 2)


@pytest.mark.slow
def test_killed_fifty_times(tmp_path: Path, model: Path) -> None:
    kill_often(tmp_path, model, 50)


def test_two_writers_and_three_readers(tmp_path: Path, localizer: Localizer, recordings: list[Path]) -> None:
    """Each with a connection of its own; readers see whole entries only, and numbers that never fall."""
    Memory.open(tmp_path, localizer=localizer).add(recordings[0])
    trouble: list[BaseException] = []
    stop = threading.Event()

    def guarded(act: object, *words: object) -> None:
        try:
            act(*words)  # type: ignore[operator]
        except BaseException as error:
            trouble.append(error)

    def write(name: str) -> None:
        shelf = Shelf(tmp_path)
        for number in range(12):
            shelf.objects.save(f"{name} {number}", red_square())
            shelf.videos.add_thumbnails(shelf.list()[0].id, [(100 + number, 1.0, b"jpeg")])
        Memory.open(tmp_path, localizer=localizer).add(recordings[1])

    def read() -> None:
        shelf, last = Shelf(tmp_path), 0
        while not stop.is_set():
            entries: list[VideoEntry] = shelf.list()
            objects = list(shelf.objects)
            assert len(objects) >= last
            assert all(saved.num_views == 1 for saved in objects)
            assert all(shelf.videos.known(entry) for entry in entries if entry.ready)
            last = len(objects)

    writers = [threading.Thread(target=guarded, args=(write, name)) for name in ("one", "two")]
    readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(3)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert trouble == []
    shelf = Shelf(tmp_path)
    assert len(shelf.objects) == 24
    assert len(shelf.list()) == 2
    assert shelf.catalogue.check() == []
