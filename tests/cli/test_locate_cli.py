"""`egohieraloc locate` and `track` as a user types them: every kind of query, every file, every mistake."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from safetensors.numpy import save_file

from egohieraloc import __version__
from egohieraloc.cli.eval import RunOptions
from egohieraloc.images import write_image
from egohieraloc.result_schema import ResultDocument
from untrained import run_command, untrained_model

WIDTH, HEIGHT, FPS, FRAMES = 96, 64, 10, 24
ROW = {"frame", "sample", "time_s", "box", "score"}
Run = Callable[..., tuple[int, str, str]]


def image(number: int) -> np.ndarray:
    rgb = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    rgb[10:40, 2 * number : 2 * number + 30] = (230, 30, 30)
    return rgb


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files by name: a video, a folder of its frames, images, and what is none."""
    folder = tmp_path_factory.mktemp("objects")
    with av.open(str(folder / "walk.mp4"), "w") as output:
        stream = output.add_stream("libx264", rate=FPS, options={"crf": "12"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(FRAMES):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image(number), format="rgb24")))
            write_image(folder / "frames" / f"{number}.png", image(number))
        output.mux(stream.encode(None))
    whole = (folder / "walk.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(whole[: len(whole) // 5])
    (folder / "text.mp4").write_text("no video\n" * 50)
    (folder / "list.mp4").write_text("ffconcat version 1.0\nfile walk.mp4\n")
    for name in ("empty.mp4", "empty.png"):
        (folder / name).touch()
    (folder / "none").mkdir()
    write_image(folder / "one" / "0.png", image(0))
    write_image(folder / "crop.png", image(5)[10:40, 10:40])
    write_image(folder / "frame.png", image(5))
    mask = np.zeros((HEIGHT, WIDTH), bool)
    write_image(folder / "blank.png", mask)
    mask[10:40, 10:40] = True
    write_image(folder / "mask.png", mask)
    save_file({"weight": np.zeros(3, np.float32)}, folder / "foreign.safetensors")
    untrained_model(folder)
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.fixture
def run(
    objects: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command in which a name such as walk.mp4 stands for that file; exit code, output and errors."""

    def run(command: str, *words: str) -> tuple[int, str, str]:
        named = [objects.get(word, word) for word in (*command.split(), *words)]
        if "--model" not in named:
            named += ["--model", objects["tiny.safetensors"]]
        monkeypatch.setenv("EGOHIERALOC_CACHE", str(tmp_path / "cache"))
        code = run_command(named, monkeypatch)
        return code, *capsys.readouterr()

    return run


def check_schema(result: dict) -> None:
    """What docs and other programs count on; the schema itself is tested in test_result.py."""
    ResultDocument.model_validate(result)
    assert type(result["found"]) is bool
    assert type(result["score"]) is type(result["sample_fps"]) is float
    assert result["reason"] is None if result["found"] else type(result["reason"]) is str
    assert {key: type(value) for key, value in result["video"].items()} == {
        "path": str, "width": int, "height": int, "fps": float, "num_frames": int,
        "folder_fps": type(result["video"]["folder_fps"]), "start": type(None),
    }  # fmt: skip
    curve = result["curve"]
    assert set(curve) == {"frame", "time_s", "raw", "smooth", "threshold"}
    assert len(curve["time_s"]) == len(curve["raw"]) == len(curve["smooth"])
    assert type(curve["threshold"]) is float
    assert all(type(edge) is int for interval in result["intervals"] for edge in interval)
    assert len(result["alternatives"]) <= 3
    for part in result["alternatives"]:
        assert set(part) == {"score", "track"}
    assert bool(result["track"]) == result["found"]
    for row in (row for part in (result, *result["alternatives"]) for row in part["track"]):
        assert set(row) == {*ROW, "mask"}
        x1, y1, x2, y2 = row["box"]
        assert 0 <= x1 <= x2 <= result["video"]["width"]
        assert 0 <= y1 <= y2 <= result["video"]["height"]
        assert row["time_s"] == curve["time_s"][row["sample"]]


@pytest.mark.parametrize(
    "query",
    [
        "--query crop.png",
        "--query frame.png --box 10,10,30,30",
        "--query frame.png --box 10,10,30,30 --query-mask mask.png",
        "--at 0.5 --box 10,10,30,30",
        "--at 0:00.5 --box 10,10,30,30 --until 0:02",
        "--at 0.5 --box 10,10,30,30 --query-mask mask.png",
        "--query frame.png --box 10,10,30,30 --at 0.5",
        "--query crop.png --query frame.png",
        "--query crop.png --query frame.png --box 0,0,10,10 --box 10,10,30,30",
        "--at 0.5 --box 10,10,30,30 --at 1.0 --box 20,10,30,30",
    ],
)
def test_every_kind_of_query(run: Run, query: str) -> None:
    code, out, err = run(f"locate walk.mp4 {query} --json")
    assert (code, err) == (0, "")
    check_schema(json.loads(out))  # one JSON text and nothing else


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"], monkeypatch) == 0
    assert capsys.readouterr().out == f"egohieraloc {__version__}\n"


def test_all_files_come_out(run: Run, tmp_path: Path, objects: dict[str, str]) -> None:
    folder = tmp_path / "new" / "out"
    code, out, err = run("locate walk.mp4 --query crop.png --json --out", str(folder))
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert result == json.loads((folder / "result.json").read_text())
    names = {path.name for path in folder.iterdir()}
    assert names == {"result.json", "report.html", "overlay.mp4", "curve.png", "masks", "query.png"}
    with av.open(str(folder / "overlay.mp4")) as overlay:
        assert sum(1 for _ in overlay.decode(video=0)) >= len(result["track"])
    masks = sorted((folder / "masks").iterdir())
    assert [int(mask.stem) for mask in masks] == [row["frame"] for row in result["track"]]
    assert set(np.unique(cv2.imread(str(masks[0]), cv2.IMREAD_GRAYSCALE))) <= {0, 255}
    assert cv2.imread(str(folder / "curve.png")).std() > 0


def test_what_is_not_an_answer_is_not_replaced(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "masks").mkdir(parents=True)
    (own / "masks" / "hand.png").write_text("mine")
    for mine in ("nothing", "[1]", '{"mine": 1}'):
        code, out, err = run("locate walk.mp4 --query crop.png --out", str(own))
        assert (code, out) == (2, "")
        assert "Choose a new or an empty folder" in err
        assert (own / "masks" / "hand.png").read_text() == "mine"
        (own / "result.json").write_text(mine)


def test_what_is_asked_about_is_not_replaced(run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert run("locate walk.mp4 --query crop.png --out", out)[0] == 0
    overlay = (tmp_path / "out" / "overlay.mp4").read_bytes()
    mask = str(next((tmp_path / "out" / "masks").iterdir()))
    for video, query in (
        (f"{out}/overlay.mp4", "crop.png"),
        ("walk.mp4", f"{out}/query.png"),
        ("walk.mp4", mask),
    ):
        code, _, err = run(f"locate {video} --query {query} --out", out)
        assert code == 2
        assert "would be replaced by the answer" in err
    assert (tmp_path / "out" / "overlay.mp4").read_bytes() == overlay
    assert run("locate walk.mp4 --query crop.png --out", out)[0] == 0


def test_an_answer_in_words(run: Run, tmp_path: Path) -> None:
    code, out, err = run("locate walk.mp4 --query crop.png --out", str(tmp_path / "out"))
    assert (code, err) == (0, "")
    assert out.startswith("Last seen from ")
    assert out.endswith(f"Results are in {tmp_path / 'out'}.\n")


@pytest.mark.parametrize(
    ("words", "times_s", "frames"),
    [
        ("walk.mp4", [0.2 * n for n in range(12)], range(0, 24, 2)),
        ("walk.mp4 --fps native", [0.1 * n for n in range(24)], range(24)),
        ("walk.mp4 --fps 2", [0.5 * n for n in range(5)], range(0, 24, 5)),
        ("walk.mp4 --until 1.0", [0.2 * n for n in range(5)], range(0, 10, 2)),
        ("frames", [0.2 * n for n in range(24)], range(24)),
        ("frames --folder-fps 10", [0.2 * n for n in range(12)], range(0, 24, 2)),
        ("one", [0.0], range(1)),
    ],
)
def test_samples_and_times(run: Run, words: str, times_s: list[float], frames: range) -> None:
    every = "--set search.coarse_margin=1e9 --set temporal.extend_share=0.001"
    code, out, err = run(f"locate {words} --query crop.png {every} --json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    check_schema(result)
    assert result["curve"]["time_s"] == pytest.approx(times_s)
    for row in result["track"]:
        assert row["frame"] == frames[row["sample"]]


def test_a_warning_is_one_plain_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # and put back after the test
    run("--version")
    text = warnings.formatwarning("walk.mp4 ends early.", RuntimeWarning, "reader.py", 60)
    assert text == "Warning: walk.mp4 ends early.\n"


def test_a_folder_called_like_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert RunOptions(annotations=tmp_path, out=tmp_path / "out.jsonl").system.model == "mini"


def test_before_the_first_frame_nothing_was_seen(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run("locate walk.mp4 --query crop.png --json --out", str(folder))
    code, out, err = run("locate walk.mp4 --query crop.png --json --until 0 --out", str(folder))
    result = json.loads(out)
    assert (code, err, result["found"], result["track"]) == (3, "", False, [])
    assert "no sample before the query time" in result["reason"]
    # Nothing of the earlier answer is left beside it.
    left = {path.name for path in folder.iterdir()}
    assert left == {"result.json", "report.html", "query.png"}


def test_a_threshold_says_not_found(run: Run) -> None:
    code, out, _ = run("locate walk.mp4 --query crop.png --until 0")
    assert code == 3
    assert out.startswith("Not found. ")
    assert "--query PHOTO --box x,y,w,h" in out


def test_track_forward_and_backward(run: Run, tmp_path: Path) -> None:
    code, out, err = run("track walk.mp4 --box 20,10,30,30 --at 1.0")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [row["frame"] for row in rows] == list(range(11, 24))
    assert all(set(row) == {"frame", "time_s", "box", "score"} for row in rows)
    code, out, _ = run(
        "track walk.mp4 --box 20,10,30,30 --at 1.0 --backward --fps 5 --out", str(tmp_path / "t")
    )
    rows = [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert (code, out) == (0, f"Wrote {tmp_path / 't'}.\n")
    assert [row["frame"] for row in rows] == [*range(8, -1, -2), *range(12, 24, 2)]


def test_a_damaged_store_is_noticed_and_made_again(run: Run, tmp_path: Path) -> None:
    first = run("locate walk.mp4 --query crop.png --json")
    chunk, *_ = sorted(tmp_path.glob("cache/*/chunk-*"))
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-20] + bytes(20))
    assert run("locate walk.mp4 --query crop.png --json") == first
    assert chunk.read_bytes() == whole


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gone.mp4 --query crop.png", "There is no video at gone.mp4"),
        ("cut.mp4 --query crop.png", "cut.mp4 cannot be read as a video"),
        ("empty.mp4 --query crop.png", "empty.mp4 is empty (0 bytes)"),
        ("text.mp4 --query crop.png", "text.mp4 cannot be read as a video"),
        ("list.mp4 --query crop.png", "a list of other files"),
        ("none --query crop.png", "holds no images"),
        ("frames --folder-fps 0 --query crop.png", "must be a positive number of images"),
        ("walk.mp4", "Say what to look for"),
        ("walk.mp4 --at 0.5", "Say what to look for"),
        ("walk.mp4 --query crop.png --query frame.png --box 1,1,9,9", "Got 2 --query and 1 --box"),
        ("walk.mp4 --at 0.5 --at 1 --box 10,10,30,30", "Got 1 --box and 2 --at"),
        ("walk.mp4 --query empty.png", "empty.png is not an image"),
        ("walk.mp4 --query gone.png", "Cannot read the image gone.png"),
        ("walk.mp4 --query crop.png --query-mask mask.png", "A query mask must be boolean of shape (30, 30)"),
        ("walk.mp4 --query frame.png --box 10,10,30,30 --query-mask blank.png", "The query mask is empty"),
        ("walk.mp4 --query frame.png --box 200,10,30,30", "needs 2 pixels either way"),
        ("walk.mp4 --query frame.png --box 10,10,0,30", "needs 2 pixels either way"),
        ("walk.mp4 --query frame.png --box 10,10,-5,30", "written x,y,w,h"),
        ("walk.mp4 --query frame.png --box nan,10,30,30", "A box must be finite"),
        ("walk.mp4 --at nan --box 10,10,30,30", "written in seconds (8.6) or as minutes:seconds (0:08.6)"),
        ("walk.mp4 --at -1 --box 10,10,30,30", "must lie between 0 and 2.400 s"),
        ("walk.mp4 --query crop.png --at 0.5", "give --at and --box without --query"),
        ("crop.png --query crop.png", "is an image. Give a video file, or a folder of images"),
        ("walk.mp4 --at 0:90 --box 10,10,30,30", "minutes:seconds"),
        ("walk.mp4 --query crop.png --until nan", "written in seconds (8.6)"),
        ("walk.mp4 --query crop.png --until -3", "0 or more, got -3.0"),
        ("walk.mp4 --query crop.png --fps inf", "sampling rate must be a positive number"),
        ("walk.mp4 --query crop.png --set network.qam.decya=1", "did you mean 'network.qam.decay'"),
        ("walk.mp4 --query crop.png --set network.ram.width=64", "need other weights"),
        ("walk.mp4 --query crop.png --set tracker", "written section.key=value"),
        ("walk.mp4 --query crop.png --model crop.png", "cannot be read as weights"),
        ("walk.mp4 --query crop.png --model foreign.safetensors", "not a weights file of this package"),
        ("walk.mp4 --query crop.png --model huge", "No trained weights 'huge'"),
        ("walk.mp4 --query crop.png --cameras gone.json --3d", "gone.json"),
        ("walk.mp4 --query crop.png --out crop.png", "Cannot write to"),
    ],
)
def test_a_mistake_ends_in_one_clear_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    out_folder = [] if "--out" in words else ["--out", "out"]
    code, out, err = run(f"locate {words}", *out_folder)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert message in err
    left = [path for path in tmp_path.rglob("*") if path.is_file() or path.name == "out"]
    assert not left


@pytest.mark.parametrize("fps", ["0", "nan", "fast"])
def test_a_rate_that_is_none_is_refused(run: Run, fps: str) -> None:
    code, out, err = run(f"locate walk.mp4 --query crop.png --fps {fps}")
    assert (code, out) == (2, "")
    assert "--fps" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("walk.mp4 --box 200,10,30,30", "needs 2 pixels either way"),
        ("walk.mp4 --box 1,2,3", "written x,y,w,h"),
        ("walk.mp4 --box 1,2,30,30 --at 9", "must lie between"),
        ("text.mp4 --box 1,2,30,30", "cannot be read as a video"),
    ],
)
def test_mistakes_of_track(run: Run, tmp_path: Path, words: str, message: str) -> None:
    code, out, err = run(f"track {words} --out", str(tmp_path / "track.jsonl"))
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.glob("*track*"))
