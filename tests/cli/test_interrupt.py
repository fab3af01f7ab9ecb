"""Ctrl-C at any moment: one clear line, nothing half-written, and the next run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egohieraloc import result
from egohieraloc.images import write_image
from egohieraloc.inference import store
from egohieraloc.inference.chunks import PHASES, STRETCH, all_chunks, samples_of
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models import graphs
from egohieraloc.report import draw
from untrained import run_command, untrained_model

SAMPLES = 6 * STRETCH + 4
CHUNKS = len(all_chunks(SAMPLES))
STOPPED = "Stopped. What was finished is kept; run the same command to go on.\n"


@pytest.fixture(autouse=True)
def _keyboard() -> Iterator[None]:
    """A shell's background job is deaf to Ctrl-C, and so are its children; these tests are not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    for number in range(SAMPLES):
        image = np.full((48, 64, 3), 90, np.uint8)
        image[10:30, number % 40 : number % 40 + 20] = (230, 30, 30)
        write_image(folder / f"{number}.png", image)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def words(frames: Path, model: Path, tmp_path: Path) -> list[str]:
    """The command; every sample is decoded."""
    return [
        "locate", str(frames), "--at", "1", "--box", "5,10,20,20", "--model", str(model),
        "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out"),
        "--set", "search.coarse_margin=1e9", "--set", "search.max_decoded=0",
    ]  # fmt: skip


def interrupting(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, pressing Ctrl-C at its n-th call."""
    calls = 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGINT)
        return function(*arguments, **options)

    return wrapped


def interrupted_save(call: int) -> Callable[..., None]:
    """`save_file`, which presses Ctrl-C at its n-th call and leaves half of a file."""
    calls, save_file = 0, store.save_file

    def wrapped(tensors: dict[str, np.ndarray], path: Path, metadata: dict[str, str]) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            Path(path).write_bytes(b"half")
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
            raise OSError("cut off")
        save_file(tensors, path, metadata)

    return wrapped


def stored(folder: Path) -> list[bool]:
    """Whether each file of the features in a cache is a whole chunk."""
    files = sorted(path for path in folder.glob("features-*/*") if path.is_file())
    return [FeatureStore(f.parent).read(int(f.stem.removeprefix("chunk-"))) is not None for f in files]


@pytest.mark.parametrize(
    ("owner", "name", "broken", "chunks"),
    [
        (Predictor, "encode", interrupting(Predictor.encode, 6), 5),  # reading the video
        (store, "save_file", interrupted_save(3), 2),  # keeping what is known of it
        (Predictor, "coarse", interrupting(Predictor.coarse, 2), CHUNKS // 2),  # looking
        (Predictor, "decode", interrupting(Predictor.decode, 2), CHUNKS),  # looking closely
        (result, "write_image", interrupting(result.write_image, 2), CHUNKS),  # writing the answer
        (draw, "draw_frame", interrupting(draw.draw_frame, 3), CHUNKS),
    ],
)
def test_nothing_half_written_stays_and_the_next_run_works(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    broken: Callable[..., Any],
    chunks: int,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        assert run_command(words, monkeypatch) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", STOPPED)
    assert not (tmp_path / "out").exists()
    assert stored(tmp_path / "cache") == [True] * chunks

    encoded = 0
    encode = Predictor.encode

    def counted(self: Predictor, canvases: list[np.ndarray], *rest: Any) -> Any:
        nonlocal encoded
        encoded += len(canvases)
        return encode(self, canvases, *rest)

    monkeypatch.setattr(Predictor, "encode", counted)
    assert run_command(words, monkeypatch) == 0
    sparse_first = [*range(0, CHUNKS, PHASES), *range(1, CHUNKS, PHASES)]
    assert encoded == SAMPLES - sum(len(samples_of(number, SAMPLES)) for number in sparse_first[:chunks])
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(result["curve"]["raw"]) == SAMPLES
    assert not list((tmp_path / "out").glob(".*"))


def test_graphs_that_wait_are_dropped_at_the_end(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(graphs, "stop_compiling", lambda: stopped.append(True))
    words[1] = str(tmp_path / "gone.mp4")
    assert run_command(words, monkeypatch) == 2
    assert stopped == [True]


def test_an_earlier_answer_is_left_as_it_was(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "masks").mkdir(parents=True)
    earlier = '{"curve": "earlier"}'
    (tmp_path / "out" / "result.json").write_text(earlier)
    (tmp_path / "out" / "masks" / "old.png").write_text("earlier")
    with monkeypatch.context() as patch:
        patch.setattr(draw, "draw_frame", interrupting(draw.draw_frame, 1))
        assert run_command(words, monkeypatch) == 130
    assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["masks", "old.png", "result.json"]
    assert run_command(words, monkeypatch) == 0
    assert (tmp_path / "out" / "result.json").read_text() != earlier
    assert not (tmp_path / "out" / "masks" / "old.png").exists()


@pytest.mark.parametrize(("sent", "code", "said"), [("SIGINT", 130, STOPPED), ("SIGTERM", 143, "")])
def test_a_signal_from_outside(words: list[str], tmp_path: Path, sent: str, code: int, said: str) -> None:
    """A process of its own, stopped as the shell stops it while it reads the video."""
    command = [sys.executable, "-c", "from egohieraloc.cli import main; main()", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("cache/*/chunk-*")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.Signals[sent])
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (code, "", said)
    assert not (tmp_path / "out").exists()
    assert 1 <= len(stored(tmp_path / "cache")) <= CHUNKS
    assert all(stored(tmp_path / "cache"))
