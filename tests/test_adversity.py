"""Full and read-only disks, other users, links, a clock that jumps, and very long videos."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from egohieraloc import Box, Localizer, Query
from egohieraloc.config import preset
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.errors import ConfigError, DataError, OutputError
from egohieraloc.evaluation.predictions import PredictionLog, TrackAnswer
from egohieraloc.files import locked, scratch_folder
from egohieraloc.images import write_image
from egohieraloc.inference.regions import CODEWORDS, RegionMemory
from egohieraloc.inference.store import FeatureStore, trim_cache
from egohieraloc.memory.camera import Camera
from egohieraloc.memory.library import Memory
from egohieraloc.memory.watch import WatchOptions, watch
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.report.build import save_report
from egohieraloc.training.checkpoint import TrainState, load_state, save_state
from egohieraloc.training.optim import OptimConfig, build_optimizer
from egohieraloc.training.recipe import Recipe, run_recipe
from untrained import untrained_model

ROOM = "64m"
NOBODY = 65534
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")


def image(number: int) -> np.ndarray:
    rgb = np.full((48, 64, 3), 90, np.uint8)
    rgb[10:30, 3 * number : 3 * number + 20] = (230, 30, 30)
    return rgb


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    for number in range(6):
        write_image(folder / f"{number}.png", image(number))
    return folder


@dataclass(frozen=True)
class Disk:
    """A file system of its own."""

    path: Path

    def resize(self, size: str, *options: str) -> None:
        words = ["mount", "-t", "tmpfs", "-o", ",".join(["remount", f"size={size}", *options]), "tmpfs"]
        subprocess.run([*words, str(self.path)], check=True)

    @property
    def used(self) -> int:
        status = os.statvfs(self.path)
        return (status.f_blocks - status.f_bfree) * status.f_frsize

    def empty(self) -> None:
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield Disk(folder)
    subprocess.run(["umount", str(folder)], check=True)


Work = Callable[[Path], bytes]  # in a folder; what it finds


def locating(model: Path, frames: Path, *, report: bool = True) -> Work:
    query = Query(image(0), Box(3, 10, 23, 30))

    def work(folder: Path) -> bytes:
        localizer = Localizer.from_pretrained(model, device="cpu", cache=folder / "cache")
        result = localizer.locate(query, frames)
        save_report(result, folder / "out") if report else result.save(folder / "out")
        return (folder / "out" / "result.json").read_bytes()

    return work


def remembering(model: Path, frames: Path) -> Work:
    query = Query(image(0), Box(3, 10, 23, 30))

    def work(folder: Path) -> bytes:
        localizer = Localizer.from_pretrained(model, device="cpu", cache=folder / "memory" / "features")
        memory = Memory.open(folder / "memory", localizer=localizer)
        memory.add(frames)
        found = memory.ask(query).result
        memory.catalogue.close()
        assert found is not None
        return found.curve.raw.tobytes()

    return work


def watching(model: Path, frames: Path) -> Work:
    """Two segments of a camera; what they show."""

    def work(folder: Path) -> bytes:
        localizer = Localizer.from_pretrained(model, device="cpu", cache=folder / "memory" / "features")
        memory = Memory.open(folder / "memory", localizer=localizer)
        start = threading.Event()
        try:
            watch(memory, Camera(str(frames)), WatchOptions(name="hall", segment_s=0.7), _silent, start)
            return "".join(f"{entry.info} {entry.content}" for entry in memory.list()).encode()
        finally:
            memory.catalogue.close()
            assert not list(folder.rglob("*.unfinished"))

    return work


def _silent(event: object) -> None: ...


def predicting(model: Path, frames: Path) -> Work:
    track = Track.from_boxes([1, 2], [(0, 0, 5, 5), (1, 1, 6, 6)])

    def work(folder: Path) -> bytes:
        with PredictionLog(folder / "a" / "log.jsonl", {"benchmark": "vq2d"}) as log:
            for number in range(300):
                key = QueryKey("clip", str(number), "1")
                if key not in log.answers:
                    log.add(TrackAnswer(key, track, 0.5))
        return log.path.read_bytes()

    return work


def checkpointing(model: Path, frames: Path) -> Work:
    network = EgoHieraLocNet(preset("tiny"))
    state = TrainState.start(network, build_optimizer(network, OptimConfig()))

    def work(folder: Path) -> bytes:
        state.step = 7
        save_state(state, folder)
        state.step = 0
        load_state(state, folder)
        return str(state.step).encode()

    return work


WORK = {
    "locate": locating,
    "memory": remembering,
    "watch": watching,
    "predictions": predicting,
    "checkpoint": checkpointing,
}


def full_at(sizes: Callable[[int], Iterator[int]], work: Work, disk: Disk) -> int:
    """Let the disk be full at each size; how often the work failed."""
    wanted, failed = work(disk.path), 0
    for size in sizes(disk.used):
        disk.empty()
        disk.resize(str(size))
        with suppress(OutputError):
            work(disk.path)
            failed -= 1
        failed += 1
        left = [path.name for path in disk.path.rglob("*") if re.match(r"\.(?!lock$)", path.name)]
        assert left == [], f"full at {size} bytes"
        disk.resize(ROOM)
        assert work(disk.path) == wanted, f"after it was full at {size} bytes"
    return failed


@pytest.mark.parametrize("name", WORK)
def test_a_full_disk_is_told_and_leaves_no_halves(name: str, disk: Disk, model: Path, frames: Path) -> None:
    """Half-way; the next run finds room and what an undisturbed one finds."""
    work = WORK[name](model, frames)
    assert full_at(lambda used: iter([used // 2 // 4096 * 4096]), work, disk) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WORK)
def test_a_disk_that_is_full_at_any_write(name: str, disk: Disk, model: Path, frames: Path) -> None:
    """At every page of 4 kB, of which a write takes at least one."""
    work = WORK[name](model, frames)
    step = 65536 if name == "checkpoint" else 4096
    assert full_at(lambda used: iter(range(4096, used, step)), work, disk) > 10


def test_a_cache_that_may_only_be_read(disk: Disk, model: Path, frames: Path, tmp_path: Path) -> None:
    """What is stored there answers; what is not gets a clear word."""
    query = Query(image(0), Box(3, 10, 23, 30))
    localizer = Localizer.from_pretrained(model, device="cpu", cache=disk.path / "cache")
    written = localizer.locate(query, frames).curve.raw
    disk.resize(ROOM, "ro")
    assert np.array_equal(localizer.locate(query, frames).curve.raw, written)
    write_image(tmp_path / "other" / "0.png", image(3))
    with pytest.raises(OutputError, match="Give another --cache"):
        localizer.locate(query, tmp_path / "other")
    disk.resize(ROOM, "rw")


def test_links_in_the_cache_are_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    store, memory = FeatureStore.of(tmp_path / "cache", "key"), RegionMemory.of(tmp_path / "cache", "key")
    for folder, name in ((store.folder, "chunk-000000.safetensors"), (memory.folder, "manifest.txt")):
        (folder / name).symlink_to(tmp_path / "precious")
    from inference.stored import packed

    store.write(0, packed([1]))
    memory.add(0, np.zeros((CODEWORDS, 4), np.int8))
    assert store.read(0) is not None
    assert memory.has(0)
    (memory.folder / "codewords.int8").unlink()
    (memory.folder / "codewords.int8").symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match="Cannot write"):
        memory.add(2, np.zeros((CODEWORDS, 4), np.int8))
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may use."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def as_nobody(work: Callable[[], object]) -> str:
    """What became of some work that another user does."""
    process = os.fork()
    if process == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            work()
        except PermissionError:
            os._exit(13)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return {0: "done", 13: "refused"}.get(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), "failed")


@as_root
def test_what_another_user_planted_is_not_used(shared: Path) -> None:
    from inference.stored import packed

    assert as_nobody(lambda: FeatureStore.of(shared, "theirs").write(0, packed([1]))) == "done"
    with pytest.raises(OutputError, match="belongs to another user"):
        FeatureStore.of(shared, "theirs")
    assert as_nobody(lambda: RegionMemory.of(shared, "theirs")) == "done"
    with pytest.raises(OutputError, match="belongs to another user"):
        RegionMemory.of(shared, "theirs")
    store = FeatureStore.of(shared, "ours")
    store.write(0, packed([1]))
    store.folder.chmod(0o777)  # as an older version made them

    def plant() -> None:
        FeatureStore(store.folder).write(0, packed([2]))

    assert as_nobody(plant) == "done"
    assert store.read(0) is None
    assert store.read_match(0) is None
    store.write(0, packed([3]))
    found = store.read(0)
    assert found is not None
    assert found.match.ravel().tolist() == [3]


@as_root
def test_another_user_reads_nothing(shared: Path) -> None:
    from inference.stored import packed

    store, memory = FeatureStore.of(shared, "key"), RegionMemory.of(shared, "key")
    store.write(0, packed([1]))
    memory.add(0, np.zeros((CODEWORDS, 4), np.int8))
    kept = Memory.open(shared / "memory")
    with scratch_folder() as scratch:
        folders = [store.folder, memory.folder, kept.folder, Path(scratch)]
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 4
        assert [as_nobody(lambda f=folder: os.listdir(f)) for folder in folders] == ["refused"] * 4
    written = [path for path in (*store.folder.iterdir(), *memory.folder.iterdir()) if path.is_file()]
    assert [path.stat().st_mode & 0o777 for path in written] == [0o600] * 3


def test_a_clock_that_jumps(
    model: Path, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = locating(model, frames, report=False)
    wanted = work(tmp_path / "before")
    years = itertools.cycle((0.0, 3.2e8, -3.2e8, 7300.0, -7300.0))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(years))
    assert work(tmp_path / "during") == wanted
    for age_s, path in zip(years, (tmp_path / "during" / "cache").rglob("chunk-*"), strict=False):
        os.utime(path, (now() + age_s, now() + age_s))
    trim_cache(tmp_path / "during" / "cache", limit_bytes=0)
    assert work(tmp_path / "during") == wanted


def test_what_is_being_written_is_not_thrown_out_when_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from egohieraloc.files import atomic_path

    store = FeatureStore.of(tmp_path, "key")
    with atomic_path(store.folder / "chunk-000001.safetensors") as temporary:
        temporary.write_bytes(b"half")
        monkeypatch.setattr(time, "time", lambda: 9e9)
        trim_cache(tmp_path, limit_bytes=0)
        assert temporary.exists()


def test_one_run_trains_in_a_folder(tmp_path: Path) -> None:
    recipe = Recipe(optim=OptimConfig(precision="no"))  # as the other tests: one a process
    with locked(tmp_path), pytest.raises(ConfigError, match="Another run trains in"):
        run_recipe(recipe, tmp_path / "nowhere", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_run_writes_a_prediction_log(tmp_path: Path) -> None:
    path, header = tmp_path / "log.jsonl", {"benchmark": "vq2d"}
    answer = TrackAnswer(QueryKey("clip", "a", "1"), Track.empty(), 0.5)
    with PredictionLog(path, header) as log:
        log.add(answer)
        with pytest.raises(DataError, match="Another run is writing"):
            PredictionLog(path, header)
    whole = path.read_bytes()
    for cut in (3, len(whole) - 3):  # in the header, and in the answer
        path.write_bytes(whole[:cut])
        with PredictionLog(path, header) as log:
            log.add(answer)
        assert path.read_bytes() == whole


def test_the_scratch_of_killed_processes_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = os.fork()
    if process == 0:
        scratch = scratch_folder()
        Path(scratch.name, "private").touch()
        os._exit(9)
    os.waitpid(process, 0)
    assert len(list(tmp_path.iterdir())) == 1
    from egohieraloc import files

    files._swept.clear()
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(tmp_path.iterdir()) == sorted([Path(first), Path(second)])
    assert list(tmp_path.iterdir()) == []


PEAK = """
import resource, sys
from egohieraloc import Localizer
from egohieraloc.config import SearchConfig
from egohieraloc.localize import LocalizerConfig
model, video, cache = sys.argv[1:]
config = LocalizerConfig(search=SearchConfig(fps=1.0))
encoded = Localizer.from_pretrained(model, device="cpu", cache=cache, config=config).encode(video)
print(len(encoded), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_slow_video(path: Path, seconds: int) -> None:
    """A small image a second."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg4", rate=1)
        stream.width, stream.height, stream.time_base = 64, 48, Fraction(1, 1000)
        for number in range(seconds):
            frame = av.VideoFrame.from_ndarray(image(number % 14), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_is_flat_over_three_hours(tmp_path: Path, model: Path) -> None:
    peaks = []
    for minutes in (10, 180):
        write_slow_video(tmp_path / f"{minutes}.mp4", 60 * minutes)
        words = [str(model), str(tmp_path / f"{minutes}.mp4"), str(tmp_path / "cache")]
        said = subprocess.check_output([sys.executable, "-c", PEAK, *words], text=True)
        count, peak_kb = map(int, said.split())
        assert count == 60 * minutes
        peaks.append(peak_kb)
    assert peaks[1] < 1.1 * peaks[0]
