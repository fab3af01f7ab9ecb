"""A small world to draw: a red square moves through a grey room of twelve frames, in every format."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, Track
from egohieraloc.evaluation.predictions import PlaceAnswer, TrackAnswer, write_own
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.images import write_image
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import (
    Box,
    FramePrediction,
    Localization3D,
    ResponseTrack,
    SampledVideo,
    ScoreCurve,
    VideoInfo,
    VideoSource,
    ViewEvidence,
)

WIDTH, HEIGHT, FRAMES, SIDE, FPS = 96, 64, 12, 16, 5.0
SEEN = range(4, 10)
KEY = QueryKey("room", "a", "1")
POINT = np.array([0.5, 2.0, 0.9])


def true_box(frame: int) -> tuple[float, float, float, float]:
    x = 4.0 + 5 * frame
    return (x, 20.0, x + SIDE, 20.0 + SIDE)


def make_video(root: Path) -> Path:
    """A folder of images."""
    for frame in range(FRAMES):
        image = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
        if frame in SEEN:
            x1, y1, x2, y2 = (int(v) for v in true_box(frame))
            image[y1:y2, x1:x2] = (220, 40, 40)
        write_image(root / "room" / f"{frame:03d}.png", image)
    return root / "room"


def prediction(frame: int, shift: float = 0.0) -> FramePrediction:
    x1, y1, x2, y2 = true_box(frame)
    box = Box(x1 + shift, y1, x2 + shift, y2)
    mask = np.zeros((8, 8), bool)
    mask[2:6, 1:7] = True
    return FramePrediction(frame, frame, frame / FPS, 0.8, box, mask, box)


def poses() -> tuple[PosedFrame, ...]:
    """A head that walks along x and looks along y, z up; the last frame has no pose."""
    looking = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    found = [CameraPose.from_rotation(looking, -looking @ [0.1 * i, 0, 1.6]) for i in range(FRAMES - 1)]
    return tuple(PosedFrame(i, i / FPS, pose) for i, pose in enumerate([*found, None]))


def result(video: Path, *, shift: float = 0.0, in_3d: bool = True, **changes: Any) -> Result:
    """What `locate --3d` could have said."""
    smooth = np.where(np.isin(np.arange(FRAMES), SEEN), 0.9, 0.1)
    image = np.full((40, 50, 3), 90, np.uint8)
    views = tuple(ViewEvidence(f, POINT + 0.01 * f, 0.9, 0.8, 0.7, 0.6, 0.1 * f) for f in SEEN)
    place = Localization3D(
        POINT, np.array([0.1, 0.7, 2.0]), np.diag([0.01, 0.04, 0.02]), "m", 11, 12, 10, views
    )
    camera = Camera("PINHOLE", WIDTH, HEIGHT, (80.0, 80.0, 48.0, 32.0))
    values: dict[str, Any] = {
        "query": Query(image, Box(10, 8, 30, 28), seen_at_s=0.4),
        "video": SampledVideo(
            VideoSource(str(video), FPS),
            VideoInfo(WIDTH, HEIGHT, Fraction(5), FRAMES),
            FPS,
            np.arange(FRAMES),
            np.arange(FRAMES) / FPS,
        ),
        "track": ResponseTrack(tuple(prediction(f, shift) for f in SEEN), 0.87),
        "curve": ScoreCurve(np.arange(FRAMES) / FPS, smooth - 0.05, smooth, 0.5, ((0, 1), (4, 9))),
        "alternatives": (ResponseTrack((prediction(0), prediction(1)), 0.3),),
        "place": place if in_3d else None,
        "cameras": Reconstruction(camera, poses(), "m") if in_3d else None,
    }
    return Result(**(values | changes))


def make_vq2d(root: Path) -> Path:
    """Two queries: the answer of the second is where nobody looks. The annotated video is twice as large."""

    def box(frame: int) -> dict[str, float]:
        x1, y1, x2, y2 = (2 * v for v in true_box(frame))
        size = {"original_width": 2 * WIDTH, "original_height": 2 * HEIGHT}
        return {"frame_number": frame, "x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1, **size}

    def query(frames: range) -> dict[str, Any]:
        return {
            "is_valid": True,
            "object_title": "red square",
            "query_frame": 11,
            "visual_crop": box(5),
            "response_track": [box(frame) for frame in frames],
        }

    sets = {"1": query(SEEN), "2": query(range(1, 3))}
    clip = {
        "clip_uid": "room",
        "clip_fps": FPS,
        "annotations": [{"annotation_uid": "a", "query_sets": sets}],
    }
    return _write(root / "vq2d.json", _videos(clip))


def make_vq3d(root: Path) -> dict[str, Path]:
    """One query, with everything that tells where its cameras were."""
    drawn = {
        "position": {"x": -2.0, "y": 0.5, "z": 0.9},  # (0.5, 2, 0.9) of the scan
        "dimension": {"x": 0.4, "y": 0.2, "z": 0.3},
        "rotation": {"x": 0.0, "y": 0.0, "z": 0.0},
    }
    entry = {"object_title": "red square", "3d_annotation_1": drawn, "3d_annotation_2": drawn}
    clip = {"clip_uid": "room", "annotations": [{"annotation_uid": "a", "query_sets": {"1": entry}}]}
    matrices = [frame.pose.cam_from_world.tolist() for frame in poses() if frame.pose is not None]
    far = np.column_stack([np.eye(3), [50.0, 50, 50]]).tolist()
    return {
        "annotations": _write(root / "vq3d.json", _videos(clip)),
        "poses": _write(
            root / "poses.json",
            {"room": {"camera_poses": [*matrices, far], "good_poses": [*[True] * len(matrices), False]}},
        ),
        "mapping": _write(root / "map.json", {"video": {"room": {"0": {"1": {"ai": 0, "qset_id": "1"}}}}}),
    }


def make_trek150(root: Path) -> Path:
    """Two sequences of the same images; only the second has no attribute."""
    for number in (1, 2):
        folder = root / "trek" / f"S{number}"
        for frame in range(FRAMES):
            write_image(folder / "img" / f"{frame:08d}.jpg", np.full((HEIGHT, WIDTH, 3), 128, np.uint8))
        rows = [(*true_box(f)[:2], SIDE, SIDE) if f != 3 else (-1, -1, -1, -1) for f in range(FRAMES)]
        (folder / "groundtruth_rect.txt").write_text("\n".join(",".join(map(str, row)) for row in rows))
        (folder / "anchors.txt").write_text("0,0\n")
    (root / "trek" / "S1" / "attributes.txt").write_text("SC,FM")
    return root / "trek"


def write_tracks(path: Path, benchmark: str, answers: dict[QueryKey, Track]) -> Path:
    found = [TrackAnswer(key, track, 0.5) for key, track in answers.items()]
    write_own(path, {"benchmark": benchmark}, found)
    return path


def write_place(path: Path, point: np.ndarray | None) -> Path:
    write_own(
        path, {"benchmark": "vq3d"}, [PlaceAnswer(KEY, point, reason="" if point is not None else "lost")]
    )
    return path


def track(frames: range, *, scale: float = 1.0, shift: float = 0.0) -> Track:
    boxes = [[scale * (v + (shift if i % 2 == 0 else 0)) for i, v in enumerate(true_box(f))] for f in frames]
    return Track.from_boxes(list(frames), boxes)


def _videos(clip: dict[str, Any]) -> dict[str, Any]:
    return {"videos": [{"video_uid": "video", "split": "val", "scan_uid": "scan", "clips": [clip]}]}


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path
