"""Parameters and FLOPs of each preset, and frames a second of encoding, of matching and of both.

    python benchmarks/model_table.py [--time] [--device cuda] [--presets NAME] [--compile NAME] [--json FILE]

FLOPs are torch's FlopCounterMode (two per multiply-add) for one frame of a square video, or of `--frames
1280x720` on its canvas: `encode` is the backbone and neck, `match` all that depends on the query; `query` is
paid once per query. SAM is not counted.
Times are of torch in bfloat16 with folded norms, from 8-bit images that lie on the device, in batches of 8
(CUDA: 128, with the blocks of `models/fused_blocks.py` where the backbone has such; `plain` is without).
`--compile` also times torch.compile (mode default) of the plain encoder.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from egohieraloc.config import PRESETS
from egohieraloc.models.fold import fold_norms, fuse_for_cuda
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, QueryTemplate
from egohieraloc.video.canvas import Size, canvas_for
from options import frame_size

BATCHES = {"cpu": 8, "cuda": 128}


@dataclass(frozen=True)
class Row:
    """Of one preset; frames/s are NaN where they were not measured."""

    preset: str
    backbone: str
    parameters_m: float
    encode_gflops: float
    match_gflops: float
    query_gflops: float
    encode_per_s: float = float("nan")
    match_per_s: float = float("nan")
    both_per_s: float = float("nan")
    plain_encode_per_s: float = float("nan")
    compiled_encode_per_s: float = float("nan")
    compile_s: float = float("nan")
    fused_cosine: float = float("nan")  # of the descriptors with fused blocks and with plain ones, the lowest


COUNTED = ("parameters_m", "encode_gflops", "match_gflops", "query_gflops")
TIMED = ("encode_per_s", "match_per_s", "both_per_s")
ON_CUDA = ("plain_encode_per_s", "fused_cosine")
COMPILED = ("compiled_encode_per_s", "compile_s")


def flops(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 1e9


def seconds(run: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


def encode(network: EgoHieraLocNet, images: Tensor) -> FrameFeatures:
    """Features of 8-bit images (B, S, S, 3), as `Predictor.encode` makes them."""
    return network.encode_frames(images.permute(0, 3, 1, 2).float() / 255)


def query(network: EgoHieraLocNet, device: torch.device) -> QueryTemplate:
    side = network.config.query_sizes[0]
    window, mask = torch.rand(1, 3, side, side, device=device), torch.ones(1, 1, side, side, device=device)
    box = torch.tensor([[0.2, 0.2, 0.8, 0.8]], device=device)
    sure, level = torch.ones(1, device=device), torch.zeros(1, dtype=torch.long, device=device)
    return network.template(network.encode_query(window, box, mask), mask, sure, level)


def random_images(network: EgoHieraLocNet, frames: Size, count: int, device: torch.device) -> Tensor:
    """Images (count, H, W, 3) on the canvas of frames."""
    (width, height), _ = canvas_for(*frames, network.config.input_size)
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, device=device)


@torch.inference_mode()
def counted(name: str, frames: Size) -> tuple[EgoHieraLocNet, Row]:
    """A network with random weights and folded norms, and what can be counted on any machine."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(PRESETS[name]).eval()
    total = sum(p.numel() for p in network.parameters()) / 1e6
    fold_norms(network)
    cpu = torch.device("cpu")
    images = random_images(network, frames, 1, cpu)
    template, features = query(network, cpu), encode(network, images)
    state = network.initial_state(template)
    costs = (
        flops(lambda: encode(network, images)),
        flops(lambda: network.match(template, features, state)),
        flops(lambda: query(network, cpu)),
    )
    return network, Row(name, network.config.backbone.name, total, *costs)


@torch.inference_mode()
def timed(network: EgoHieraLocNet, device: torch.device, frames: Size, *, compiled: bool) -> dict[str, float]:
    """Frames a second."""
    plain = copy.deepcopy(network).to(device, memory_format=torch.channels_last)
    network = copy.deepcopy(network).to(device)
    if device.type == "cuda":
        fuse_for_cuda(network, device)
    network.to(memory_format=torch.channels_last)
    batch = BATCHES[device.type]
    images = random_images(network, frames, batch, device)
    with torch.autocast(device.type, torch.bfloat16):
        template, features = query(network, device), encode(network, images)
        state = network.initial_state(template)
        found = {
            "encode_per_s": seconds(lambda: encode(network, images), device),
            "match_per_s": seconds(lambda: network.match(template, features, state), device),
            "both_per_s": seconds(lambda: network.match(template, encode(network, images), state), device),
        }
        if device.type == "cuda":
            found["plain_encode_per_s"] = seconds(lambda: encode(plain, images), device)
            cosine = (encode(plain, images).match * features.match).sum(1).amin().item()
        if compiled:
            run = torch.compile(lambda given: encode(plain, given), dynamic=False)
            started = time.perf_counter()
            run(images)
            compile_s = time.perf_counter() - started
            found["compiled_encode_per_s"] = seconds(lambda: run(images), device)
    facts = {name: batch / spent for name, spent in found.items()}
    if device.type == "cuda":
        facts["fused_cosine"] = cosine
    return facts | ({"compile_s": compile_s} if compiled else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frames", type=frame_size, default=(448, 448), help="of the video, as 1280x720")
    parser.add_argument("--presets", nargs="*", default=list(PRESETS))
    parser.add_argument("--compile", nargs="*", default=[], help="presets whose encoder is compiled too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, rows = torch.device(options.device), []
    columns = COUNTED + (TIMED if options.time else ()) + (COMPILED if options.compile else ())
    columns += ON_CUDA if options.time and device.type == "cuda" else ()
    heads = ["preset", "backbone", *(name.replace("_", " ") for name in columns)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in options.presets:
        network, row = counted(name, options.frames)
        if options.time:
            row = Row(
                **asdict(row) | timed(network, device, options.frames, compiled=name in options.compile)
            )
        rows.append(row)
        cells = [f"`{name}`", row.backbone, *(f"{getattr(row, column):,.4g}" for column in columns)]
        print(f"| {' | '.join(cells)} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
