"""`egohieraloc memory` and `watch` as a user types them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egohieraloc import Memory, Video
from egohieraloc.images import read_image, write_image
from egohieraloc.memory import cluster
from egohieraloc.memory.shelf import Shelf
from egohieraloc.result_schema import ResultDocument
from untrained import run_command, untrained_model

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
from recordings import image, write_recording

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory-cli")
    untrained_model(folder)
    (folder / "videos").mkdir()
    write_recording(folder / "videos" / "20260311_120000.mp4", 1, seconds=1)
    write_recording(folder / "videos" / "20260312_101530.mp4", 2, seconds=1)
    write_image(folder / "front.png", image(1, 0)[10:40, :30])
    write_image(folder / "scene.png", image(2, 3))
    (folder / "videos" / "cut.mp4").write_bytes(b"cut")
    (folder / "none").mkdir()
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(folder)

    def run(words: str) -> tuple[int, str, str]:
        if words.split()[1] in ("add", "ask") or words.startswith("watch"):
            words += " --model tiny.safetensors --device cpu"
        code = run_command(words.split(), monkeypatch)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def filled(run: Run, folder: Path) -> Path:
    """A memory of both videos, named by --memory."""
    if not (folder / "filled").exists():
        run("memory add videos/20260311_120000.mp4 videos/20260312_101530.mp4 --memory filled")
    return folder / "filled"


def test_a_folder_is_added_and_one_bad_file_does_not_stop_it(run: Run) -> None:
    code, out, err = run("memory add videos --memory new --zone UTC")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["Added", "Added"]
    assert "2026-03-12 10:15:30" in out
    assert "Not added: videos/cut.mp4 cannot be read as a video" in err
    code, out, err = run("memory add videos/20260311_120000.mp4 --memory new")
    assert (code, err) == (0, "")
    assert out.startswith("Known: ")


def test_a_saved_answer_in_a_folder_is_no_video_of_it(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "videos" / "20260312_101530.mp4", tmp_path / "walk.mp4")
    (tmp_path / "answer" / "masks").mkdir(parents=True)
    for name in ("overlay.mp4", "masks/00001.mp4"):
        shutil.copy(folder / "videos" / "20260311_120000.mp4", tmp_path / "answer" / name)
    (tmp_path / "answer" / "result.json").write_text("{}")
    code, out, err = run(f"memory add {tmp_path} --memory {tmp_path / 'memory'}")
    assert (code, err) == (0, "")
    assert [line.split("/")[-1] for line in out.splitlines()] == ["walk.mp4 (time from the file date)"]
    assert run(f"memory add {tmp_path / 'answer' / 'overlay.mp4'} --memory {tmp_path / 'memory'}")[0] == 0


def test_ask_in_words_and_as_a_result(run: Run, filled: Path) -> None:
    code, out, err = run("memory ask --memory filled --query front.png --query scene.png")
    assert (code, err) == (0, "")
    assert out.startswith("Last seen on Thursday, 12 March 2026 from 10:15:3")
    assert "  also 2026-03-11 12:00:0" in out
    code, out, err = run("memory ask --memory filled --query front.png --json --until 2026-03-12T00:00")
    document = ResultDocument.model_validate(json.loads(out))
    assert document.video.path.endswith("20260311_120000.mp4")
    assert document.video.start is not None
    code, out, err = run(
        "memory ask --memory filled --from 20260311_120000.mp4 --at 0.2 --box 0,10,30,30 --out answer "
        "--video 20260311_120000.mp4"
    )
    assert (code, err) == (0, "")
    assert "20260311_120000.mp4" in out
    assert (Path("answer") / "report.html").exists()


def test_objects_are_saved_listed_asked_and_forgotten(run: Run, filled: Path) -> None:
    assert "No object is saved" in run("memory objects --memory filled")[1]
    code, out, err = run("memory objects --memory filled --save keys --query front.png --query scene.png")
    assert (code, out) == (0, "keys: 2 images, not seen yet\n")
    code, out, err = run("memory ask --memory filled --object keys")
    assert (code, err) == (0, "")
    rows = json.loads(run("memory objects --memory filled --json")[1])
    assert rows[0]["name"] == "keys"
    assert rows[0]["last_seen"].startswith("2026-03-12T10:15:3")
    assert "No object" in run("memory objects --memory filled --remove keys")[1]


def test_list_and_remove(run: Run, filled: Path, folder: Path) -> None:
    shutil.copytree(filled, folder / "other")
    rows = json.loads(run("memory list --memory other --json")[1])
    assert [Path(row["path"]).name for row in rows] == ["20260311_120000.mp4", "20260312_101530.mp4"]
    assert {row["start_origin"] for row in rows} == {"file name"}
    code, out, _ = run(f"memory remove {rows[0]['id']} --memory other")
    assert (code, out) == (0, "Removed 20260311_120000.mp4.\n")
    assert len(run("memory list --memory other")[1].splitlines()) == 1
    assert (folder / "videos" / "20260311_120000.mp4").exists()


def test_all_videos_to_remove_are_found_before_the_first_is_removed(run: Run, filled: Path) -> None:
    code, out, err = run("memory remove 20260311_120000.mp4 nope --memory filled")
    assert (code, out) == (2, "")
    assert "no single video 'nope'" in err
    assert len(run("memory list --memory filled")[1].splitlines()) == 2


def test_an_empty_memory_says_what_to_do(run: Run) -> None:
    run("memory objects --memory empty --save square --query front.png")
    assert "egohieraloc memory add VIDEO --memory empty" in run("memory list --memory empty")[1]
    assert run("memory list --memory empty --json")[1] == "[]\n"


def test_recordings_of_a_memory_are_not_added_to_another(run: Run, folder: Path, tmp_path: Path) -> None:
    """But videos beside its catalogue are."""
    run(f"watch videos/20260312_101530.mp4 --memory {tmp_path} --name hall")
    assert len(list(tmp_path.rglob("*.mp4"))) == 1
    shutil.copy(folder / "videos" / "20260311_120000.mp4", tmp_path)
    code, out, _ = run(f"memory add {tmp_path} --memory another")
    assert code == 0
    assert [line.split("/")[-1] for line in out.splitlines()] == ["20260311_120000.mp4"]


def test_a_video_that_is_gone_is_told_and_shown(run: Run, folder: Path) -> None:
    """With its features it still answers; without them, what it is remembered by, and its thumbnail."""
    path = write_recording(folder / "20260313_090000.mp4", 4, seconds=1)
    run(f"memory add {path} --memory short")
    code, out, _ = run(
        f"memory objects --memory short --save square --from {path.name} --at 0 --box 0,10,30,30"
    )
    assert (code, out) == (0, "square: 1 image, not seen yet\n")
    path.unlink()
    assert "(the file is gone)" in run("memory list --memory short")[1]
    code, out, _ = run("memory ask --memory short --object square --out found")
    assert code == 0
    assert "is no longer there; this is from memory" in out
    assert read_image(folder / "found" / "thumbnail.jpg").shape == (64, 96, 3)
    shutil.rmtree(next((folder / "short" / "features").glob("features-*")))
    code, out, _ = run("memory ask --memory short --object square --out guess")
    assert code == 3
    assert "is no longer there; unverified, from memory, it looks most like it on Friday, 13 " in out
    assert read_image(folder / "guess" / "thumbnail.jpg").shape == (64, 96, 3)
    code, out, err = run("memory ask --memory short --object square --json")
    assert (code, out) == (2, "")
    assert "There is no whole answer to print. Not found." in err


def test_a_video_that_was_replaced_is_told_and_not_shown(run: Run, folder: Path) -> None:
    """Also by a longer one: nothing of it is in the report."""
    path = write_recording(folder / "20260314_090000.mp4", 4, seconds=1)
    run(f"memory add {path} --memory swapped")
    run(f"memory objects --memory swapped --save square --from {path.name} --at 0 --box 0,10,30,30")
    write_recording(path, 9, seconds=2)
    assert "(the file is another one now)" in run("memory list --memory swapped")[1]
    code, out, err = run("memory ask --memory swapped --object square --out swapped-answer")
    assert (code, err) == (0, "")
    assert "is no longer the video that was added; this is from memory" in out
    assert "its images are missing" in (folder / "swapped-answer" / "report.html").read_text()
    assert not (folder / "swapped-answer" / "overlay.mp4").exists()
    code, _, err = run("memory ask --memory swapped --from 20260314_090000.mp4 --at 0 --box 0,10,30,30")
    assert code == 2
    assert "was moved, deleted or replaced" in err


@pytest.mark.parametrize("rest", ["", " --json", " --video 20260311_120000.mp4"])
def test_a_video_whose_addition_was_stopped_is_named(run: Run, filled: Path, folder: Path, rest: str) -> None:
    if not (folder / "stopped").exists():
        shutil.copytree(filled, folder / "stopped")
        with Shelf(folder / "stopped").catalogue.change() as db:
            db.execute("UPDATE videos SET ready = 0")
    code, out, err = run("memory ask --memory stopped --query front.png" + rest)
    assert (code, out) == (2, "")
    assert "No video could be asked. Not asked, since adding it was stopped: " in err
    assert "20260311_120000.mp4" in err


def test_a_cluster_that_is_not_there_leaves_no_video_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = run("memory add videos/20260312_101530.mp4 --memory scaled --ray local")
    assert code == 2
    assert "needs the package 'ray'" in err
    assert json.loads(run("memory list --memory scaled --json")[1]) == []


def test_a_zone_is_that_of_videos_read_on_a_cluster_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nowhere(address: str) -> Iterator[None]:
        yield None

    monkeypatch.setattr(cluster, "ray_cluster", nowhere)
    monkeypatch.setattr(cluster, "_on_ray", lambda *_: [])
    begun: list[str] = []
    begin = Memory.begin

    def noted(memory: Memory, video: Video, **times: Any) -> Any:
        entry = begin(memory, video, **times)
        begun.append(entry.start.time.isoformat())
        return entry

    monkeypatch.setattr(Memory, "begin", noted)
    run("memory add videos/20260312_101530.mp4 --memory zoned --ray local --zone Asia/Tokyo")
    assert begun == ["2026-03-12T10:15:30+09:00"] * 2  # by the cluster's reading, and after it


def test_the_engine_of_a_memory(run: Run, filled: Path) -> None:
    """An engine can be given; without one it is the one that read the videos."""
    code, _, err = run("memory ask --memory filled --query front.png --engine torch")
    assert (code, err) == (0, "")
    assert "An engine is one of" in run("memory ask --memory filled --query front.png --engine steam")[2]


def test_watch_prints_events_as_json_lines(run: Run, folder: Path) -> None:
    run("memory objects --memory hall --save square --query front.png")
    code, out, err = run("watch videos/20260312_101530.mp4 --memory hall --segment 0.5 --name hall")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert {e["event"] for e in events} == {"segment", "seen"}
    assert [round(e["confidence"]) >= 0 for e in events if e["event"] == "seen"] == [True, True]
    assert len(json.loads(run("memory list --memory hall --json")[1])) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("memory ask --memory gone --query front.png", "There is no memory in"),
        ("memory list --memory gone", "egohieraloc memory add VIDEO --memory gone"),
        ("memory add none --memory filled", "holds neither videos nor images"),
        ("memory add gone.mp4 --memory filled --start yesterday", "A time is written as"),
        ("memory add videos --memory filled --start 2026-01-01", "--start is for one video, got 3"),
        ("memory add videos --memory filled --zone Mars", "There is no time zone 'Mars'"),
        ("memory ask --memory filled", "Say what to look for: --query IMAGE."),
        ("memory ask --memory filled --object keys --query front.png", "--object or --query, not both"),
        ("memory objects --memory filled --query front.png", "Say under which name to save it"),
        ("memory ask --memory filled --object keys", "No object is saved as 'keys'"),
        # Told before seconds are spent on the network:
        ("memory ask --memory filled --object keys --model none.safetensors", "No object is saved as 'keys'"),
        ("memory ask --memory filled --until soon --model none.safetensors", "A time is written as"),
        ("memory ask --memory filled --query front.png --until 2020-01-01 --json", "No video of the memory"),
        (
            "memory ask --memory filled --query front.png --until 2020-01-01",
            "began before 2020-01-01 00:00:00",
        ),
        ("memory ask --memory filled --query front.png --video gone", "no single video 'gone'"),
        ("memory remove gone --memory filled", "no single video 'gone'"),
        ("watch nowhere --memory hall", "neither a file nor a camera"),
        ("watch videos/20260312_101530.mp4 --memory hall --segment 0", "must be above 0"),
        ("watch videos/20260312_101530.mp4 --memory hall --keep-days nan", "must be above 0"),
        ("watch videos/20260312_101530.mp4 --memory hall --keep-gb -1", "must be above 0"),
        ("watch videos/20260312_101530.mp4 --memory hall --webhook nothing", "A webhook is an address"),
    ],
)
def test_mistakes_end_in_one_clear_line(run: Run, filled: Path, words: str, message: str) -> None:
    code, _, err = run(words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1 or "Not added" in err


def test_places_of_saved_objects_on_a_map(run: Run, filled: Path, folder: Path) -> None:
    code, _, err = run("memory map --memory filled")
    assert code != 0
    assert "No saved object has a place" in err
    lens = {"model": "PINHOLE", "width": 96, "height": 64, "params": [80, 80, 48, 32]}
    frames = [
        {"frame": i, "time_s": i / 10, "cam_from_world": [[1, 0, 0, i / 100], [0, 1, 0, 0], [0, 0, 1, 0]]}
        for i in range(10)
    ]
    (folder / "cameras.json").write_text(json.dumps({"unit": "m", "camera": lens, "frames": frames}))
    (folder / "depth").mkdir()
    for i in range(10):
        np.save(folder / "depth" / f"{i}.npy", np.full((64, 96), 2.0))
    run("memory objects --memory filled --save keys --query front.png")
    asked = "memory ask --memory filled --object keys --3d --cameras cameras.json --depth depth"
    code, out, err = run(asked)
    assert code == 2
    assert "give --video" in err
    code, out, err = run(f"{asked} --video 20260311_120000.mp4")
    assert code == 0, err
    assert "10 of 10 frames have a camera pose" in err
    assert "at the query time it is " in out
    code, out, err = run("memory map --memory filled --out places")
    assert (code, err) == (0, "")
    assert out.startswith("keys: ")
    assert " m, last seen 2026-03-11 12:00:0" in out
    stored = json.loads((folder / "places" / "map.json").read_text())
    assert [each["name"] for each in stored["objects"]] == ["keys"]
    assert stored["objects"][0]["last_seen_at"].startswith("2026-03-11T12:00:0")
    assert "keys" in (folder / "places" / "map.html").read_text()
    assert run("memory objects --memory filled --remove keys")[0] == 0


def test_the_rate_is_that_at_which_the_videos_were_read(run: Run, filled: Path) -> None:
    """So it belongs to adding them: a question takes none."""
    code, _, err = run("memory ask --memory filled --query front.png --fps 1")
    assert code == 2
    assert "No such option" in err
    run("memory add videos/20260312_101530.mp4 --memory slow --fps 2")
    document = ResultDocument.model_validate_json(run("memory ask --memory slow --query front.png --json")[1])
    assert (document.sample_fps, len(document.curve.raw)) == (2.0, 2)
