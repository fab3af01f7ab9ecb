"""How fast training reads Ego4D-VQ, in frames a second and core: from videos, and from `egohieraloc frames`.

    python benchmarks/frame_store.py [--clips 2] [--seconds 20] [--samples 24] [--frames-per-gpu 1239 835]

Clips like Ego4D's (1440x1080, 30 fps, H.264) are generated from noise of all scales that moves, with a track
and a query each. Times are CPU seconds of one process, so that other work on the machine matters little. A
sample is what a loader makes: `footage.clip_frames` frames on the canvas, their labels and a rotated query;
its frames are counted without the query. `cores for 8 GPUs` feed GPUs that train so many frames a second each
(`--frames-per-gpu`; the defaults are those of `mini` and `base` in docs/training.md).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import cv2
import numpy as np
import torch

from egohieraloc.config import preset
from egohieraloc.query import Query
from egohieraloc.training.footage.clips import FootageClips
from egohieraloc.training.footage.footage import FootageConfig
from egohieraloc.training.footage.loading import ego4d_footage
from egohieraloc.types import Mask, Rgb

WIDTH, HEIGHT, FPS, ANNOTATED_FPS = 1440, 1080, 30, 5
SIDE = 240  # of the object
GPUS = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clips", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--sides", type=int, nargs="+", default=[896, 448])
    parser.add_argument("--frames-per-gpu", type=float, nargs="+", default=[1239, 835])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    headings = [f"cores for {GPUS} GPUs at {rate:g}" for rate in options.frames_per_gpu]
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch)
        make_clips(data, options.clips, options.seconds)
        rows = {"videos": speed_of_reading(data, "nothing here", options.samples)}
        for side in options.sides:
            config = FootageConfig(visor_share=0.0, frames=f"ego4d/frames-{side}")
            footage = ego4d_footage(config, data)
            stored = timed(partial(footage.store_frames, side=side, progress=lambda *_: None))
            size = sum(path.stat().st_size for path in (data / config.frames).iterdir())
            print(
                f"egohieraloc frames --side {side}: {stored.count / stored.cpu_s:.1f} frames a second and "
                f"core, {size / stored.count / 1000:.0f} kB a frame"
            )
            rows[f"store, side {side}"] = speed_of_reading(data, config.frames, options.samples)
    print(f"\n{'':20}{'frames/s and core':>20}{'CPU s a sample':>18}" + "".join(f"{h:>28}" for h in headings))
    for name, speed in rows.items():
        rate = speed.count / speed.cpu_s
        cores = "".join(f"{GPUS * wanted / rate:28.0f}" for wanted in options.frames_per_gpu)
        print(f"{name:20}{rate:20.1f}{speed.cpu_s / options.samples:18.3f}{cores}")


@dataclass(frozen=True)
class Speed:
    count: int
    cpu_s: float


def timed(work: Callable[[], int]) -> Speed:
    started_s = time.process_time()
    count = work()
    return Speed(count, time.process_time() - started_s)


def speed_of_reading(data: Path, frames: str, samples: int) -> Speed:
    config = FootageConfig(visor_share=0.0, frames=frames)
    footage = ego4d_footage(config, data)
    footage.make_masks(whole_box, progress=lambda *_: None)  # made once
    clips = FootageClips([footage], config, preset("large"), batch=1, seed=0)
    return timed(lambda: sum(clips[step, 0].presence.numel() for step in range(samples)))


def whole_box(query: Query) -> tuple[Mask, float]:
    mask = np.zeros(query.image.shape[:2], bool)
    x1, y1, x2, y2 = (round(v) for v in query.box.xyxy)
    mask[y1:y2, x1:x2] = True
    return mask, 1.0


def make_clips(data: Path, count: int, seconds: int) -> None:
    """Clips, and annotations of one query in each: the object is seen in the first half."""
    clips = []
    for number in range(count):
        uid = f"clip-{number}"
        write_clip(data / "ego4d" / "clips" / f"{uid}.mp4", seconds, seed=number)
        clips.append(annotated_clip(uid, seconds * ANNOTATED_FPS))
    videos = [
        {"video_uid": f"video of {clip['clip_uid']}", "split": "train", "clips": [clip]} for clip in clips
    ]
    (data / "ego4d" / "vq_train.json").write_text(json.dumps({"videos": videos}))


def position(frame: float) -> tuple[float, float]:
    """Of the object, at frames of the annotation."""
    return 100 + 8 * frame % (WIDTH - SIDE - 200), 300 + 3 * frame % (HEIGHT - SIDE - 400)


def write_clip(path: Path, seconds: int, *, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    room, thing = (textured(rng, side) for side in (2 * WIDTH, SIDE))
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=Fraction(FPS), options={"preset": "veryfast", "crf": "23"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in range(seconds * FPS):
            shift = int(4 * frame) % WIDTH
            image = room[:HEIGHT, shift : shift + WIDTH].copy()
            x, y = (round(v) for v in position(frame * ANNOTATED_FPS / FPS))
            image[y : y + SIDE, x : x + SIDE] = thing
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode())


def textured(rng: np.random.Generator, side: int) -> Rgb:
    """Noise of all scales, as photographs have."""
    layers = [
        cv2.resize(rng.normal(0, 1, (cells, cells, 3)).astype(np.float32), (side, side))
        for cells in (4, 16, 64, 256)
    ]
    return np.clip(128 + 30 * sum(layers), 0, 255).astype(np.uint8)


def annotated_clip(uid: str, frames: int) -> dict[str, object]:
    def box(frame: int) -> dict[str, float]:
        x, y = position(frame)
        size = {"width": SIDE, "height": SIDE, "original_width": WIDTH, "original_height": HEIGHT}
        return {
            "frame_number": frame,
            "x": x,
            "y": y,
            "rotation": 0.0,
            "video_frame_number": frame * 6,
            **size,
        }

    query = {
        "is_valid": True,
        "query_frame": frames - 1,
        "response_track": [box(frame) for frame in range(frames // 2)],
        "object_title": f"object of {uid}",
        "visual_crop": box(2),
    }
    annotation = {"annotation_uid": uid, "query_sets": {"1": query}}
    return {"clip_uid": uid, "clip_fps": float(ANNOTATED_FPS), "annotations": [annotation]}


if __name__ == "__main__":
    main()
