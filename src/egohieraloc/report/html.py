"""The report: one HTML file that shows the answer, needs no network and opens from disk.

The page holds one JSON value: `result` as in result.json, and what that leaves out: `thumbnails` (one per
sample, null: as the one before; empty: the video is gone), `query` (its image), `overlay`, `scene`, `notes`
and `timings_s`. The scripts in `templates/` put it in place as text or image, so that no name becomes markup.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from egohieraloc.query import Query
from egohieraloc.report.draw import thumbnail
from egohieraloc.report.scene import Scene
from egohieraloc.result import Result
from egohieraloc.types import Box

SCRIPTS = ("tools.js", "answer.js", "marks.js", "curve.js", "scene.js", "report.js")  # imported ones first
QUERY_WIDTH_PX = 480
QUERY_MARGIN = 0.6  # of the box's longer side, shown around it


@dataclass(frozen=True, eq=False, kw_only=True)
class Attachments:
    """What a report shows besides the result itself."""

    thumbnails: tuple[bytes, ...] = ()  # a JPEG per sample, or none at all
    overlay_mp4: bytes | None = None
    scene: Scene | None = None
    notes: tuple[str, ...] = ()  # plain sentences under the answer, such as the true error of the demo


def render_report(result: Result, attachments: Attachments) -> str:
    """The page as text."""
    if len(attachments.thumbnails) not in (0, len(result.video)):
        raise ValueError(
            f"Wanted a thumbnail for each of {len(result.video)} samples, got {len(attachments.thumbnails)}"
        )
    data = json.dumps(_payload(result, attachments), allow_nan=False, separators=(",", ":"))
    return filled_page("report.html", SCRIPTS, data)


def filled_page(name: str, scripts: Sequence[str], data: str) -> str:
    """A template with the style, its scripts and the JSON text they show."""
    page = _template(name)
    parts = {
        "{{style}}": _template("report.css"),
        "{{script}}": "".join(_without_modules(_template(script)) for script in scripts),
        "{{data}}": _script_safe(data),
    }
    for mark, text in parts.items():
        before, _, after = page.partition(mark)
        page = before + text + after
    return page


def _payload(result: Result, attachments: Attachments) -> dict[str, Any]:
    """All the page shows, as JSON values; the border to the script."""
    shown = result.to_dict()
    shown["video"]["path"] = Path(shown["video"]["path"]).name  # a page is passed on; its folder is private
    return {
        "result": shown,
        "thumbnails": [
            None if jpeg is before else _uri("image/jpeg", jpeg)
            for before, jpeg in pairwise((b"", *attachments.thumbnails))
        ],
        "query": _query_image(result.query),
        "overlay": _uri("video/mp4", attachments.overlay_mp4) if attachments.overlay_mp4 else None,
        "scene": attachments.scene.model_dump(mode="json") if attachments.scene else None,
        "notes": list(attachments.notes),
        "timings_s": [[name, round(seconds, 3)] for name, seconds in result.timings_s],
    }


def _query_image(query: Query) -> dict[str, Any]:
    """The query with some of its surroundings, and which part of its image that is: x1, y1, x2, y2."""
    height, width = query.image.shape[:2]
    margin = QUERY_MARGIN * max(query.box.width, query.box.height)
    around = Box(query.box.x1 - margin, query.box.y1 - margin, query.box.x2 + margin, query.box.y2 + margin)
    x1, y1, x2, y2 = (round(v) for v in around.clipped(width, height))
    shown = thumbnail(query.image[y1:y2, x1:x2], width_px=QUERY_WIDTH_PX, quality=85)
    return {"image": _uri("image/jpeg", shown), "part": [x1, y1, x2, y2]}


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _script_safe(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _without_modules(script: str) -> str:
    """A module as a part of one script: the page imports the same files, a report may load none."""
    return re.sub(r"^(?:import [^;]*;\n|export )", "", script, flags=re.MULTILINE)


def _template(name: str) -> str:
    return resources.files("egohieraloc.report").joinpath("templates", name).read_text(encoding="utf-8")
