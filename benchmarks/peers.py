"""What an answer costs, ours beside networks of its peers' sizes, in one process and one run.

    python benchmarks/peers.py [--device cpu|cuda] [--batch 8] [--seconds 5] [--json FILE] [--plot FILE]

The peers are built from the sizes in their papers, with random weights: what is measured is cost, not
accuracy. A video has 5 samples a second. Answers about 1, 10 and 60 minutes are the measured times of a
sample, added up:

- ours: every sample is encoded once; a question compares all descriptors and decodes at most 250 samples.
- VQLoC: DINOv2 ViT-B/14, cross-attention with the query, three layers over windows of 30 frames, heads; the
  whole of it for every question, as its query enters before the layers over time.
- RELOCATE: DINOv2 ViT-B/14 for every sample, once, without its region proposals; a question compares regions.
- SAM 2: its tiny image encoder at 1024 pixels, once; following adds its memory attention, which is not here.
- template matching (OpenCV), six sizes, for every question.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from egohieraloc import Localizer, Query, demo
from egohieraloc.inference.predict import Predictor
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.types import Box
from matchers import TemplateMatcher

SAMPLES_PER_MINUTE = 300
DECODED = 250  # samples of a question, with their neighbours
MINUTES = (1, 10, 60)
PIXELS = 448
WINDOW = 30  # frames that VQLoC's layers over time see together


@dataclass(frozen=True)
class Cost:
    """Of one system: what it does once for every sample, and again for every question."""

    name: str
    reading_s: float  # a sample, once for a video
    asking_s: float  # a sample, for every question
    question_s: float  # a question, whatever the length
    gflops: float  # a sample that goes through all of it
    megabytes: float  # of weights, as they ship (peers: in half precision)

    def answers_s(self, minutes: float) -> tuple[float, float]:
        """The first answer about an unread video, and the second."""
        samples = minutes * SAMPLES_PER_MINUTE
        asking = samples * self.asking_s + self.question_s
        return samples * self.reading_s + asking, asking


class VqlocSized(nn.Module):
    """The sizes of VQLoC (Jiang et al. 2023): ViT-B/14, width 256, 16 x 16 cells of 30 frames."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = dinov2()
        self.reduce = nn.Linear(768, 256)
        self.spatial = nn.TransformerDecoderLayer(256, 8, 1024, batch_first=True)
        self.shrink = nn.Conv2d(256, 256, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
        self.temporal = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.heads = nn.ModuleList(
            nn.Sequential(*[nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()) for _ in range(3)])
            for _ in range(2)
        )

    def forward(self, frames: Tensor, query: Tensor) -> Tensor:
        """frames (T, 3, 448, 448) of one window, query tokens (1, 1024, 256)."""
        tokens = self.reduce(self.backbone(frames).last_hidden_state[:, 1:])
        seen = self.spatial(tokens, query.expand(len(frames), -1, -1))
        side = PIXELS // 14
        cells = self.shrink(seen.transpose(1, 2).reshape(len(frames), 256, side, side))
        over_time = self.temporal(cells.flatten(2).transpose(1, 2).reshape(1, -1, 256))
        maps = over_time.reshape(len(frames), side // 2, side // 2, 256).permute(0, 3, 1, 2)
        return torch.stack([head(maps) for head in self.heads])


def dinov2() -> nn.Module:
    from transformers import Dinov2Config, Dinov2Model

    return Dinov2Model(Dinov2Config(patch_size=14, image_size=PIXELS)).eval()


def sam2_encoder() -> nn.Module:
    from transformers import Sam2VisionConfig, Sam2VisionModel

    return Sam2VisionModel(Sam2VisionConfig()).eval()  # its defaults are those of tiny


class Clock:
    """Times a function on a device, for at least some seconds after warming up."""

    def __init__(self, device: torch.device, least_s: float) -> None:
        self.device, self.least_s = device, least_s

    def seconds(self, work: Callable[[], Any]) -> float:
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            work()
            self._wait()
            started, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - started < self.least_s:
                work()
                count += 1
                self._wait()
            return (time.perf_counter() - started) / count

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def gflops(work: Callable[[], Any]) -> float:
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() / 1e9


def megabytes(network: nn.Module) -> float:
    return sum(p.numel() for p in network.parameters()) * 2 / 1e6


def ours(model: str, clock: Clock, batch: int) -> Cost:
    predictor = Localizer.from_pretrained(model, device=str(clock.device)).predictor
    canvas = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3), np.uint8)
    canvases, numbers = [canvas] * batch, np.arange(batch)
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    packed = predictor.encode(canvases, numbers, numbers / 5)
    prepared = predictor.prepare(query)
    reading_s = clock.seconds(lambda: predictor.encode(canvases, numbers, numbers / 5)) / batch
    asking_s = clock.seconds(lambda: predictor.coarse(prepared, packed.match, packed.match_scale)) / batch
    decoding_s = clock.seconds(lambda: predictor.decode(prepared, packed, predictor.start(prepared))) / batch
    preparing_s = clock.seconds(lambda: predictor.prepare(query))
    plain = Predictor(load_weights(find_weights(model)), device="cpu", engine="torch")
    counted = gflops(lambda: plain.encode(canvases[:1], numbers[:1], numbers[:1] / 5))
    counted += gflops(
        lambda: plain.decode(plain.prepare(query), packed[:1], plain.start(plain.prepare(query)))
    )
    size = find_weights(model).stat().st_size / 1e6
    return Cost(f"ours ({model})", reading_s, asking_s, preparing_s + DECODED * decoding_s, counted, size)


