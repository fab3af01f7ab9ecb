"""A rendered scan with clips walked through it, in the benchmark's files: for VQ3D from clips to figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from box_world import BOXES, Shot, object_box, object_center, walk
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.evaluation.predictions import TrackAnswer, write_own
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, write_cameras
from egohieraloc.images import write_image
from egohieraloc.types import DepthMap, DepthUnit, Frame

SCAN, VIDEO, BLANK = "room", "video-0", "clip-blank"
LENS = Camera("SIMPLE_RADIAL_FISHEYE", 320, 240, (190.0, 160.0, 120.0, -0.03))
RENDER = Camera("PINHOLE", 320, 240, (240.0, 240.0, 160.0, 120.0))
MIN_SEEN = 4


@dataclass(frozen=True, eq=False)
class ScanTree:
    """The folder and what is true of it. `shots` are the frames of each clip, 5 a second."""

    root: Path
    shots: dict[str, list[Shot]]

    @property
    def common(self) -> list[str]:
        """The options of `eval vq3d` that all runs have."""
        names = {"--annotations": "vq3d_val.json", "--vq2d": "vq_val.json", "--mapping": "mapping_val.json"}
        return [word for option, name in names.items() for word in (option, str(self.root / name))]

    @property
    def true_poses(self) -> list[str]:
        poses, lens = self.root / "poses_true.json", self.root / "scan_to_intrinsics.json"
        return ["--poses", str(poses), "--intrinsics", str(lens)]

    @property
    def true_depth(self) -> list[str]:
        return ["--depth", str(self.root / "depth")]


def write_scan_tree(root: Path, *, clips: int = 2, frames: int = 16, renders: int = 7) -> ScanTree:
    """Clips that walk three quarters of a round each, from other starts, and one that shows nothing."""
    shots = {
        f"clip-{i}": walk(frames, camera=LENS, turns=(i / clips, i / clips + 0.75)) for i in range(clips)
    }
    for name, clip in shots.items():
        for shot in clip:
            write_image(root / "clips" / name / f"{shot.frame.index:06d}.png", shot.frame.rgb)
            (root / "depth" / name).mkdir(parents=True, exist_ok=True)
            np.save(root / "depth" / name / f"{shot.frame.index}.npy", shot.depth.astype(np.float32))
    for index in range(4):
        write_image(root / "clips" / BLANK / f"{index:06d}.png", np.full((240, 320, 3), 90, np.uint8))
    write_scan(root / "scans" / SCAN, renders)
    _write_annotations(root, shots)
    _write_truth(root, shots)
    return ScanTree(root, shots)


def seen(clip: list[Shot], number: int) -> list[int]:
    """The last run of frames before the last frame that show an object."""
    shown = [shot.frame.index for shot in clip[:-1] if object_box(shot, number)]
    last = [n for place, n in enumerate(shown) if shown[-1] - n == len(shown) - 1 - place]
    return last if len(last) >= MIN_SEEN else []


class StandInDepth:
    """Relative inverse depth as a network gives it: true up to a scale and a shift of each image, with noise.

    It knows an image by its pixels.
    """

    def __init__(self, shots: dict[str, list[Shot]], noise: float = 0.03) -> None:
        self.noise = noise
        self.depth = {shot.frame.rgb.tobytes(): shot.depth for clip in shots.values() for shot in clip}

    def predict(self, frames: list[Frame]) -> list[tuple[int, DepthMap]]:
        found = []
        for frame in frames:
            draw = np.random.default_rng(frame.index)
            inverse = 1 / self.depth[frame.rgb.tobytes()]
            inverse *= 1 + self.noise * draw.standard_normal(inverse.shape)
            values = draw.uniform(2, 9) * inverse + draw.uniform(-1, 1)
            found.append((frame.index, DepthMap(values.astype(np.float32), DepthUnit.RELATIVE)))
        return found


def write_scan(folder: Path, count: int) -> None:
    """Images of the scan from known places."""
    shots = walk(count, camera=RENDER)
    for shot in shots:
        write_image(folder / f"{shot.frame.index}.png", shot.frame.rgb)
    frames = tuple(PosedFrame(shot.frame.index, shot.frame.time_s, shot.pose) for shot in shots)
    write_cameras(folder / "cameras.json", Reconstruction(RENDER, frames, "m"))


def _write_annotations(root: Path, shots: dict[str, list[Shot]]) -> None:
    """Of every clip the objects that were seen in it, and true tracks of them."""
    flat, placed, links, answers = [], [], {}, []
    for name, clip in {**shots, BLANK: next(iter(shots.values()))}.items():
        numbers = [k for k in range(1, len(BOXES) + 1) if seen(clip, k)]
        annotation = {"annotation_uid": f"{name}-a", "query_sets": {str(k): _query(clip, k) for k in numbers}}
        flat.append({"clip_uid": name, "clip_fps": 5.0, "annotations": [annotation]})
        boxes = {str(k): _placed(k) for k in numbers}
        placed.append({"clip_uid": name, "annotations": [{"query_sets": boxes}]})
        links[name] = {"0": {str(k): {"ai": 0, "qset_id": str(k)} for k in numbers}}
        answers += [TrackAnswer(QueryKey(name, f"{name}-a", str(k)), _track(clip, k), 1.0) for k in numbers]
    video = {"video_uid": VIDEO, "split": "val"}
    _write(root / "vq_val.json", {"version": "1", "videos": [{**video, "clips": flat}]})
    _write(root / "vq3d_val.json", {"version": "1", "videos": [{**video, "scan_uid": SCAN, "clips": placed}]})
    _write(root / "mapping_val.json", {VIDEO: links})
    write_own(root / "tracks.jsonl", {"benchmark": "vq2d"}, answers)


def _write_truth(root: Path, shots: dict[str, list[Shot]]) -> None:
    poses = {
        name: {
            "good_poses": [True] * len(clip),
            "camera_poses": [shot.pose.cam_from_world.tolist() for shot in clip],
        }
        for name, clip in shots.items()
    }
    _write(root / "poses_true.json", poses)
    lens = dict(zip(("f", "cx", "cy", "k1", "k2"), (*LENS.params, 0.0), strict=True))
    _write(root / "scan_to_intrinsics.json", {SCAN: {f"('{LENS.width}', '{LENS.height}')": lens}})


def _track(clip: list[Shot], number: int) -> Track:
    frames = seen(clip, number)
    return Track.from_boxes(frames, [object_box(clip[frame], number).xyxy for frame in frames])


def _query(clip: list[Shot], number: int) -> dict[str, Any]:
    track = _track(clip, number)
    boxes = [
        {
            "frame_number": frame,
            "x": x1,
            "y": y1,
            "width": x2 - x1,
            "height": y2 - y1,
            "original_width": LENS.width,
            "original_height": LENS.height,
        }
        for frame, (x1, y1, x2, y2) in zip(track.frames.tolist(), track.boxes_xyxy.tolist(), strict=True)
    ]
    return {
        "is_valid": True,
        "query_frame": len(clip) - 1,
        "object_title": f"box {number}",
        "visual_crop": boxes[0],
        "response_track": boxes,
    }


def _placed(number: int) -> dict[str, Any]:
    """Both annotators' box, in the annotation's turned frame."""
    (x, y, z), (low, high) = object_center(number).tolist(), BOXES[number - 1]
    box = {
        "position": {"x": -y, "y": x, "z": z},
        "dimension": dict(zip("xyz", (high - low).tolist(), strict=True)),
        "rotation": dict.fromkeys("xyz", 0.0),
    }
    return {"object_title": f"box {number}", "3d_annotation_1": box, "3d_annotation_2": box}


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
