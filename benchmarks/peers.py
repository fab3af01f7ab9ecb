"""What an answer costs, ours beside networks of its peers' sizes, in one process and one run.

    python benchmarks/peers.py [--device cpu|cuda] [--compile] [--seconds 5] [--json FILE] [--plot FILE]
    python benchmarks/peers.py --drawn FILE.json --plot FILE     # of an earlier run, perhaps elsewhere

The peers are built from the sizes in their papers, with random weights: what is measured is cost, not
accuracy. A video has 5 samples a second, decoded beforehand. Answers about 1, 10 and 60 minutes are the
measured times of a sample, added up; on CUDA a whole first question about 10 minutes is measured as well:

- ours: the first question encodes every second sample and those between where it decodes, a further one
  none; it compares the descriptors of half of the samples and decodes at most 250.
  "network alone" has images and features on the device, as the peers have; the other line is
  `Predictor`, from images in main memory to features in main memory, boxes and masks. `--frames 1280x720`:
  frames of that shape, which have fewer pixels here; the peers take squares.
- VQLoC: DINOv2 ViT-B/14, cross-attention with the query, three layers over windows of 30 frames, heads; the
  whole of it for every question, as its query enters before the layers over time. `--compile`: ours and it
  by torch.compile (mode default) as well.
- RELOCATE: DINOv2 ViT-B/14 for every sample, once, without its region proposals; a question compares regions.
- SAM 2: its tiny image encoder at 1024 pixels, once; following adds its memory attention, which is not here.
  Left out where transformers is not installed.
- template matching (OpenCV), six sizes, for every question.
"""

from __future__ import annotations

import argparse
import copy
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
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from egohieraloc import demo
from egohieraloc.inference.predict import Predictor
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.query import Query
from egohieraloc.types import Box
from egohieraloc.video.canvas import Size, canvas_for
from options import frame_size

SAMPLES_PER_MINUTE = 300
DECODED = 250  # samples of a question, with their neighbours
MINUTES = (1, 10, 60)
MEASURED_MINUTES = 10
PIXELS = 448
WINDOW = 30  # frames that VQLoC's layers over time see together
REGIONS = 50  # of a frame, in RELOCATE
BATCHES = {"cpu": 8, "cuda": 128}


@dataclass(frozen=True)
class Cost:
    """Of one system: what it does once for every sample, and again for every question."""

    name: str
    reading_s: float  # a sample, once for a video
    asking_s: float  # a sample, for every question
    question_s: float  # a question, whatever the length
    gflops: float  # a sample that goes through all of it
    megabytes: float  # of weights, as they ship (peers: in half precision)
    every_sample_s: float  # a sample that goes through all of it
    read_share: float = 1.0  # of the samples that the first question reads ...
    read_besides: int = 0  # ... and so many more

    def answers_s(self, minutes: float) -> tuple[float, float]:
        """The first answer about an unread video, and the second."""
        samples = minutes * SAMPLES_PER_MINUTE
        asking = samples * self.asking_s + self.question_s
        read = min(samples, self.read_share * samples + self.read_besides)
        return read * self.reading_s + asking, asking