def vqloc(clock: Clock) -> Cost:
    network = VqlocSized().eval()
    window, query = torch.rand(WINDOW, 3, PIXELS, PIXELS), torch.rand(1, (PIXELS // 14) ** 2, 256)
    counted = gflops(lambda: network(window[:2], query)) / 2
    network.to(clock.device)
    window, query = window.to(clock.device), query.to(clock.device)
    asking_s = clock.seconds(lambda: network(window, query)) / WINDOW
    return Cost("VQLoC-sized", 0.0, asking_s, 0.0, counted, megabytes(network))


def relocate(clock: Clock, batch: int) -> Cost:
    network, frames = dinov2(), torch.rand(batch, 3, PIXELS, PIXELS)
    counted = gflops(lambda: network(frames[:1]))
    network.to(clock.device)
    frames = frames.to(clock.device)
    regions = torch.rand(batch * 50, 768, device=clock.device)  # some fifty regions a frame
    query = torch.rand(768, device=clock.device)
    reading_s = clock.seconds(lambda: network(frames)) / batch
    asking_s = clock.seconds(lambda: (regions @ query).topk(5)) / batch
    return Cost("DINOv2-B regions (RELOCATE)", reading_s, asking_s, 0.0, counted, megabytes(network))


def sam2(clock: Clock) -> Cost:
    network, frame = sam2_encoder(), torch.rand(1, 3, 1024, 1024)
    counted = gflops(lambda: network(frame))
    network.to(clock.device)
    frame = frame.to(clock.device)
    asking_s = clock.seconds(lambda: network(frame))
    return Cost("SAM 2 tiny, image encoder", 0.0, asking_s, 0.0, counted, megabytes(network))


def template_matching(clock: Clock) -> Cost:
    matcher, image = (
        TemplateMatcher(),
        np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3), np.uint8),
    )
    prepared = matcher.prepare([image] * 4)
    query = Query(image, Box(40, 40, 140, 120))
    asking_s = clock.seconds(lambda: matcher.match(query, prepared)) / 4
    return Cost("template matching", 0.0, asking_s, 0.0, float("nan"), 0.0)


def table(costs: list[Cost]) -> str:
    heads = [f"{minutes} min, {which}" for minutes in MINUTES for which in ("first", "second")]
    lines = [
        "| system | frames/s | GFLOPs | MB | " + " | ".join(heads) + " |",
        "|---|" + "---|" * (3 + len(heads)),
    ]
    for cost in costs:
        every_sample_s = cost.reading_s + cost.asking_s
        answers = [f"{s:.3g} s" for minutes in MINUTES for s in cost.answers_s(minutes)]
        numbers = f"{1 / every_sample_s:.4g} | {cost.gflops:.3g} | {cost.megabytes:.3g}"
        lines.append(f"| {cost.name} | {numbers} | " + " | ".join(answers) + " |")
    return "\n".join(lines)


def plot(costs: list[Cost], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    minutes = np.geomspace(0.5, 120, 40)
    for number, cost in enumerate(costs):
        first, second = np.array([cost.answers_s(m) for m in minutes]).T
        (line,) = axes.plot(minutes, first, label=cost.name, lw=2.5 if number == 0 else 1.2)
        axes.plot(minutes, second, "--", color=line.get_color(), lw=2.5 if number == 0 else 1.2)
    axes.set(
        xscale="log", yscale="log", xlabel="length of the video, minutes", ylabel="seconds to the answer"
    )
    axes.set_title("First answer (solid) and second answer (dashed)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="each measurement takes at least so long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    clock = Clock(torch.device(options.device), options.seconds)
    costs = [ours(options.model, clock, options.batch), vqloc(clock), relocate(clock, options.batch)]
    costs += [sam2(clock), template_matching(clock)]
    name = torch.cuda.get_device_name() if clock.device.type == "cuda" else f"{os.cpu_count()} cores"
    print(f"{name}, bfloat16; template matching always on the processor\n\n{table(costs)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1))
    if options.plot:
        plot(costs, options.plot)


if __name__ == "__main__":
    main()
