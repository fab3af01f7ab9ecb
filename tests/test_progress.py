"""Progress bars: seen on a terminal, silent elsewhere."""

from __future__ import annotations

import pytest

from egohieraloc.progress import progress_bars


def count() -> None:
    with progress_bars() as progress:
        for done in range(4, 11):
            progress("look", done, 10)
        progress("vq2d", 2, 5)


def test_a_terminal_shows_a_bar_for_every_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    count()
    out, shown = capsys.readouterr()
    assert out == ""
    assert all(word in shown for word in ("Searching", "10/10", "vq2d", "2/5"))


def test_elsewhere_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    count()
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars(enabled=False) as progress:
        progress("look", 1, 2)
    assert capsys.readouterr() == ("", "")
