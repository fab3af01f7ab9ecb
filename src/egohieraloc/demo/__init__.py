"""The bundled clip: a rendered walk through a room, an image of one object in it, and the exact truth.

`truth.json` holds `unit`, `camera` and `frames` as `cameras.json` does (metres, a pinhole camera, one
`cam_from_world` 3x4 per frame of the clip), and besides
  target      name, and in the world its middle and its size along the axes
  samples     every third frame (5 per second): the target's tight box `[x1, y1, x2, y2]` of visible pixels
              or null, and `visible`, the share of its outline in sight (1: all of it, nothing before it)
  query       the target's box in `query.jpg`
World axes: x east, y north, z up. `ATTRIBUTION.md` says whose models are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from egohieraloc.documents import read_json
from egohieraloc.types import Box, Floats

FOLDER = Path(__file__).parent
CLIP = FOLDER / "walk.mp4"
QUERY = FOLDER / "query.jpg"


@dataclass(frozen=True, eq=False)
class DemoTruth:
    """What is true of the clip. F frames, N samples."""

    width: int
    height: int
    focal_px: float  # pinhole, the axis in the middle of the image
    cam_from_world: Floats  # (F, 3, 4), metres
    target_name: str
    target_center_world: Floats  # (3,)
    target_size_world: Floats  # (3,)
    sample_fps: float
    sample_frames: tuple[int, ...]  # (N,) frame of the clip
    boxes: tuple[Box | None, ...]  # (N,) None where the target is not in sight
    visible: Floats  # (N,) share of the target in sight
    query_box: Box

    @property
    def appearances(self) -> tuple[tuple[int, int], ...]:
        """Runs of samples that show the target, first and last inclusive."""
        seen = np.array([box is not None for box in self.boxes], int)
        edges = np.flatnonzero(np.diff(seen, prepend=0, append=0))
        return tuple((int(a), int(b) - 1) for a, b in edges.reshape(-1, 2))


def load_truth() -> DemoTruth:
    """Read `truth.json`."""
    stored = read_json(FOLDER / "truth.json")
    camera, target, samples = stored["camera"], stored["target"], stored["samples"]
    return DemoTruth(
        width=camera["width"],
        height=camera["height"],
        focal_px=camera["params"][0],
        cam_from_world=np.array([frame["cam_from_world"] for frame in stored["frames"]]),
        target_name=target["name"],
        target_center_world=np.array(target["center_world"]),
        target_size_world=np.array(target["size_world"]),
        sample_fps=stored["sample_fps"],
        sample_frames=tuple(sample["frame"] for sample in samples),
        boxes=tuple(Box(*sample["box"]) if sample["box"] else None for sample in samples),
        visible=np.array([sample["visible"] for sample in samples]),
        query_box=Box(*stored["query"]["box"]),
    )
