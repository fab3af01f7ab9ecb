"""The answer as a whole, and its form in JSON."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_folder
from egohieraloc.geometry.place import place_to_json
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.query import Query
from egohieraloc.types import (
    Localization3D,
    NotFound,
    NotLocalized,
    ResponseTrack,
    ScoreCurve,
    VideoRef,
)

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer


# All that an answer may leave in its folder. An earlier answer's are thrown out.
FILES = (
    "query.png", "query_mask.png", "query.json", "masks", "overlay.mp4", "curve.png", "cameras.json",
    "report.html", "result.json",
)  # fmt: skip


def answer_folder(folder: str | Path, *inputs: str | Path | None) -> AbstractContextManager[Path]:
    """`atomic_folder` for an answer. It takes the place of an earlier answer, of nothing else, and never of
    what was asked about."""
    folder = Path(folder)
    there = [folder / name for name in FILES if (folder / name).exists()]
    if there and not _is_answer(folder / "result.json"):
        raise OutputError(f"{there[0]} is there and not an earlier answer's. Choose another folder.")
    for path in inputs:
        if path is not None and any(Path(path).resolve().is_relative_to(file.resolve()) for file in there):
            raise OutputError(f"{path} would be replaced by the answer. Choose another folder.")
    return atomic_folder(folder, replaces=FILES)


def _is_answer(path: Path) -> bool:
    try:
        return "curve" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


@dataclass(frozen=True, eq=False)
class Result:
    """Where the object was last seen: a track or a reason, and what it was chosen from."""

    query: Query
    video: VideoRef
    track: ResponseTrack | NotFound
    curve: ScoreCurve
    alternatives: tuple[ResponseTrack, ...] = ()
    place: Localization3D | NotLocalized | None = None  # None: nobody asked for 3D
    cameras: Reconstruction | None = None  # the poses that `place` stands on
    timings_s: tuple[tuple[str, float], ...] = ()  # what took how long

    @property
    def found(self) -> bool:
        return isinstance(self.track, ResponseTrack)

    def to_dict(self) -> dict[str, Any]:
        """Plain values as they go into result.json."""
        track, info = self.track, self.video.info
        return {
            "found": self.found,
            "score": track.score,
            "reason": track.reason if isinstance(track, NotFound) else None,
            "video": {
                "path": self.video.path,
                "width": info.width,
                "height": info.height,
                "fps": float(info.fps),
                "num_frames": info.num_frames,
            },
            "sample_fps": self.video.sample_fps,
            "track": _track_rows(track) if isinstance(track, ResponseTrack) else [],
            "curve": {
                "time_s": self.curve.time_s.tolist(),
                "raw": self.curve.raw.tolist(),
                "smooth": self.curve.smooth.tolist(),
                "threshold": self.curve.threshold,
            },
            "intervals": [list(interval) for interval in self.curve.intervals],
            "alternatives": [{"score": t.score, "track": _track_rows(t)} for t in self.alternatives],
        } | ({} if self.place is None else {"place": place_to_json(self.place)})

    def save(self, folder: str | Path, *, folder_fps: float = 5.0) -> Path:
        """Write result.json, the query, masks, overlay.mp4 and curve.png, all or none; the JSON's path."""
        from egohieraloc.report.save import save_result

        with answer_folder(folder, self.video.path) as temporary:
            written = save_result(self, temporary, folder_fps=folder_fps)
        return Path(folder) / written.name

    def save_report(
        self,
        folder: str | Path,
        localizer: Localizer | None = None,
        *,
        folder_fps: float = 5.0,
        notes: tuple[str, ...] = (),
    ) -> Path:
        """`save`, and report.html beside it: one page that shows everything. Returns the page's path.

        With the localizer that answered, the page also shows the maps behind the answer. It tells `notes`.
        """
        from egohieraloc.report.build import save_report

        with answer_folder(folder, self.video.path) as temporary:
            written = save_report(self, temporary, localizer, folder_fps=folder_fps, notes=notes)
        return Path(folder) / written.name


def _track_rows(track: ResponseTrack) -> list[dict[str, Any]]:
    return [
        {
            "frame": p.frame_index,
            "sample": p.sample,
            "time_s": p.time_s,
            "box": list(p.box.xyxy),
            "score": p.score,
        }
        for p in track.predictions
    ]
