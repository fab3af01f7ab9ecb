"""The folder that docs/reproduce.md describes: the right schemas, generated clips, a small recipe and SAM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from box_world import Shot, walk
from egohieraloc.geometry.camera import Camera
from egohieraloc.images import write_image
from egohieraloc.types import DepthMap, DepthUnit, Frame
from footage_world import (
    FRAMES,
    HEIGHT,
    OBJECTS,
    SIDE,
    WIDTH,
    ego4d_box,
    ego4d_image,
    with_squares,
    write_ego4d,
    write_video,
    write_visor,
)
from scan_tree import write_scan
from tiny_sam import save_tiny_sam

RECIPE = """
start = "random"
paper = true
source = "footage"
[network]
input_size = 64
query_sizes = [64, 32]
[network.backbone]
name = "pvt_v1_tiny"
image_size = 64
[network.neck]
width = 16
match = 16
context = 8
fine8 = 4
fine4 = 4
[network.ram]
width = 16
attention_layers = 0
[optim]
steps = 1
batch = 2
precision = "no"
log_every = 1
negatives = 0
[footage]
clip_frames = 2
workers = 0
[validation]
queries = 1
"""
CLIP = "clip-a"
EGOTRACKS_CLIP = "exported-a"
SCAN = "room"
LENS = Camera("SIMPLE_RADIAL_FISHEYE", WIDTH, HEIGHT, (230.0, WIDTH / 2, HEIGHT / 2, -0.03))


def write_tree(root: Path, *, rendered: bool = True) -> None:
    """`rendered`: with what structure from motion needs, which takes seconds; else with empty folders."""
    (root / "recipes").mkdir(parents=True)
    (root / "recipes" / "paper.toml").write_text(RECIPE)
    (root / "out").mkdir()
    save_tiny_sam(root / "models" / "sam")
    (root / "models" / "depth").mkdir()  # see StandInDepthNetwork
    write_visor(root / "visor")
    _write_vq2d(root / "ego4d")
    _write_vq3d(root / "ego4d")
    if rendered:
        _write_walk(root / "ego4d")
    _write_egotracks(root)
    _write_trek150(root / "trek150")


def _write_vq2d(folder: Path) -> None:
    for split in ("train", "val", "test_unannotated"):
        write_ego4d(folder, name=f"vq_{split}.json")
    _change(folder / "vq_test_unannotated.json", _without("response_track"))


def _write_vq3d(folder: Path) -> None:
    """Both squares, somewhere in a scan."""
    box = {
        "position": {"x": -0.2, "y": 0.8, "z": 2.0},
        "dimension": dict.fromkeys("xyz", 0.3),
        "rotation": dict.fromkeys("xyz", 0.0),
    }
    truth = {"object_title": "", "3d_annotation_1": box, "3d_annotation_2": box}
    clip = {"clip_uid": CLIP, "annotations": [{"query_sets": {q: dict(truth) for q in OBJECTS}}]}
    video = {"video_uid": "video-0", "split": "val", "scan_uid": SCAN, "clips": [clip]}
    link = {q: {"ai": 0, "qset_id": q} for q in OBJECTS}
    for vq3d, short in (("val", "val"), ("test_unannotated", "test")):
        _write(folder / f"vq3d_{vq3d}.json", {"version": "1", "videos": [video]})
        _write(folder / f"mapping_{short}.json", {"video-0": {CLIP: {"0": link}}})
    _change(folder / "vq3d_test_unannotated.json", _without("3d_annotation_1", "3d_annotation_2"))
    (folder / "scans" / SCAN).mkdir(parents=True)


def _write_walk(folder: Path) -> None:
    """The squares before a walk through a rendered room, in place of the plain clip."""
    walked = [with_squares(shot.frame.rgb, shot.frame.index) for shot in walked_shots()]
    write_video(folder / "clips" / f"{CLIP}.mp4", 1, walked)
    write_scan(folder / "scans" / SCAN, 7)


def walked_shots() -> list[Shot]:
    return walk(FRAMES, camera=LENS)


class StandInDepthNetwork:
    """In place of a depth network with weights: the true inverse depth of the walk, scaled and shifted."""

    def __init__(self) -> None:
        self.depth = [shot.depth for shot in walked_shots()]

    def predict(self, frames: Iterable[Frame]) -> Iterator[tuple[int, DepthMap]]:
        for frame in frames:
            relative = 3 / self.depth[frame.index] - 0.2
            yield frame.index, DepthMap(relative.astype(np.float32), DepthUnit.RELATIVE)


def _write_egotracks(root: Path) -> None:
    """One clip at 30 frames a second."""
    write_video(root / "ego4d" / "clips" / f"{EGOTRACKS_CLIP}.mp4", 6)

    def box(query_set: str, frame: int) -> dict[str, float]:
        x, y = ego4d_box(query_set, frame)
        side = SIDE / 2  # in pixels of the clip
        return {
            "exported_clip_frame_number": 6 * frame,
            "x": x / 2,
            "y": y / 2,
            "width": side,
            "height": side,
        }

    sets = {
        query_set: {
            "is_valid": True,
            "object_title": title,
            "visual_crop": box(query_set, shown[0]),
            "visual_clip": [],
            "lt_track": [box(query_set, frame) for frame in shown],
        }
        for query_set, (title, _, shown) in OBJECTS.items()
    }
    clip = {"clip_uid": CLIP, "exported_clip_uid": EGOTRACKS_CLIP, "annotations": [{"query_sets": sets}]}
    (root / "egotracks").mkdir()
    _write(
        root / "egotracks" / "egotracks_val.json",
        {"videos": [{"video_uid": "v", "split": "val", "clips": [clip]}]},
    )
    frames = [{"frame": n} for n in range(6 * FRAMES)]
    _write(root / "egotracks" / "clip_info.json", {EGOTRACKS_CLIP: {"frames": frames}})


def _write_trek150(root: Path) -> None:
    folder, shown, side = root / "P01-P01_01-1", OBJECTS["1"][2], SIDE // 2
    boxes = [[value // 2 for value in ego4d_box("1", frame)] + [side, side] for frame in shown]
    for number, frame in enumerate(shown):
        write_image(folder / "img" / f"frame_{number + 100:010d}.jpg", ego4d_image(frame))
    (folder / "groundtruth_rect.txt").write_text("\n".join(",".join(map(str, box)) for box in boxes))
    (folder / "anchors.txt").write_text("0,0\n5,1\n")
    (folder / "anchors_hoi.txt").write_text("1,4,0\n")
    (folder / "attributes.txt").write_text("FM\nLR\n")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def _change(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Apply a change to every query set of an annotation file."""
    content = json.loads(path.read_text())
    for video in content["videos"]:
        for clip in video["clips"]:
            for annotation in clip["annotations"]:
                for query_set in annotation["query_sets"].values():
                    change(query_set)
    _write(path, content)


def _without(*names: str) -> Callable[[dict[str, Any]], None]:
    def change(query_set: dict[str, Any]) -> None:
        for name in names:
            query_set.pop(name, None)

    return change