class VitB14(nn.Module):
    """The size of DINOv2's ViT-B/14: twelve layers of width 768 over 32 x 32 patches and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 14, stride=14)
        self.first = nn.Parameter(torch.zeros(1, 1, 768))
        self.position = nn.Parameter(torch.zeros(1, 1 + (PIXELS // 14) ** 2, 768))
        layer = nn.TransformerEncoderLayer(
            768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 12, nn.LayerNorm(768), enable_nested_tensor=False)

    def forward(self, frames: Tensor) -> Tensor:
        """Tokens (B, 1024, 768) of frames (B, 3, 448, 448)."""
        tokens = self.patches(frames).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(frames), -1, -1).to(tokens.dtype), tokens], 1)
        seen: Tensor = self.layers(tokens + self.position.to(tokens.dtype))
        return seen[:, 1:]


class VqlocSized(nn.Module):
    """The sizes of VQLoC (Jiang et al. 2023): ViT-B/14, width 256, 16 x 16 cells of 30 frames."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = VitB14()
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
        tokens = self.reduce(self.backbone(frames))
        seen = self.spatial(tokens, query.expand(len(frames), -1, -1))
        side = PIXELS // 14
        cells = self.shrink(seen.transpose(1, 2).reshape(len(frames), 256, side, side))
        over_time = self.temporal(cells.flatten(2).transpose(1, 2).reshape(1, -1, 256))
        maps = over_time.reshape(len(frames), side // 2, side // 2, 256).permute(0, 3, 1, 2)
        return torch.stack([head(maps) for head in self.heads])


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


def gflops(network: nn.Module, *shapes: tuple[int, ...]) -> float:
    """Of a network for inputs of these shapes; nothing is computed."""
    counted = copy.deepcopy(network).to("meta")
    inputs = [torch.empty(shape, device="meta") for shape in shapes]
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        counted(*inputs)
    return counter.get_total_flops() / 1e9


def megabytes(network: nn.Module) -> float:
    return sum(p.numel() for p in network.parameters()) * 2 / 1e6


class Ours:
    """Our network, as `Predictor` runs it and alone."""

    def __init__(self, model: str, clock: Clock, frames: Size, engine: str | None = None) -> None:
        self.clock, self.model = clock, model
        weights = load_weights(find_weights(model))
        self.predictor = Predictor(weights, device=str(clock.device), engine=engine)
        self.query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
        self.batch = BATCHES[clock.device.type]
        (width, height), _ = canvas_for(*frames, PIXELS)
        self.canvases = np.random.default_rng(0).integers(0, 256, (self.batch, height, width, 3), np.uint8)
        self.prepared = self.predictor.prepare(self.query)
        plain = Predictor(weights, device="cpu", engine="torch")
        query = plain.prepare(self.query)
        with FlopCounterMode(display=False) as counter:
            plain.decode(query, plain.encode(self.canvases[:1]), plain.start(query))
        self.gflops = counter.get_total_flops() / 1e9

    def predicted(self) -> Cost:
        """From images in main memory."""
        predictor, query, canvases = self.predictor, self.prepared, list(self.canvases)
        packed = predictor.encode(canvases)
        return self._cost(
            f"ours ({self.model}), {predictor.engine}",
            lambda: predictor.encode(canvases),
            lambda: predictor.coarse(query, packed.match, packed.match_scale),
            lambda: predictor.decode(query, packed, predictor.start(query)),
        )

    def alone(self) -> Cost:
        """From images on the device."""
        images, features = self._images(), self._encode(self._images())
        template, network = self.prepared.template, self.predictor.network
        return self._cost(
            f"ours ({self.model}), network alone{', torch.compile' * (self.predictor.engine == 'compiled')}",
            lambda: self._encode(images),
            lambda: network.coarse_logits(features.match, template),
            lambda: network.match(template, features, network.initial_state(template)),
        )

    def first_answer_s(self, minutes: float) -> float:
        """A whole first question, measured: the network alone."""
        samples = round(minutes * SAMPLES_PER_MINUTE)
        images, network, batch = self._images(), self.predictor.network, self.batch

        def ask() -> Tensor:
            template = self.predictor.prepare(self.query).template
            state = network.initial_state(template)
            logits = []
            for start in range(0, samples // 2, batch):
                features = self._encode(images[: min(batch, samples // 2 - start)])
                logits.append(network.coarse_logits(features.match, template))
            best = torch.cat(logits).topk(min(DECODED // 2, samples // 2))
            for start in range(0, DECODED // 2, batch):  # those between them are not there yet
                features = self._encode(images[: min(batch, DECODED // 2 - start)])
            for _ in range(0, DECODED, len(features)):
                network.match(template, features, state)
            return best.indices.cpu()

        return self.clock.seconds(ask)

    def _images(self) -> Tensor:
        return torch.from_numpy(self.canvases).to(self.clock.device)

    def _encode(self, images: Tensor) -> FrameFeatures:
        with torch.inference_mode(), torch.autocast(images.device.type, torch.bfloat16):
            return self.predictor.network.encode_frames(images.permute(0, 3, 1, 2).float() / 255)

    def _cost(
        self, name: str, encode: Callable[[], Any], look: Callable[[], Any], decode: Callable[[], Any]
    ) -> Cost:
        reading_s, looking_s, decoding_s = (
            self.clock.seconds(f) / self.batch for f in (encode, look, decode)
        )
        preparing_s = self.clock.seconds(lambda: self.predictor.prepare(self.query))
        size = find_weights(self.model).stat().st_size / 1e6
        return Cost(
            name,
            reading_s,
            looking_s / 2,
            preparing_s + DECODED * decoding_s,
            self.gflops,
            size,
            reading_s + decoding_s,
            read_share=0.5,
            read_besides=DECODED // 2,
        )


def vqloc(clock: Clock, *, compiled: bool) -> list[Cost]:
    network = VqlocSized().eval()
    shapes = (WINDOW, 3, PIXELS, PIXELS), (1, (PIXELS // 14) ** 2, 256)
    counted = gflops(network, *shapes) / WINDOW
    network.to(clock.device)
    window, query = (torch.rand(shape, device=clock.device) for shape in shapes)
    ways: list[tuple[str, Callable[..., Any]]] = [("VQLoC-sized", network)]
    if compiled:
        ways.append(("VQLoC-sized, torch.compile", torch.compile(network, dynamic=False)))
    costs = []
    for name, run in ways:
        asking_s = clock.seconds(lambda run=run: run(window, query)) / WINDOW  # type: ignore[misc]
        costs.append(Cost(name, 0.0, asking_s, 0.0, counted, megabytes(network), asking_s))
    return costs


def relocate(clock: Clock) -> Cost:
    network, batch = VitB14().eval(), BATCHES[clock.device.type]
    counted = gflops(network, (1, 3, PIXELS, PIXELS))
    network.to(clock.device)
    frames = torch.rand(batch, 3, PIXELS, PIXELS, device=clock.device)
    regions = torch.rand(batch * REGIONS, 768, device=clock.device)
    query = torch.rand(768, device=clock.device)
    reading_s = clock.seconds(lambda: network(frames)) / batch
    asking_s = clock.seconds(lambda: (regions @ query).topk(5)) / batch
    name = "DINOv2-B regions (RELOCATE)"
    return Cost(name, reading_s, asking_s, 0.0, counted, megabytes(network), reading_s + asking_s)


def sam2(clock: Clock) -> Cost | None:
    try:
        from transformers import Sam2VisionConfig, Sam2VisionModel
    except ImportError as error:
        print(f"SAM 2 is left out: {error}")
        return None
    network = Sam2VisionModel(Sam2VisionConfig()).eval()  # its defaults are those of tiny
    counted = gflops(network, (1, 3, 1024, 1024))
    network.to(clock.device)
    frame = torch.rand(1, 3, 1024, 1024, device=clock.device)
    asking_s = clock.seconds(lambda: network(frame))
    return Cost("SAM 2 tiny, image encoder", 0.0, asking_s, 0.0, counted, megabytes(network), asking_s)


def template_matching(clock: Clock) -> Cost:
    from matchers import TemplateMatcher

    matcher = TemplateMatcher()
    image = np.random.default_rng(0).integers(0, 256, (PIXELS, PIXELS, 3), np.uint8)
    prepared = matcher.prepare([image] * 4)
    query = Query(image, Box(40, 40, 140, 120))
    asking_s = clock.seconds(lambda: matcher.match(query, prepared)) / 4
    return Cost("template matching", 0.0, asking_s, 0.0, float("nan"), 0.0, asking_s)


def table(costs: list[Cost]) -> str:
    heads = [f"{minutes} min, {which}" for minutes in MINUTES for which in ("first", "second")]
    lines = [
        "| system | frames/s | GFLOPs | MB | " + " | ".join(heads) + " |",
        "|---|" + "---|" * (3 + len(heads)),
    ]
    for cost in costs:
        answers = [f"{s:.3g} s" for minutes in MINUTES for s in cost.answers_s(minutes)]
        numbers = f"{1 / cost.every_sample_s:.4g} | {cost.gflops:.3g} | {cost.megabytes:.3g}"
        lines.append(f"| {cost.name} | {numbers} | " + " | ".join(answers) + " |")
    return "\n".join(lines)


def plot(costs: list[Cost], path: Path, device: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    minutes = np.geomspace(0.5, 120, 40)
    for number, cost in enumerate(costs):
        first, second = np.array([cost.answers_s(m) for m in minutes]).T
        (line,) = axes.plot(minutes, first, label=cost.name, lw=2.5 if number == 0 else 1.2)
        axes.plot(minutes, second, "--", color=line.get_color(), lw=2.5 if number == 0 else 1.2)
    axes.set(
        xscale="log", yscale="log", xlabel="length of the video, minutes", ylabel="seconds to the answer"
    )
    axes.set_title(f"First answer (solid) and second answer (dashed), {device}", fontsize=10)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right upper")
    figure.savefig(path, dpi=150)


def whole_question(systems: list[Ours], peers: list[Cost]) -> dict[str, float]:
    """A first question about an unread video, ours measured whole: seconds, and how many times a peer's."""
    found = {peer.name: peer.answers_s(MEASURED_MINUTES)[0] for peer in peers}
    for ours in systems:
        spent_s = ours.first_answer_s(MEASURED_MINUTES)
        times = ", ".join(
            f"{name} {found[name] / spent_s:.1f} times as long" for name in (p.name for p in peers)
        )
        engine = ours.predictor.engine
        print(f"\nfirst answer about {MEASURED_MINUTES} minutes, ours by {engine}: {spent_s:.3f} s; {times}")
        found[f"ours, {engine}"] = spent_s
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--frames", type=frame_size, default=(PIXELS, PIXELS), help="of ours, as 1280x720")
    parser.add_argument("--compile", action="store_true", help="torch.compile ours and a peer, too")
    parser.add_argument("--seconds", type=float, default=5.0, help="each measurement takes at least so long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--drawn", type=Path, help="measure nothing, plot what an earlier run wrote")
    options = parser.parse_args()
    if options.drawn:
        facts = json.loads(options.drawn.read_text())
        plot([Cost(**cost) for cost in facts["costs"]], options.plot, facts["device"])
        return
    torch.backends.mha.set_fastpath_enabled(False)  # it knows neither autocast nor the counting of FLOPs
    clock = Clock(torch.device(options.device), options.seconds)
    on_cuda = clock.device.type == "cuda"
    name = torch.cuda.get_device_name() if on_cuda else f"{os.cpu_count()} cores"
    print(f"{name}, bfloat16; template matching always on the processor\n", flush=True)
    systems = [Ours(options.model, clock, options.frames)]
    if on_cuda and options.compile:
        systems.append(Ours(options.model, clock, options.frames, "compiled"))
    costs = [*(ours.alone() for ours in systems if on_cuda), systems[0].predicted()]
    networks = vqloc(clock, compiled=options.compile)
    costs += [*networks, relocate(clock), *filter(None, [sam2(clock)]), template_matching(clock)]
    print(table(costs), flush=True)
    whole = whole_question(systems, networks) if on_cuda else {}
    if options.json:
        facts = {"device": name, "costs": [asdict(cost) for cost in costs], "first_answer_s": whole}
        options.json.write_text(json.dumps(facts, indent=1))
    if options.plot:
        plot(costs, options.plot, name)


if __name__ == "__main__":
    main()
