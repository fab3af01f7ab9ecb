"""A report to test with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from egohieraloc.report.draw import thumbnail
from egohieraloc.report.html import Attachments, render_report
from egohieraloc.report.scene import scene_of
from made_up import SAMPLES, result


@pytest.fixture
def page() -> Callable[..., str]:
    """Makes a report; every field of the made-up answer and what comes with it can be replaced."""
    rng = np.random.default_rng(0)
    images = tuple(thumbnail(rng.integers(0, 255, (120, 160, 3), np.uint8)) for _ in range(SAMPLES))

    def made(
        thumbnails: tuple[bytes, ...] = images,
        overlay_mp4: bytes | None = None,
        notes: tuple[str, ...] = ("True error 0.03 m.",),
        **changes: Any,
    ) -> str:
        answer = result(**changes)
        extra = Attachments(
            thumbnails=thumbnails, overlay_mp4=overlay_mp4, scene=scene_of(answer), notes=notes
        )
        return render_report(answer, extra)

    return made
