"""What reading a video costs, by resolution and codec: decoding, scaling and encoding of a sample.

    python benchmarks/reading.py [--clips DIR] [--seconds 3] [--codecs h264 hevc vp9 mjpeg]
        [--heights 480 1080 2160] [--model mini] [--json FILE]

Frames of the bundled clip, enlarged and with a sensor's noise, are written once in each form at 30 frames a
second and read at 5. Times are of the processor (all threads), so other work beside it hardly matters;
divide by the cores for the time on the clock. `samples/s` is the clock's, of all three steps, overlapping.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import av
import cv2
import numpy as np

from egohieraloc import Localizer, Video, demo
from egohieraloc.threads import settle
from egohieraloc.types import Rgb
from egohieraloc.video.letterbox import Letterbox

FPS, SAMPLES_PER_S = 30, 5.0
ENCODERS = {
    "h264": ("libx264", "mp4", {"preset": "superfast", "crf": "23", "bf": "2"}),
    "hevc": ("libx265", "mp4", {"preset": "ultrafast", "x265-params": "crf=26:bframes=2:log-level=none"}),
    "vp9": ("libvpx-vp9", "webm", {"deadline": "realtime", "cpu-used": "8", "crf": "33", "b": "0"}),
    "mjpeg": ("mjpeg", "avi", {"qscale": "3"}),
}


@dataclass(frozen=True)
class Cost:
    """Milliseconds of the processor a sample."""

    codec: str
    height: int
    decode_ms: float
    scale_ms: float
    encode_ms: float
    samples_per_s: float

    @property
    def sum_ms(self) -> float:
        return self.decode_ms + self.scale_ms + self.encode_ms


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--clips", type=Path, default=Path("runs/reading"), help="where they are written once"
    )
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--codecs", nargs="*", default=list(ENCODERS))
    parser.add_argument("--heights", nargs="*", type=int, default=[480, 1080, 2160])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settle()
    localizer = Localizer.from_pretrained(options.model, device="cpu")
    print("| codec | height | decode, ms | scale, ms | encode, ms | sum of the first | samples/s |")
    print("|---|---|---|---|---|---|---|")
    costs: list[Cost] = []
    for codec in options.codecs:
        for height in options.heights:
            path = clip(options.clips, codec, height, options.seconds)
            costs.append(cost(path, codec, height, localizer))
            row, first = costs[-1], next(c for c in costs if c.codec == codec)
            cells = (row.decode_ms, row.scale_ms, row.encode_ms)
            parts = " | ".join(f"{ms:.1f} ({ms / row.sum_ms:.0%})" for ms in cells)
            times, rate = row.sum_ms / first.sum_ms, row.samples_per_s
            print(f"| {codec} | {height} | {parts} | {times:.2f} | {rate:.1f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in costs], indent=1))


def cost(path: Path, codec: str, height: int, localizer: Localizer) -> Cost:
    video = Video.open(path)
    indices = video.sample_indices(SAMPLES_PER_S)
    letterbox = localizer.predictor.letterbox(video.info.width, video.info.height)
    decode = processor_ms(lambda: decoded(video, indices)) / len(indices)
    both = processor_ms(lambda: list(video.canvases(indices, letterbox))) / len(indices)
    encode = encoding_ms(localizer, letterbox)
    with tempfile.TemporaryDirectory() as folder:
        fresh = Localizer(localizer.weights, device="cpu", cache=Path(folder))
        started = time.perf_counter()
        fresh.encode(video, dense=True)
        rate = len(indices) / (time.perf_counter() - started)
    return Cost(codec, height, decode, max(both - decode, 0.0), encode, rate)


def decoded(video: Video, indices: Any) -> None:
    """Decode what reading decodes, and convert nothing."""
    with patch("egohieraloc.video.container._rgb", lambda *_: None):
        for _ in video.backend.read(indices.tolist()):
            pass


def encoding_ms(localizer: Localizer, letterbox: Letterbox) -> float:
    """A sample, in batches as reading makes them."""
    (width, height), batch = letterbox.canvas_size, localizer.predictor.encode_batch
    canvases = list(np.random.default_rng(0).integers(0, 256, (batch, height, width, 3), np.uint8))
    localizer.predictor.encode(canvases)
    return processor_ms(lambda: [localizer.predictor.encode(canvases) for _ in range(3)]) / (3 * batch)


def processor_ms(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def clip(folder: Path, codec: str, height: int, seconds: float) -> Path:
    """The clip in one form, written where it is not there."""
    encoder, suffix, settings = ENCODERS[codec]
    path = folder / f"{codec}_{height}_{seconds:g}s.{suffix}"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_stem("unfinished")
    with av.open(str(temporary), "w") as container:
        stream = container.add_stream(encoder, rate=FPS, options=settings)
        stream.width, stream.height = -(-height * 16 // 9 // 2) * 2, height
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = 2 * FPS
        for image in images(stream.width, stream.height, round(seconds * FPS)):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    temporary.rename(path)
    return path


def images(width: int, height: int, count: int) -> Iterator[Rgb]:
    random = np.random.default_rng(0)
    noise = random.normal(0, 2, (height, width, 1)).round().astype(np.int16)
    frames = Video.open(demo.CLIP).frames(range(count // 2 + 1))
    for frame in frames:
        large = cv2.resize(frame.rgb, (width, height), interpolation=cv2.INTER_CUBIC)
        for _ in range(2):  # the clip has 15 frames a second
            moved = np.roll(noise, tuple(random.integers(0, 64, 2)), (0, 1))
            yield np.clip(large + moved, 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
