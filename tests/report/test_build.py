"""All files of an answer in a folder; images of the samples: few in long videos, none where it is gone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egohieraloc.errors import OutputError
from egohieraloc.images import write_image
from egohieraloc.report import build
from egohieraloc.report.build import save_report, write_views
from egohieraloc.result import FILES, Result
from egohieraloc.types import NotFound
from egohieraloc.video.reader import Video
from made_up import SAMPLES, result, track


@pytest.fixture
def video(tmp_path: Path) -> Video:
    """A folder of images that does not say how fast they were taken."""
    for number in range(3 * SAMPLES):
        write_image(tmp_path / "frames" / f"{number:02d}.png", np.full((120, 160, 3), 7 * number, np.uint8))
    return Video.open(tmp_path / "frames", folder_fps=15)


@pytest.fixture
def answer(video: Video) -> Result:
    return result(video=video.sampled(5.0))


def embedded(report: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', report.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def test_all_files_of_an_answer(answer: Result, tmp_path: Path) -> None:
    page = save_report(answer, tmp_path / "out", notes=("A note.",))
    assert page == tmp_path / "out" / "report.html"
    assert {path.name for path in page.parent.iterdir()} == set(FILES) - {
        "query_mask.png",
        "views",
        "thumbnail.jpg",
    }
    assert len(Video.open(page.parent / "overlay.mp4").times_s) == SAMPLES
    shown = embedded(page)
    saved = json.loads((page.parent / "result.json").read_text())
    path = saved["video"]["path"]
    assert shown["result"] == saved | {"video": saved["video"] | {"path": Path(path).name}}
    assert path not in page.read_text()
    assert len([uri for uri in shown["thumbnails"] if uri]) == SAMPLES
    assert shown["overlay"].startswith("data:video/mp4;base64,")
    assert shown["notes"] == ["A note."]
    assert shown["scene"]["true_point"] is None


def test_a_saved_answer_gives_the_same_report(answer: Result, tmp_path: Path) -> None:
    first = save_report(answer, tmp_path / "first")
    second = save_report(Result.load(tmp_path / "first"), tmp_path / "second")
    assert embedded(first)["result"] == embedded(second)["result"]
    assert embedded(first)["thumbnails"] == embedded(second)["thumbnails"]


def test_all_or_nothing(answer: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OutputError("Is the disk full?")

    monkeypatch.setattr(build, "write_overlay", full)
    with pytest.raises(OutputError):
        save_report(answer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["gone", "shorter", "damaged"])
def test_the_video_is_no_longer_what_it_was(
    answer: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "gone":
        (tmp_path / "frames").rename(tmp_path / "elsewhere")
    elif what == "shorter":
        for path in sorted((tmp_path / "frames").iterdir())[-3:]:
            path.unlink()
    else:
        monkeypatch.setattr(Video, "frames", lambda *_: iter(()))
    page = save_report(answer, tmp_path / "out", notes=("A note.",))
    names = {path.name for path in page.parent.iterdir()}
    assert "overlay.mp4" not in names
    assert {"curve.png", "result.json"} <= names
    shown = embedded(page)
    assert (shown["thumbnails"], shown["overlay"]) == ([], None)
    assert shown["notes"] == [
        "A note.",
        "frames could not be read again as it was: its images are missing.",
    ]


def test_views_of_a_miss_without_samples(answer: Result, tmp_path: Path) -> None:
    """Asked before the first sample: there is no curve to draw and no frame to show."""
    nothing = replace(answer.curve, time_s=np.zeros(0), raw=np.zeros(0), smooth=np.zeros(0), intervals=())
    missed = replace(answer, track=NotFound("no sample"), curve=nothing, alternatives=(), maps=())
    empty = replace(missed, video=answer.video.first(0))
    write_views(empty, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"frames", "report.html"}


def test_the_true_place_is_shown(answer: Result, tmp_path: Path) -> None:
    write_views(answer, tmp_path, true_point_world=np.array([0.5, 2.0, 1.0]))
    shown = embedded(tmp_path / "report.html")["scene"]
    assert np.subtract(shown["true_point"], shown["place"]["point"]) == pytest.approx([0, 0, 0.1], abs=1e-3)


def test_every_sample_of_a_short_video_has_its_own(video: Video, answer: Result) -> None:
    assert len(set(build._thumbnails(video, answer))) == SAMPLES


def test_in_a_long_video_the_track_has_its_own_and_others_share(
    video: Video, answer: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(answer, track=track(7, 8, 0.9), alternatives=())
    own = build._thumbnails(video, short)
    monkeypatch.setattr(build, "MAX_IMAGES", 4)
    few = build._thumbnails(video, short)
    assert [own.index(image) for image in few] == [0, 0, 0, 3, 3, 3, 6, 7, 8, 9, 9, 9]
