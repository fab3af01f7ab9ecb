"""What the structure-from-motion process is asked to do, as a file it can read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from egohieraloc.config import SfmConfig
from egohieraloc.files import write_json
from egohieraloc.geometry.camera import Camera


@dataclass(frozen=True, kw_only=True)
class SfmJob:
    """Images are images/<position>.jpg: the frames, then the anchors."""

    frame_index: tuple[int, ...]
    time_s: tuple[float, ...]
    sharpness: tuple[float, ...]
    size: tuple[int, int]  # width and height of the images in images/
    full_size: tuple[int, int]  # and of the frames
    focal_px: float | None  # in pixels of the frames, where it is known
    config: SfmConfig
    anchor_camera: Camera | None = None
    anchor_center: tuple[tuple[float, ...], ...] = ()  # known positions of the anchors' cameras

    @property
    def anchors(self) -> range:
        """Positions of the anchors."""
        count = len(self.frame_index)
        return range(count, count + len(self.anchor_center))

    @staticmethod
    def name(position: int) -> str:
        return f"{position:06d}.jpg"


def write_job(folder: Path, job: SfmJob) -> None:
    write_json(folder / "job.json", asdict(job))


def read_job(folder: Path) -> SfmJob:
    value = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    lists = {key: tuple(value[key]) for key in ("frame_index", "time_s", "sharpness", "size", "full_size")}
    camera = value["anchor_camera"]
    return SfmJob(
        **lists,
        focal_px=value["focal_px"],
        config=SfmConfig(**value["config"]),
        anchor_camera=camera and Camera(**{**camera, "params": tuple(camera["params"])}),
        anchor_center=tuple(tuple(center) for center in value["anchor_center"]),
    )
