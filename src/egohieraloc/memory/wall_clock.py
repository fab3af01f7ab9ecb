"""When a recording began, by the wall clock: given, told by its name or its container, or by the file's date.

Times without a zone are those of `zone`, by default this machine's. A name comes before `creation_time`,
because many phones write that field when a recording ends.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from egohieraloc.errors import ConfigError
from egohieraloc.video.aria import AriaRecording
from egohieraloc.video.container import tags_of
from egohieraloc.video.folder import Folder
from egohieraloc.video.reader import Video

Origin = Literal["given", "file name", "container", "image", "file date"]
# 20260312_101530, VID_..., PXL_..._101530123, 2026-03-12T10:15:30Z, 2026-03-12 at 10.15.30, 2026_0312_101530
IN_NAME = re.compile(
    r"(?<!\d)((?:19|20)\d\d)[-_.]?(\d\d)[-_.]?(\d\d)(?:[-_ T.]{1,3}| at )(\d\d)[-_.:]?(\d\d)[-_.:]?(\d\d)"
    r"(?:[.,]?(\d{1,6}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
CHAPTER = re.compile(r"^(G[HX])(\d\d)(\d{4})$", re.IGNORECASE)  # GoPro: chapter and number of a recording
# Of a camera: earlier ones are clocks that were never set, and what follows later ones has no date.
YEARS = range(1990, 9000)
EXIF_TIME, EXIF_BLOCK, EXIF_ORIGINAL, EXIF_OFFSET = 0x0132, 0x8769, 0x9003, 0x9011


@dataclass(frozen=True)
class Start:
    """When a recording began, and how that is known."""

    time: datetime  # with a zone
    origin: Origin


def aware(time: datetime, zone: tzinfo | None = None) -> datetime:
    """The time with a zone: its own, else `zone`, else this machine's. UTC says when, but not what the clocks
    showed, so it gives way to these too."""
    if time.tzinfo == UTC:
        return time.astimezone(zone)
    if time.tzinfo is not None:
        return time
    return time.replace(tzinfo=zone) if zone else time.astimezone()


def parse_time(text: str, zone: tzinfo | None = None) -> datetime:
    """A date and time as people write it: ISO 8601, with or without a zone."""
    try:
        time = datetime.fromisoformat(text.strip())
        if not 1 < time.year < YEARS.stop:
            raise ValueError(f"the year {time.year}")
        return aware(time, zone)
    except ValueError as error:
        raise ConfigError(
            f"A time is written as 2026-03-12T10:15:30, with +01:00 or Z behind it for a zone, got '{text}'."
        ) from error


def start_of(video: Video, given: datetime | None = None, *, zone: tzinfo | None = None) -> Start:
    """When a video began, from the best that is known of it."""
    if given is not None:
        return Start(aware(given, zone), "given")
    named = time_in_name(video.path.stem if video.path.is_file() else video.path.name, zone)
    if named is not None:
        return Start(named, "file name")
    if video.path.is_dir():
        shot = _exif_time(video, zone)
        if shot is not None:
            return Start(shot, "image")
    else:
        stored = _chapter_start(video, zone) or _stored_start(video, zone)
        if stored is not None:
            return Start(stored, "container")
    written = datetime.fromtimestamp(video.path.stat().st_mtime).astimezone(zone)
    return Start(written - timedelta(seconds=video.duration_s), "file date")


def time_in_name(name: str, zone: tzinfo | None = None) -> datetime | None:
    """The date and time in a file's name, None where there is none. Google's PXL_ names are in UTC."""
    for found in IN_NAME.finditer(name):
        *numbers, fraction, offset = found.groups()
        microsecond = int((fraction or "0").ljust(6, "0"))
        with suppress(ValueError):
            year, month, day, hour, minute, second = map(int, numbers)
            time = datetime(year, month, day, hour, minute, second, microsecond)
            if not offset and name.upper().startswith("PXL_"):
                offset = "Z"
            return aware(datetime.fromisoformat(f"{time.isoformat()}{offset or ''}"), zone)
    return None


def _stored_start(video: Video, zone: tzinfo | None) -> datetime | None:
    """What the container says. GoPro's cameras write local time and call it UTC."""
    if isinstance(video.backend, AriaRecording):
        began = video.backend.started_at
        return began and aware(began, zone)
    tags = tags_of(video.path)
    for name in ("com.apple.quicktime.creationdate", "creation_time", "date_utc", "date"):
        with suppress(KeyError, ValueError):
            time = datetime.fromisoformat(tags[name].strip())
            if time.year not in YEARS:
                continue
            if name == "creation_time" and "gopro" in tags.get("handler_name", "").lower():
                time = time.replace(tzinfo=None)
            return aware(time, zone)
    return None


def _chapter_start(video: Video, zone: tzinfo | None) -> datetime | None:
    """A later chapter of a GoPro recording begins where those before it end, where they are at hand."""
    found = CHAPTER.match(video.path.stem)
    if found is None or int(found[2]) < 2:
        return None
    earlier = [
        video.path.with_name(f"{found[1]}{number:02d}{found[3]}{video.path.suffix}")
        for number in range(1, int(found[2]))
    ]
    if not all(path.is_file() for path in earlier):
        return None
    chapters = [Video.open(path) for path in earlier]
    first = _stored_start(chapters[0], zone)
    return first and first + timedelta(seconds=sum(chapter.duration_s for chapter in chapters))


def _exif_time(video: Video, zone: tzinfo | None) -> datetime | None:
    """When the first image of a folder was taken."""
    from PIL import Image

    if not isinstance(video.backend, Folder):
        return None
    with suppress(OSError, ValueError), Image.open(video.backend.images[0]) as image:
        exif = image.getexif()
        block = exif.get_ifd(EXIF_BLOCK)
        written = block.get(EXIF_ORIGINAL) or exif.get(EXIF_TIME)
        time = datetime.strptime(str(written), "%Y:%m:%d %H:%M:%S")
        offset = block.get(EXIF_OFFSET)
        return aware(datetime.fromisoformat(f"{time.isoformat()}{offset}") if offset else time, zone)
    return None
