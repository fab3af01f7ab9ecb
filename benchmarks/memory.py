"""Peak memory of `egohieraloc locate`, report and all, on 1080p videos of different lengths.

    python benchmarks/memory.py [--model mini] [--minutes 2 20]

Each video is ten seconds of five frames a second, encoded once and repeated, so every frame is a sample. The
command runs in a process of its own, first with an empty cache and then with the features stored; what is
printed is the most memory that process ever had (ru_maxrss). `--model tiny` takes an untrained network of the
test size: the length of the video matters, not the answer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np

WIDTH, HEIGHT, FPS, LOOP = 1920, 1080, 5, 50
BOX = (400, 300, 320, 240)
UNTRAINED = """
import sys
import torch
from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, save_weights
torch.manual_seed(0)
save_weights(sys.argv[1], EgoHieraLocNet(preset("tiny")), Calibration(threshold=0.0))
"""


def write_video(path: Path, minutes: float) -> None:
    """An object that moves over a patterned wall; the packets of one loop are written over and over."""
    rng = np.random.default_rng(0)
    wall = rng.integers(60, 190, (9, 16, 3), np.uint8).repeat(120, 0).repeat(120, 1)
    target = rng.integers(0, 255, (6, 8, 3), np.uint8).repeat(40, 0).repeat(40, 1)
    x, y, width, height = BOX
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=FPS, options={"preset": "ultrafast", "bf": "0", "g": "10"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        packets = []
        for number in range(LOOP):
            image = wall.copy()
            image[y : y + height, x + 10 * number : x + 10 * number + width] = target
            packets += stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24"))
        packets += stream.encode(None)
        ticks = packets[1].pts - packets[0].pts
        for number in range(round(minutes * 60 * FPS)):
            packet = packets[number % LOOP]
            packet.pts = packet.dts = number * ticks
            packet.time_base, packet.stream = stream.codec_context.time_base, stream
            output.mux(packet)


def peak_mb(words: list[str]) -> float:
    """Run the command line to its end; the most memory it had."""
    command = [sys.executable, "-c", "from egohieraloc.cli import main; main()", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"locate failed: {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--minutes", type=float, nargs="+", default=[2.0, 20.0])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = arguments.model
        if model == "tiny":
            model = str(folder / "tiny.safetensors")
            subprocess.run([sys.executable, "-c", UNTRAINED, model], check=True)
        for minutes in arguments.minutes:
            video = folder / f"{minutes:g}.mp4"
            write_video(video, minutes)
            words = ["locate", str(video), "--at", "1", "--box", ",".join(map(str, BOX)), "--model", model]
            words += ["--cache", str(folder / "cache"), "--out", str(folder / "answer")]
            first, second = peak_mb(words), peak_mb(words)
            print(f"{minutes:g} minutes: {first:.0f} MB, asked again {second:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
