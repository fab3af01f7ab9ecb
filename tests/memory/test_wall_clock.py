"""When a recording began: every kind of name, container and clock that was met."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from PIL import Image
from recordings import write_recording

from egohieraloc.errors import ConfigError
from egohieraloc.memory.wall_clock import parse_time, start_of, time_in_name
from egohieraloc.video.reader import Video

BERLIN = ZoneInfo("Europe/Berlin")  # in March an hour ahead of UTC, in July two
CEST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("20260312_101530", datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)),
        ("VID_20260712_101530", datetime(2026, 7, 12, 10, 15, 30, tzinfo=CEST)),
        ("VID_20260312_101530_00_001", datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)),
        ("PXL_20260312_101530123", datetime(2026, 3, 12, 10, 15, 30, 123000, tzinfo=UTC)),
        ("2026-03-12T10:15:30Z", datetime(2026, 3, 12, 10, 15, 30, tzinfo=UTC)),
        ("2026-03-12 10.15.30", datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)),
        ("2026-03-12T10-15-30+0200", datetime(2026, 3, 12, 10, 15, 30, tzinfo=CEST)),
        ("2026_0312_101530_001", datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)),
        ("Screen Recording 2026-03-12 at 10.15.30", datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)),
        ("GX010123", None),
        ("VID-20260312-WA0001", None),  # a day is not a time
        ("20261312_101530", None),  # no such month
        ("120260312_101530", None),  # digits of something else
        ("kitchen", None),
    ],
)
def test_a_time_in_a_name(name: str, wanted: datetime | None) -> None:
    assert time_in_name(name, BERLIN) == wanted


@pytest.mark.parametrize("name", ["20260312T091530.000Z", "PXL_20260312_091530123"])
def test_a_time_in_utc_is_told_as_clocks_showed_it(name: str) -> None:
    found = time_in_name(name, BERLIN)
    assert found is not None
    assert f"{found:%H:%M:%S %z}" == "10:15:30 +0100"


def test_a_time_without_a_zone_is_this_machines() -> None:
    found = time_in_name("20260312_101530")
    assert found == datetime(2026, 3, 12, 10, 15, 30).astimezone()
    assert found is not None
    assert found.tzinfo is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clocks")


def began(path: Path) -> tuple[datetime, str]:
    start = start_of(Video.open(path), zone=BERLIN)
    return start.time, start.origin


def test_what_is_given_comes_first(folder: Path) -> None:
    video = Video.open(write_recording(folder / "20260312_101530.mp4", seconds=0.3))
    start = start_of(video, datetime(2020, 1, 1), zone=BERLIN)
    assert (start.time, start.origin) == (datetime(2020, 1, 1, tzinfo=BERLIN), "given")


def test_a_name_comes_before_the_container(folder: Path) -> None:
    """Many phones write `creation_time` when the recording ends."""
    tags = {"creation_time": "2026-03-12T09:20:00.000000Z"}
    path = write_recording(folder / "VID_20260312_101530.mp4", seconds=0.3, tags=tags)
    assert began(path) == (datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN), "file name")


def test_the_container_tells(folder: Path) -> None:
    tags = {"creation_time": "2026-03-12T09:20:00.000000Z"}
    path = write_recording(folder / "kitchen.mp4", seconds=0.3, tags=tags)
    assert began(path) == (datetime(2026, 3, 12, 9, 20, tzinfo=UTC), "container")
    apple = tags | {"com.apple.quicktime.creationdate": "2026-03-12T10:15:30+0100"}
    path = write_recording(folder / "apple.mp4", seconds=0.3, tags=apple)
    assert began(path) == (datetime(2026, 3, 12, 9, 15, 30, tzinfo=UTC), "container")


def test_gopro_writes_local_time_and_calls_it_utc(folder: Path) -> None:
    tags = {"creation_time": "2026-03-12T10:15:30.000000Z", "handler_name": "GoPro AVC"}
    path = write_recording(folder / "GX010007.mp4", seconds=0.3, tags=tags)
    assert began(path) == (datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN), "container")


@pytest.mark.parametrize("stored", ["1970-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.000000"])
def test_a_clock_that_was_never_set_tells_nothing(folder: Path, stored: str) -> None:
    path = write_recording(folder / "unset.mp4", seconds=0.3, tags={"date": stored})
    assert began(path)[1] == "file date"


def test_the_file_date_is_the_end(folder: Path) -> None:
    path = write_recording(folder / "plain.mp4", seconds=0.5)
    written = datetime(2026, 3, 12, 10, 15, 30, tzinfo=UTC)
    os.utime(path, (written.timestamp(), written.timestamp()))
    assert began(path) == (written - timedelta(seconds=0.5), "file date")


def test_chapters_of_a_recording_follow_each_other(folder: Path) -> None:
    """GoPro cuts a recording into GX01nnnn, GX02nnnn ...; all say when the first began."""
    tags = {"creation_time": "2026-03-12T09:20:00.000000Z"}
    for chapter, seconds in ((1, 0.4), (2, 0.3), (3, 0.2)):
        write_recording(folder / f"GX0{chapter}0042.mp4", seconds=seconds, tags=tags)
    first = datetime(2026, 3, 12, 9, 20, tzinfo=UTC)
    starts = [began(folder / f"GX0{chapter}0042.mp4")[0] - first for chapter in (1, 2, 3)]
    assert [round(s.total_seconds(), 6) for s in starts] == [0.0, 0.4, 0.7]


def test_a_folder_of_photographs(folder: Path) -> None:
    images = folder / "walk"
    images.mkdir()
    exif = Image.Exif()
    exif[0x0132] = "2026:03:12 10:15:30"
    Image.new("RGB", (32, 24)).save(images / "1.jpg", exif=exif)
    assert began(images) == (datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN), "image")


def test_times_that_people_write() -> None:
    assert parse_time("2026-03-12T10:15:30", BERLIN) == datetime(2026, 3, 12, 10, 15, 30, tzinfo=BERLIN)
    assert parse_time("2026-03-12 10:15Z") == datetime(2026, 3, 12, 10, 15, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"2026-03-12T10:15:30.*got 'yesterday'"):
        parse_time("yesterday")
    for text in ("9999-12-31T23:59:59", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59"):
        with pytest.raises(ConfigError, match="A time is written as"):
            parse_time(text, ZoneInfo("America/New_York"))
