"""Frames composed per second: `python benchmarks/composer_speed.py DATA [--device cuda] [--batch 64]`.

DATA is the folder with photos/ and sprites/. On a GPU the times are the device's own.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from egohieraloc.training.composer import Composer
from egohieraloc.training.composer_config import ComposerConfig
from egohieraloc.training.packs import read_packs


def device_ms(composer: Composer, step: int, batch: int) -> float:
    """Time of one batch on the device, which is waited for before and after."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    composer.batch(step, batch)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def stream_ms(composer: Composer, first: int, steps: int, batch: int) -> float:
    """Time per batch when many are asked for in a row."""
    began = time.perf_counter()
    for step in range(first, first + steps):
        composer.batch(step, batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--limit", type=int, help="read at most so many photos and objects")
    options = parser.parse_args()

    config = ComposerConfig()
    began = time.perf_counter()
    packs = read_packs(options.data, limit=options.limit)
    read = time.perf_counter()
    composer = Composer(packs, config, options.device, seed=0)
    print(f"packs read in {read - began:.1f} s, composer ready in {time.perf_counter() - read:.1f} s")
    composer.batch(0, options.batch)
    frames = options.batch * config.clip_frames
    spent = stream_ms(composer, 1, options.steps, options.batch)
    print(f"{spent:.1f} ms a batch of {frames} frames in a row: {frames / spent * 1000:.0f} frames/s")
    if options.device.startswith("cuda"):
        spent = statistics.median(device_ms(composer, step, options.batch) for step in range(options.steps))
        print(f"{spent:.1f} ms of device time a batch: {frames / spent * 1000:.0f} frames/s")
        print(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of device memory at most")


if __name__ == "__main__":
    main()
