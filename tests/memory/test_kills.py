"""Killed at any moment, and many processes at once: the catalogue stays sound, nothing finished is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from recordings import write_recording

from egohieraloc import Localizer, Memory
from egohieraloc.inference.chunks import sparse_chunks
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.memory.shelf import Shelf

HERE = Path(__file__).parent
# Saves, adds, asks and watches, and tells each thing when it is finished.
WORK = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from recordings import red_square
from egohieraloc import Localizer, Memory
from egohieraloc.memory.camera import Camera
from egohieraloc.memory.watch import WatchOptions, watch
def tell(*words):
    print(*words, flush=True)
def heard(event):
    if event["event"] == "segment":
        tell("watched", event["path"])
folder = Path(sys.argv[1])
localizer = Localizer.from_pretrained(sys.argv[2], device="cpu", cache=folder / "memory" / "features")
memory = Memory.open(folder / "memory", localizer=localizer)
if "square" not in memory.objects:
    memory.objects.save("square", red_square())
tell("saved", "square")
videos = sorted(folder.glob("*.mp4"))
for path in videos:
    tell("added", memory.add(path).id)
    tell("asked", memory.ask(red_square()).question)
watch(memory, Camera(str(videos[0])), WatchOptions(name="hall", segment_s=0.5), heard, threading.Event())
tell("done")
"""
# Saves objects and thumbnails, then adds a video where one is named.
WRITE = """
import sys
from pathlib import Path
folder, model, here, name, cache, *videos = sys.argv[1:]
sys.path.insert(0, here)
from recordings import red_square
from egohieraloc.memory.shelf import Shelf
shelf = Shelf(folder)
for number in range(12):
    shelf.objects.save(f"{name} {number}", red_square())
    shelf.videos.add_thumbnails(shelf.list()[0].id, [(100 + number, 1.0, b"jpeg")])
for video in videos:
    from egohieraloc import Localizer, Memory
    localizer = Localizer.from_pretrained(model, device="cpu", cache=Path(cache))
    Memory.open(folder, localizer=localizer).add(video)
"""
# Looks and asks again and again until the file that ends it is there; sees whole entries, numbers that never
# fall, and one answer.
READ = """
import sys, time
from pathlib import Path
folder, ended, model, here, cache = sys.argv[1:]
sys.path.insert(0, here)
from recordings import red_square
from egohieraloc import Localizer, Memory
shelf = Memory.open(folder, localizer=Localizer.from_pretrained(model, device="cpu", cache=Path(cache)))
first, last, rounds = shelf.list()[0], 0, 0
answer = shelf.ask(red_square(), videos=[first])
while not Path(ended).exists() or rounds == 0:
    again = shelf.ask(red_square(), videos=[first])
    assert again.sightings == answer.sightings
    assert shelf.questions.result(again.question).to_dict() == answer.result.to_dict()
    entries, objects = shelf.list(), list(shelf.objects)
    assert len(objects) >= last
    assert all(saved.num_views == 1 for saved in objects)
    assert all(len(shelf.videos.known(entry)[0].video) for entry in entries if entry.ready)
    last, rounds = len(objects), rounds + 1
    time.sleep(0.05)
print(rounds)
"""


def start(script: str, *words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@dataclass
class Finished:
    """What processes told that they had finished."""

    told: set[tuple[str, str]] = field(default_factory=set)

    def killed(self, folder: Path, model: Path, *, after: int, delay_s: float) -> bool:
        """Whether a process that is killed some time after its `after`-th line was still at work."""
        process = start(WORK, folder, model, HERE)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        time.sleep(delay_s)
        process.kill()
        lines += process.communicate()[0].splitlines(keepends=True)
        words = [line.split() for line in lines]
        self.told |= {(kind, name) for kind, *names in words for name in names}
        return ["done"] not in words

    def of_kind(self, kind: str) -> set[str]:
        return {name for told, name in self.told if told == kind}

    def check(self, shelf: Shelf) -> None:
        """All of it is there, whole: entries, thumbnails, memory, features, questions and objects."""
        assert shelf.catalogue.check() == []
        entries = {entry.id: entry for entry in shelf.list() if entry.ready}
        assert self.of_kind("added") <= set(entries)
        assert self.of_kind("watched") <= {str(entry.path) for entry in entries.values()}
        assert self.of_kind("asked") <= {str(question.id) for question in shelf.questions.all()}
        assert all(name in shelf.objects for name in self.of_kind("saved"))
        for entry in entries.values():
            (known,) = shelf.videos.known(entry)
            store, memory = (
                FeatureStore.of(shelf.cache, known.store),
                RegionMemory.of(shelf.cache, known.store),
            )
            assert shelf.thumbnail(entry) is not None
            for number in sparse_chunks(len(known.video)):
                assert memory.has(number)
                assert store.read(number) is not None


def kill_often(folder: Path, model: Path, moments: list[tuple[int, float]], *, videos: int) -> None:
    """Kill after so many lines and seconds, each in turn."""
    for number in range(videos):
        write_recording(folder / f"2026030{number + 1}_120000.mp4", number, seconds=1)
    finished, hits = Finished(), 0
    for after, delay_s in moments:
        hits += finished.killed(folder, model, after=after, delay_s=delay_s)
        finished.check(Shelf(folder / "memory"))
    assert hits == len(moments)
    ids = {entry.id for entry in Shelf(folder / "memory").list() if entry.ready}
    assert start(WORK, folder, model, HERE).communicate()[0].endswith("done\n")
    shelf = Shelf(folder / "memory")
    finished.check(shelf)
    assert ids <= {entry.id for entry in shelf.list()}
    assert all(entry.ready for entry in shelf.list())
    assert {entry.path for entry in shelf.list()} >= set(folder.glob("*.mp4"))
    recordings = folder / "memory" / "recordings" / "hall"
    assert {e.path for e in shelf.list() if e.camera} == set(recordings.glob("*.mp4"))
    assert list(recordings.glob("*.unfinished")) == []


def test_killed_twice(tmp_path: Path, model: Path) -> None:
    """While the first video is asked, and while the third is added: what was told before is still there."""
    kill_often(tmp_path, model, [(2, 0.0), (5, 0.01)], videos=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_fifty_times(tmp_path: Path, model: Path, seed: int) -> None:
    """In two halves; after any line but the last, which is that of the last segment, at once or some time
    into the work."""
    chance = random.Random(seed)
    moments = [(chance.randint(1, 13), chance.uniform(0, 0.05)) for _ in range(25)]
    kill_often(tmp_path, model, moments, videos=6)


@pytest.mark.parametrize("added", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_writers_and_three_readers(
    tmp_path: Path, model: Path, localizer: Localizer, recordings: list[Path], added: int
) -> None:
    """Five processes at once; in the slow case both writers also add the same video."""
    folder, ended = tmp_path / "memory", tmp_path / "ended"
    Memory.open(folder, localizer=localizer).add(recordings[0])
    given = folder, model, HERE
    readers = [start(READ, folder, ended, model, HERE, localizer.cache) for _ in range(3)]
    videos = recordings[1 : 1 + added]
    writers = [start(WRITE, *given, name, localizer.cache, *videos) for name in ("one", "two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    ended.touch()
    rounds = [reader.communicate()[0] for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    assert all(int(text) > 0 for text in rounds)
    shelf = Shelf(folder)
    assert len(shelf.questions.all()) == 3 + sum(map(int, rounds))
    assert len(shelf.objects) == 24
    assert [entry.ready for entry in shelf.list()] == [True] * (1 + added)
    assert shelf.catalogue.check() == []
