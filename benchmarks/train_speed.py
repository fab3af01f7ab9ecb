"""Training speed in frames per second: composer alone, network alone (forward, backward, step), and both.

    python benchmarks/train_speed.py --data DIR [--preset mini] [--batch 64] [--set optim.compile=true]

Times are medians of three blocks of steps, after so many that each shape of batches has its CUDA graph;
`--profile` prints the most expensive kernels.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from egohieraloc.config import preset
from egohieraloc.settings import override
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.training.composer.shaped_composer import ShapedComposer
from egohieraloc.training.cuda_graph import WARM_UP
from egohieraloc.training.loop import ClipObjective, join_processes, train_step
from egohieraloc.training.optim import build_optimizer, freeze_norms, freeze_parameters
from egohieraloc.training.recipe import Recipe, build_network, clip_source

BLOCKS = 3
LEAST_WARM_UP = 5
LOOKED_AT = 1000  # steps: a shape that does not come in them is not waited for


def warm_up_steps(composer: ShapedComposer) -> int:
    """Steps in which every shape of batches comes as often as it is run before its graph is replayed."""
    numbers = [composer.number(step) for step in range(LOOKED_AT)]
    comes = ([step for step, other in enumerate(numbers) if other == number] for number in set(numbers))
    return max(LEAST_WARM_UP, *(steps[: WARM_UP + 1][-1] + 1 for steps in comes))


def seconds(run: Callable[[int], object], *, steps: int, warmup: int) -> float:
    """Time of one step when steps follow one another, as in training: the median over blocks of steps."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for step in range(warmup):
        run(step)
    times = []
    for block in range(BLOCKS):
        wait()
        start = time.perf_counter()
        for step in range(steps):
            run(warmup + block * steps + step)
        wait()
        times.append((time.perf_counter() - start) / steps)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--set", nargs="*", default=[])
    arguments = parser.parse_args()

    recipe = override(Recipe(network=preset(arguments.preset), start="random"), arguments.set)
    accelerator = join_processes(recipe.optim)
    device = accelerator.device
    start = time.perf_counter()
    packs = read_packs(arguments.data, limit=arguments.limit, workers=16)
    print(f"packs read in {time.perf_counter() - start:.1f} s", flush=True)
    composer = ShapedComposer(packs, recipe.sized_composer, device, 0)
    network = build_network(recipe).to(device, memory_format=torch.channels_last).train()
    freeze_norms(network, recipe.optim.freeze_norm)
    freeze_parameters(network, recipe.optim)
    if recipe.optim.compile:
        network.backbone.compile(dynamic=False)
    objective = ClipObjective(network, recipe.losses, recipe.optim)
    optimizer = build_optimizer(network, recipe.optim)
    take_step = train_step(accelerator, objective, optimizer, recipe.optim.clip_norm)

    size = arguments.batch
    chance = torch.rand(size, 2, device=device)

    def learn(batch) -> None:
        take_step(batch, chance)

    fixed = composer.batch(0, size)
    make = clip_source(composer, size)
    frames = size * fixed.frames.shape[1]
    runs = {
        "composer": make,
        "network": lambda step: learn(fixed),
        "both": lambda step: learn(make(step)),
    }
    warmup = warm_up_steps(composer)
    for name, run in runs.items():
        cost = seconds(run, steps=arguments.steps, warmup=warmup)
        print(f"{name:9s} {1000 * cost:8.1f} ms per step  {frames / cost:8.0f} frames/s", flush=True)
    if torch.cuda.is_available():
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    if arguments.profile:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        ) as profile:
            runs["both"](0)
            torch.cuda.synchronize()
        print(
            profile.key_averages().table(
                sort_by="self_cuda_time_total", row_limit=80, max_name_column_width=70
            )
        )


if __name__ == "__main__":
    main()
