"""Times for people, both ways."""

from __future__ import annotations

import pytest

from egohieraloc.clock import clock, parse_time


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [
        (0, "0:00.0"),
        (7.24, "0:07.2"),
        (7.25, "0:07.3"),
        (59.96, "1:00.0"),
        (3727.2, "1:02:07.2"),
        (-0.01, "0:00.0"),
    ],
)
def test_minutes_and_seconds(time_s: float, shown: str) -> None:
    assert clock(time_s) == shown
    assert parse_time(shown) == pytest.approx(max(time_s, 0), abs=0.051)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [("8.6", 8.6), ("8.6 s", 8.6), ("0:08", 8), ("75:00", 4500), ("1:02:07.25", 3727.25), ("-3", -3)],
)
def test_every_form_is_taken(text: str, time_s: float) -> None:
    assert parse_time(text) == pytest.approx(time_s)


@pytest.mark.parametrize(
    "text", ["", "soon", "1:60", "0:-5", "1:2:3:4", "nan", "inf", "1.5:00", ":08", "-1:00", f"{10**400}:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"in seconds \(8\.6\) or as minutes:seconds"):
        parse_time(text)
