"""Small Ego4D-VQ and VISOR data sets: files in their formats, with rendered clips of coloured squares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from egohieraloc.query import Query
from egohieraloc.types import Mask

WIDTH, HEIGHT = 384, 216  # of the Ego4D annotation; the clips have half the size
FRAMES, QUERY_FRAME, SIDE = 24, 22, 64
RED, GREEN, BLUE = (220, 40, 40), (40, 200, 60), (60, 60, 230)
OBJECTS = {"1": ("red square", RED, range(4, 10)), "2": ("blue square", BLUE, range(8, 15))}
CLIPS = {"clip-a": "video-0", "clip-b": "video-0", "clip-c": "video-1"}
CROP_FRAME = 23  # after the query frame, as in the data set


def ego4d_box(query_set: str, frame: int) -> tuple[int, int]:
    return (20 + 8 * frame, 20) if query_set == "1" else (300 - 8 * frame, 120)


def ego4d_shown(query_set: str, frame: int) -> bool:
    return frame in OBJECTS[query_set][2] or frame == CROP_FRAME


def ego4d_image(frame: int) -> np.ndarray:
    image = with_squares(np.full((HEIGHT, WIDTH, 3), 110, np.uint8), frame)
    return cv2.resize(image, (WIDTH // 2, HEIGHT // 2), interpolation=cv2.INTER_AREA)


def with_squares(image: np.ndarray, frame: int) -> np.ndarray:
    for query_set, (_, colour, _) in OBJECTS.items():
        if ego4d_shown(query_set, frame):
            x, y = ego4d_box(query_set, frame)
            image[y : y + SIDE, x : x + SIDE] = colour
    return image


def write_ego4d(root: Path, *, name: str = "vq_train.json") -> Path:
    """Write annotations and clips: clip-a is a file at 5 fps, clip-b a folder, clip-c a file at 10 fps."""
    for repeats, clip in ((1, "clip-a"), (2, "clip-c")):
        write_video(root / "clips" / f"{clip}.mp4", repeats)
    (root / "clips" / "clip-b").mkdir(parents=True, exist_ok=True)
    for frame in range(FRAMES):
        bgr = cv2.cvtColor(ego4d_image(frame), cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(root / "clips" / "clip-b" / f"{frame:06d}.png"), bgr)
    videos = [
        {"video_uid": video, "split": "train", "clips": [_clip(c) for c, v in CLIPS.items() if v == video]}
        for video in ("video-0", "video-1")
    ]
    videos[1]["clips"] += [_clip(None), _clip("clip-lost")]
    path = root / name
    header = {"version": "1.0.5", "date": "230101", "description": "", "manifest": ""}
    path.write_text(json.dumps({**header, "videos": videos}))
    return path


def _clip(uid: str | None) -> dict[str, Any]:
    sets: dict[str, Any] = {query_set: _query_set(query_set) for query_set in OBJECTS}
    sets["3"] = {"is_valid": False, "errors": ["unclear"], "warnings": []}
    return {
        "clip_uid": uid,
        "video_start_sec": 0.0,
        "video_end_sec": FRAMES / 5,
        "video_start_frame": 0,
        "video_end_frame": 6 * FRAMES,
        "clip_start_sec": 0.0,
        "clip_end_sec": FRAMES / 5,
        "clip_start_frame": 0,
        "clip_end_frame": 6 * FRAMES,
        "clip_fps": 5.0,
        "annotation_complete": True,
        "source_clip_uid": uid,
        "annotations": [{"query_sets": sets, "annotation_uid": f"annotation of {uid}", "warnings": []}],
    }


def _query_set(query_set: str) -> dict[str, Any]:
    title, _, shown = OBJECTS[query_set]
    return {
        "is_valid": True,
        "errors": [],
        "warnings": [],
        "query_frame": QUERY_FRAME,
        "query_video_frame": None,
        "response_track": [_box(query_set, frame) for frame in reversed(shown)],
        "object_title": title,
        "visual_crop": _box(query_set, CROP_FRAME),
    }


def _box(query_set: str, frame: int) -> dict[str, Any]:
    x, y = ego4d_box(query_set, frame)
    return {
        "frame_number": frame,
        "x": float(x),
        "y": float(y),
        "width": float(SIDE),
        "height": float(SIDE),
        "rotation": 0.0,
        "original_width": WIDTH,
        "original_height": HEIGHT,
        "video_frame_number": 6 * frame,
    }


def write_video(path: Path, repeats: int, images: Sequence[np.ndarray] | None = None) -> None:
    """The clip of the squares, or of other images, each shown so many times at as many times the rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [ego4d_image(frame) for frame in range(FRAMES)] if images is None else images
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=Fraction(5 * repeats))
        stream.height, stream.width = shown[0].shape[:2]
        stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
        for frame in range(len(shown) * repeats):
            image = av.VideoFrame.from_ndarray(shown[frame // repeats], format="rgb24")
            file.mux(stream.encode(image))
        file.mux(stream.encode())


def colour_provider(query: Query) -> tuple[Mask, float]:
    """All pixels with the colour of the box's centre: a segmenter that is always correct here."""
    x, y = (int(v) for v in query.box.center)
    return np.abs(query.image.astype(int) - query.image[y, x]).sum(-1) < 90, 0.9


VISOR_SIZE = {"sparse": (1920, 1080), "dense": (854, 480)}
VISOR_STEP = {"sparse": 60, "dense": 5}
SHOWN = {"red lid": range(1, 6), "blue lid": range(3, 8)}  # of 10 annotated frames


def visor_box(name: str, frame: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    unit = size[0] // 16
    x, y = ((2 + frame) * unit, unit) if name == "red lid" else ((12 - frame) * unit, 5 * unit)
    return x, y, x + 3 * unit, y + 2 * unit


def write_visor(root: Path, kind: str = "sparse", *, videos: tuple[str, ...] = ("P01_01", "P02_03")) -> Path:
    """Write annotations of two subsequences per video, and images 480 px wide. Every frame has a hand."""
    size, step = VISOR_SIZE[kind], VISOR_STEP[kind]
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    for video in videos:
        items = []
        for part in range(2):
            for frame in range(10):
                name = f"{video}_frame_{(1000 * part + step * frame + 100):010d}.jpg"
                items.append(_visor_item(video, f"{video}_seq_{part:05d}", name, frame, size, kind))
                _write_visor_image(root / "images" / video / name, frame, size)
        content = {"info": {"version": "1"}, "video_annotations": items}
        (root / "annotations" / f"{video}.json").write_text(json.dumps(content))
    return root


def _visor_item(
    video: str, subsequence: str, name: str, frame: int, size: tuple[int, int], kind: str
) -> dict[str, Any]:
    annotations = [_visor_object("left hand", 300, (0, size[1] - 40, 40, size[1]), frame)]
    for class_id, (target, shown) in enumerate(SHOWN.items()):
        if frame in shown:
            whole = _visor_object(target, class_id, visor_box(target, frame, size), frame)
            halves = [{**whole, "segments": [segment]} for segment in whole["segments"]]
            annotations += halves if target == "red lid" else [whole]  # a name may occur twice in a frame
    image = {"image_path": f"{video}/{name}", "name": name, "subsequence": subsequence, "video": video}
    return {"image": image, "annotations": annotations, **({"type": frame % 2} if kind == "dense" else {})}


def _visor_object(name: str, class_id: int, box: tuple[int, int, int, int], frame: int) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    middle = (x1 + x2) // 2  # two polygons side by side
    return {
        "id": f"{name} {frame}",
        "name": name,
        "class_id": class_id,
        "exhaustive": "y",
        "segments": [
            [[x1, y1], [middle, y1], [middle, y2 - 1], [x1, y2 - 1]],
            [[middle, y1], [x2 - 1, y1], [x2 - 1, y2 - 1], [middle, y2 - 1]],
        ],
    }


def _write_visor_image(path: Path, frame: int, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = np.full((size[1], size[0], 3), 110, np.uint8)
    for name, colour in (("red lid", RED), ("blue lid", BLUE)):
        if frame in SHOWN[name]:
            x1, y1, x2, y2 = visor_box(name, frame, size)
            image[y1:y2, x1:x2] = colour
    small = cv2.resize(image, (480, 270), interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(path), cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 97])
