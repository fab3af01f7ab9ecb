"""What the process of structure from motion is told, and what it tells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from egohieraloc.config import SfmConfig
from egohieraloc.documents import read_json
from egohieraloc.files import write_json
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.resection import image_name


@dataclass(frozen=True, kw_only=True)
class SfmJob:
    """What the process is to do. Images are images/<position>.jpg: the frames, then the anchors."""

    frame_index: tuple[int, ...]
    time_s: tuple[float, ...]
    sharpness: tuple[float, ...]
    size: tuple[int, int]  # width and height of the images in images/
    full_size: tuple[int, int]  # and of the frames
    focal_px: float | None  # in pixels of the frames, where it is known
    config: SfmConfig
    anchor_camera: Camera | None = None  # where it is known
    anchor_center: tuple[tuple[float, ...], ...] = ()  # known positions of the anchors' cameras

    @property
    def anchors(self) -> range:
        """Positions of the anchors."""
        count = len(self.frame_index)
        return range(count, count + len(self.anchor_center))

    @staticmethod
    def name(position: int) -> str:
        return image_name(position)

    def write(self, folder: Path) -> None:
        write_json(folder / "job.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> SfmJob:
        value = read_json(folder / "job.json")
        camera, lists = (
            value["anchor_camera"],
            ("frame_index", "time_s", "sharpness", "size", "full_size"),
        )
        return cls(
            **{key: tuple(value[key]) for key in lists},
            focal_px=value["focal_px"],
            config=SfmConfig(**value["config"]),
            anchor_camera=camera and Camera(**{**camera, "params": tuple(camera["params"])}),
            anchor_center=tuple(tuple(center) for center in value["anchor_center"]),
        )


class NoMapError(Exception):
    """The frames do not give a map. Expected: it becomes NotLocalized."""


def report(stage: str, done: int = 0, total: int = 1) -> None:
    """A line of progress."""
    print(json.dumps({"stage": stage, "done": done, "total": total}), flush=True)
