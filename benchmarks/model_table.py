"""Parameters and FLOPs of each preset, and frames a second of encoding and of matching.

    python benchmarks/model_table.py [--time] [--device cuda]

FLOPs are torch's FlopCounterMode (two per multiply-add) for one frame of the input size: `encode` is the
backbone and neck, `match` all that depends on the query; `query` is paid once per query. SAM is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from egohieraloc.config import PRESETS
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, QueryTemplate


def flops(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 1e9


def seconds(run: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(8):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


@torch.inference_mode()
def row(name: str, device: torch.device, *, timed: bool) -> str:
    network = EgoHieraLocNet(PRESETS[name]).eval().to(device, memory_format=torch.channels_last)
    config = network.config
    batch, side = (64 if device.type == "cuda" else 8), config.query_sizes[0]
    frames = torch.rand(batch, 3, config.input_size, config.input_size, device=device)
    frames = frames.contiguous(memory_format=torch.channels_last)
    window = torch.rand(1, 3, side, side, device=device)
    box = torch.tensor([[0.2, 0.2, 0.8, 0.8]], device=device)
    mask = torch.ones(1, 1, side, side, device=device)
    sure, level = torch.ones(1, device=device), torch.zeros(1, dtype=torch.long, device=device)

    def encode(count: int) -> FrameFeatures:
        return network.encode_frames(frames[:count])

    def ask() -> QueryTemplate:
        return network.template(network.encode_query(window, box, mask), mask, sure, level)

    template = ask()
    state = network.initial_state(template)

    def match(features: FrameFeatures) -> object:
        return network.match(template, features, state)

    features = encode(1)
    costs = flops(lambda: encode(1)), flops(lambda: match(features)), flops(ask)
    total = sum(p.numel() for p in network.parameters()) / 1e6
    cells = [f"`{name}`", config.backbone.name, f"{total:.2f}", *(f"{cost:.2f}" for cost in costs)]
    if timed:
        with torch.autocast(device.type, torch.bfloat16):
            many = encode(batch)
            cells += [
                f"{batch / seconds(run, device):.1f}" for run in (lambda: encode(batch), lambda: match(many))
            ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--presets", nargs="*", default=list(PRESETS))
    arguments = parser.parse_args()
    names = ["preset", "backbone", "parameters, M", "encode, GFLOPs", "match, GFLOPs", "query, GFLOPs"]
    names += ["encode, frames/s", "match, frames/s"] if arguments.time else []
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name in arguments.presets:
        print(row(name, torch.device(arguments.device), timed=arguments.time), flush=True)


if __name__ == "__main__":
    main()
