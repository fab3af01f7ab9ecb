"""A folder of images that says when each was taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.video.reader import Video


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        write_image(tmp_path / f"{number}.png", np.full((6, 8, 3), number, np.uint8))
    return tmp_path


def test_times_are_those_of_the_file(folder: Path) -> None:
    (folder / "times.txt").write_text("100.0\n100.1\n100.5\n102.0\n102.1\n")
    video = Video.open(folder)
    assert video.times_s.tolist() == [100.0, 100.1, 100.5, 102.0, 102.1]
    assert video.frame_at(101.0).index == 2
    assert video.sample_indices(1.0).tolist() == [0, 2, 3]  # at 100, 101 and 102 s
    assert video.duration_s == pytest.approx(2.1 + 2.1 / 4)
    with pytest.raises(VideoError, match=r"between 100 and 102\.625 s"):
        video.frame_at(0.0)


def test_opened_again_it_is_the_same_video(folder: Path) -> None:
    (folder / "times.txt").write_text("3 4 5 7 11")
    video = Video.open(folder, folder_fps=2.0)  # the rate gives way to the times
    again = Video.reopen(video.source)
    assert again.times_s.tolist() == video.times_s.tolist() == [3, 4, 5, 7, 11]
    assert again.content_hash == video.content_hash
    (folder / "times.txt").write_text("3 4 5 7 12")
    assert Video.open(folder).content_hash != video.content_hash


def test_a_rate_survives_reopening(folder: Path) -> None:
    video = Video.open(folder, folder_fps=12.5)
    assert Video.reopen(video.source).times_s.tolist() == video.times_s.tolist()


@pytest.mark.parametrize(("last", "error"), [("2e7", None), ("1e300", "more than a year")])
def test_pauses_of_months(folder: Path, last: str, error: str | None) -> None:
    (folder / "times.txt").write_text(f"0 1 2 3 {last}")
    if error is None:
        assert Video.open(folder).duration_s == pytest.approx(2e7 * 5 / 4)
    else:
        with pytest.raises(VideoError, match=error):
            Video.open(folder)


@pytest.mark.parametrize("text", ["", "0 1 2 3", "0 1 2 3 3", "0 1 2 3 nan", "0 1 2 3 now", "0 1 2 3 4 5"])
def test_times_that_do_not_fit(folder: Path, text: str) -> None:
    (folder / "times.txt").write_text(text)
    with pytest.raises(VideoError, match=r"times\.txt should hold"):
        Video.open(folder)
