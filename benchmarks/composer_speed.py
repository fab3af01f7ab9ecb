"""Frames composed per second: `python benchmarks/composer_speed.py DATA [--device cuda] [--batch 64]`.

DATA is the folder with photos/ and sprites/. On a GPU, times are also measured by device events.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.training.composer.shaped_composer import ShapedComposer
from egohieraloc.training.cuda_graph import GraphedComposer


def device_ms(make: Callable[[int], ClipBatch], step: int) -> float:
    """Time of one batch on the device, synchronised before and after."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    make(step)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def stream_ms(make: Callable[[int], ClipBatch], steps: int) -> float:
    """Time per batch when many are composed in a row."""
    began = time.perf_counter()
    for step in range(steps):
        make(step)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--limit", type=int, help="largest number of photos and of objects to read")
    options = parser.parse_args()

    config = ComposerConfig()
    began = time.perf_counter()
    packs = read_packs(options.data, limit=options.limit)
    read = time.perf_counter()
    composer = ShapedComposer(packs, config, options.device, seed=0)
    print(f"packs read in {read - began:.1f} s, composer ready in {time.perf_counter() - read:.1f} s")
    makers: dict[str, Callable[[int], ClipBatch]] = {
        "plain": lambda step: composer.batch(step, options.batch)
    }
    if options.device.startswith("cuda"):
        makers["CUDA graph"] = GraphedComposer(composer, options.batch).batch
    frames = options.batch * config.clip_frames
    for name, make in makers.items():
        make(0)
        spent = stream_ms(make, options.steps)
        print(f"{name}: {spent:.1f} ms for {frames} frames, {frames / spent * 1000:.0f} frames/s in a row")
        if options.device.startswith("cuda"):
            spent = statistics.median(device_ms(make, step) for step in range(options.steps))
            print(f"{name}: {spent:.1f} ms between device events, {frames / spent * 1000:.0f} frames/s")
    if options.device.startswith("cuda"):
        print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of device memory at peak")


if __name__ == "__main__":
    main()
