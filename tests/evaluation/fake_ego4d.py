"""A small Ego4D tree with rendered clips, and a system simple enough to be right: it looks for a colour."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from egohieraloc.data.base import Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.evaluation.runner import Execution, run_benchmark

WIDTH, HEIGHT, FRAMES, SIDE = 96, 64, 24, 16
COLOURS = {"1": (220, 40, 40), "2": (40, 200, 60), "3": (60, 60, 230)}


def _box(clip: int, query_set: str, frame: int) -> tuple[int, int]:
    return 4 + 2 * frame + 3 * clip, 4 + 20 * (int(query_set) - 1)


def _seen(clip: int, query_set: str) -> range:
    first = 2 + clip + 3 * int(query_set)
    return range(first, first + 6)


def _annotation_box(clip: int, query_set: str, frame: int) -> dict[str, float]:
    x, y = _box(clip, query_set, frame)
    size = {"width": float(SIDE), "height": float(SIDE), "original_width": WIDTH, "original_height": HEIGHT}
    return {
        "frame_number": frame,
        "video_frame_number": 6 * frame,
        "x": float(x),
        "y": float(y),
        "rotation": 0,
        **size,
    }


def _query(clip: int, query_set: str) -> dict[str, object]:
    frames = list(_seen(clip, query_set))
    return {
        "is_valid": True,
        "errors": [],
        "warnings": [],
        "query_frame": FRAMES - 1,
        "query_video_frame": None,
        "response_track": [_annotation_box(clip, query_set, f) for f in reversed(frames)],
        "object_title": f"object {query_set}",
        "visual_crop": _annotation_box(clip, query_set, frames[0]),
    }


def make_tree(root: Path, num_clips: int = 3) -> tuple[Path, Path]:
    """Annotation file and folder of clips. The second video has a clip that was never exported."""
    clips = []
    for clip in range(num_clips):
        sets: dict[str, object] = {q: _query(clip, q) for q in COLOURS}
        sets["4"] = {"is_valid": False, "errors": ["blurred"], "warnings": []}
        annotations = [{}, {"query_sets": sets, "annotation_uid": f"annotation-{clip}", "warnings": []}]
        clips.append({"clip_uid": f"clip-{clip}", "clip_fps": 5.0, "annotations": annotations})
        render(root / "clips" / f"clip-{clip}.mp4", clip)
    lost = {"query_sets": {"1": _query(0, "1")}, "annotation_uid": "annotation-lost"}
    videos = [
        {"video_uid": "video-0", "split": "val", "clips": clips},
        {
            "video_uid": "video-1",
            "split": "val",
            "clips": [{"clip_uid": None, "clip_fps": 5.0, "annotations": [lost]}],
        },
    ]
    path = root / "vq_val.json"
    path.write_text(json.dumps({"version": "1.0.5", "date": "", "description": "", "videos": videos}))
    return path, root / "clips"


def render(path: Path, clip: int, *, repeats: int = 1, scale: int = 1) -> None:
    """A clip of 5 frames a second, or each of them `repeats` times at as many times the rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=Fraction(5 * repeats))
        stream.width, stream.height, stream.pix_fmt = WIDTH * scale, HEIGHT * scale, "yuv420p"
        stream.bit_rate = 2_000_000
        for frame in range(FRAMES):
            image = np.full((HEIGHT, WIDTH, 3), 110, np.uint8)
            for query_set, colour in COLOURS.items():
                if frame in _seen(clip, query_set):
                    x, y = _box(clip, query_set, frame)
                    image[y : y + SIDE, x : x + SIDE] = colour
            image = image.repeat(scale, 0).repeat(scale, 1)
            for _ in range(repeats):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        file.mux(stream.encode())


@dataclass(frozen=True)
class ColourFinder:
    """Decodes a clip once and notes that it did; finds the run of frames that show the query's colour."""

    clips: Path
    opened: Path
    seconds: float = 0.0
    breaks_at: str = ""

    @contextmanager
    def __call__(self, clip) -> Iterator[Callable]:
        with av.open(str(self.clips / f"{clip.clip_uid}.mp4")) as file:
            frames = np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)]).astype(int)
        with self.opened.open("a") as note:
            note.write(f"{clip.clip_uid}\n")

        def ask(query) -> TrackAnswer:
            time.sleep(self.seconds)
            if self.breaks_at == query.key.clip:
                raise RuntimeError("the finder broke")
            near = np.abs(frames - COLOURS[query.key.query_set]).sum(-1) < 120
            seen = np.flatnonzero(near.sum((1, 2)) > SIDE)
            rows = [np.flatnonzero(near[f].any(1)) for f in seen]
            columns = [np.flatnonzero(near[f].any(0)) for f in seen]
            boxes = [(c[0], r[0], c[-1] + 1, r[-1] + 1) for r, c in zip(rows, columns, strict=True)]
            sharpness = float(np.var(frames[query.crop_frame]))
            return TrackAnswer(query.key, Track.from_boxes(seen, boxes), 0.9, crop_sharpness=sharpness)

        yield ask


def wait_for_lines(log: Path, number: int) -> None:
    """Until a run in another process has written so many lines, or a minute has passed."""
    deadline = time.monotonic() + 60
    while (not log.exists() or log.read_text().count("\n") < number) and time.monotonic() < deadline:
        time.sleep(0.02)


ABOUT = {"benchmark": "vq2d", "config": {"name": "colour finder"}, "seed": 0}


if __name__ == "__main__":
    # Started by a test that kills it: annotations, clips, output, workers, seconds for each query.
    annotations, clips, out, workers, seconds = sys.argv[1:]
    finder = ColourFinder(Path(clips), Path(out).with_suffix(".opened"), float(seconds))
    execution = Execution(workers=int(workers))
    run_benchmark(list(read_vq2d(annotations)), finder, out, about=ABOUT, execution=execution)
