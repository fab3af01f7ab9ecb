"""What a question costs when the video grows to hours: seconds, bytes, and the most memory the process had.

    python benchmarks/memory_hours.py [--data DIR] [--hours 0.1 1 10 100] [--minutes 60] [--plot FILE]

The demo clip, in which the object is, lies once in a long row of other footage: the clips of ego_dev/, a few
composed ones (photos/, sprites/) and pans over photos/ in DIR, `--minutes` of distinct footage in all, over
and over in another order and with codewords changed a little each time. Without DIR the demo clip itself is
repeated. Of other footage every second sample is made, as a first reading does, and stands for the next. Each
length is asked in a process of its own, five times after a first one; times are medians, in seconds.
`shortlist` is the comparison with what is remembered, `look` that with descriptors, `decode` what follows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import cv2
import numpy as np

from ego_dev import PLACES, open_videos
from egohieraloc import Localizer, Query, Video, demo, threads
from egohieraloc.config import NetworkConfig
from egohieraloc.files import write_json
from egohieraloc.inference.chunks import PHASES, STRETCH
from egohieraloc.inference.encoded import EncodedVideo, write_features
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.regions import CODEWORDS, Codes, RegionMemory, codebook
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.store import FeatureStore
from egohieraloc.training.composer.composed_videos import compose_halves
from egohieraloc.training.composer.packs import Packs, read_packs
from egohieraloc.types import Ints, ResponseTrack, Rgb
from egohieraloc.video.letterbox import Letterbox
from speed import shown_again

FPS = 5.0
ASKED = 5  # times
CHANGE = 7  # at most so much a repeated codeword's sides differ by, of 127
COMPOSED_SHARE = 0.05  # of other footage; composing takes the most time
PAN_SAMPLES = 64  # over one photo


@dataclass(frozen=True)
class Cost:
    """Of one question of a video of some length."""

    hours: float
    shortlist_s: float
    look_s: float
    decode_s: float
    total_s: float
    decoded: int  # samples
    memory_bytes: int  # of the memory on disk
    peak_bytes: int  # of the process
    found: bool  # in the demo clip


class Repeated(FeatureStore):
    """The features of a row of stretches, some of them the same."""

    def __init__(self, folder: Path, order: Ints, clip: int) -> None:
        super().__init__(folder)
        self.order = order  # (stretches,) of the row: which stretch of the folder each one is
        self.clip = clip  # stretches of the demo clip, which has all of its samples

    def _path(self, number: int) -> Path:
        place, phase = divmod(number, PHASES)
        stretch = int(self.order[place])
        return super()._path(stretch * PHASES + (phase if stretch < self.clip else 0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--hours", type=float, nargs="+", default=[0.1, 1.0, 10.0, 100.0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of distinct footage")
    parser.add_argument("--folder", type=Path, help="keep the features here; without it they are made anew")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)  # ask about that many hours, here
    options = parser.parse_args()
    if options.one is not None:
        print(*asdict(ask(options, options.folder, options.one)).values())
        return
    threads.settle()  # of the processes that are measured, as the command line does it
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        make_footage(options, folder)
        for hours in options.hours:
            remembered(folder, hours)  # before the processes that are measured
        costs = [in_a_process(options, folder, hours) for hours in options.hours]
    print("| hours | shortlist s | look s | decode s | question s | memory MB | process MB | found |")
    print("|---|---|---|---|---|---|---|---|")
    for c in costs:
        seconds = f"{c.shortlist_s:.2f} | {c.look_s:.2f} | {c.decode_s:.2f} ({c.decoded}) | {c.total_s:.2f}"
        print(
            f"| {c.hours:g} | {seconds} | {c.memory_bytes / 1e6:.0f} | {c.peak_bytes / 1e6:.0f} | {c.found} |"
        )
    if options.json:
        write_json(options.json, [asdict(cost) for cost in costs])
    if options.plot:
        plot(costs, options.plot)


def in_a_process(options: argparse.Namespace, folder: Path, hours: float) -> Cost:
    words = ["--one", str(hours), "--folder", str(folder), "--model", options.model]
    words += ["--device", options.device] if options.device else []
    command = [sys.executable, __file__, *words]
    row = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    kinds = [float, float, float, float, float, int, int, int, lambda word: word == "True"]
    return Cost(*(kind(word) for kind, word in zip(kinds, row, strict=True)))  # type: ignore[operator]


def make_footage(options: argparse.Namespace, folder: Path) -> None:
    """Features and codewords of the demo clip, in the first stretches, and of other footage after it."""
    if (folder / "clip.txt").exists():
        return
    localizer = Localizer.from_pretrained(options.model, device=options.device, cache=folder / "cache")
    predictor, store = localizer.predictor, FeatureStore(folder / "footage")
    memory = RegionMemory(store.folder)
    clip = localizer.encode(Video.open(demo.CLIP), dense=True)
    whole = len(clip) // STRETCH
    write_features(clip.pick(range(whole * STRETCH)), store, memory)
    number, size = whole * PHASES, STRETCH // PHASES
    images = other_images(options.data, predictor, round(options.minutes * 60 * FPS / PHASES))
    while len(batch := [filling(image, clip.letterbox) for image in islice(images, size)]) == size:
        if not memory.has(number):  # else an earlier run was cut short
            if (packed := store.read(number)) is None:
                packed = predictor.encode(batch)
                store.write(number, packed)
            memory.add(number, codebook(packed.match))
        number += PHASES
    (folder / "clip.txt").write_text(f"{whole}\n")


def codewords(folder: Path) -> Codes:
    """(stretches, CODEWORDS, D) of the footage."""
    width = NetworkConfig().neck.match
    return np.memmap(folder / "footage" / "codewords.int8", np.int8, "r").reshape(-1, CODEWORDS, width)


def filling(image: Rgb, letterbox: Letterbox) -> Rgb:
    """An image of any shape as one of the demo clip's, on its canvas."""
    return letterbox.apply(cv2.resize(image, letterbox.content_size, interpolation=cv2.INTER_AREA))


def other_images(data: Path | None, predictor: Predictor, count: int) -> Iterator[Rgb]:
    """Real samples, then pans, then composed ones, `count` in all; nothing without data."""
    if data is None:
        return
    packs, few = read_packs(data, split="heldout"), round(COMPOSED_SHARE * count)
    yield from islice(chain(real(data), pans(packs, count)), count - few)
    yield from composed(packs, predictor, few)


def real(data: Path) -> Iterator[Rgb]:
    for video in open_videos(data / "ego_dev", PLACES).values():
        yield from (frame.rgb for frame in video.samples(None))


def composed(packs: Packs, predictor: Predictor, count: int) -> Iterator[Rgb]:
    clips = (
        clip
        for seed in range(count)
        for half in compose_halves(packs, predictor.device, clips=16, seed=seed)
        for clip in half
    )
    yield from islice((frame for clip in clips for frame in clip.frames), count)


def pans(packs: Packs, count: int) -> Iterator[Rgb]:
    """A window of a photo that moves and grows."""
    random, side = np.random.default_rng(0), int(packs.photos.shape[1])
    size = NetworkConfig().input_size
    for _ in range(-(-count // PAN_SAMPLES)):
        photo = packs.photos[int(random.integers(len(packs.photos)))].numpy()
        widths, corners = random.uniform(0.5, 0.9, (2, 1)) * side, random.uniform(0, 1, (2, 2))
        for share in np.linspace(0, 1, PAN_SAMPLES)[:, None]:
            width = ((1 - share) * widths[0] + share * widths[1]).item()
            x, y = ((1 - share[0]) * corners[0] + share[0] * corners[1]) * (side - width)
            window = photo[int(y) : int(y + width), int(x) : int(x + width)]
            yield cv2.resize(window, (size, size), interpolation=cv2.INTER_CUBIC)


def row_of(folder: Path, hours: float) -> tuple[Ints, int]:
    """Which stretch of the footage each one of a video of that length is, and how many the demo clip has."""
    clip, count = int((folder / "clip.txt").read_text()), len(codewords(folder))
    random, length = np.random.default_rng(0), max(clip, round(hours * 3600 * FPS / STRETCH))
    others = np.arange(clip, count) if count > clip else np.arange(clip)
    order = np.concatenate([random.permutation(others) for _ in range(-(-length // len(others)))])[:length]
    place = int(0.7 * (length - clip))
    order[place : place + clip] = np.arange(clip)
    return order, clip


def remembered(folder: Path, hours: float) -> RegionMemory:
    """The memory of such a video; it is made unless it is there."""
    memory, books = RegionMemory(folder / f"memory-{hours:g}"), codewords(folder)
    memory.folder.mkdir(exist_ok=True)
    for stretch, one in enumerate(row_of(folder, hours)[0]):
        if not memory.has(stretch * PHASES):
            memory.add(stretch * PHASES, changed(books[one], np.random.default_rng(stretch)))
    return memory


def long_video(folder: Path, hours: float, like: EncodedVideo) -> EncodedVideo:
    """A video of that length."""
    order, clip = row_of(folder, hours)
    index = np.arange(len(order) * STRETCH)
    video = replace(like.video, frame_index=index, time_s=index / FPS, sample_fps=FPS)
    store, memory = Repeated(folder / "footage", order, clip), remembered(folder, hours)
    # A look back at other footage reads the clip's beginning, which does not show the object either.
    rows = np.where(order < clip, order, 0)[:, None] * STRETCH + np.arange(STRETCH)
    frames = partial(shown_again, like, rows.ravel(), STRETCH)
    return replace(like, video=video, store=store, reading=None, memory=memory, pixels=frames)


def changed(words: Codes, random: np.random.Generator) -> Codes:
    """Codewords that differ a little."""
    moved = words.astype(np.int16) + random.integers(-CHANGE, CHANGE, words.shape, np.int8, endpoint=True)
    return np.clip(moved, -127, 127).astype(np.int8)


def ask(options: argparse.Namespace, folder: Path, hours: float) -> Cost:
    localizer = Localizer.from_pretrained(options.model, device=options.device, cache=folder / "cache")
    truth = demo.load_truth()
    query = Query.from_image(demo.QUERY, box=truth.query_box)
    video = long_video(folder, hours, localizer.encode(Video.open(demo.CLIP)))
    assert video.memory is not None
    memory_bytes = sum(file.stat().st_size for file in video.memory.folder.iterdir())
    result = localizer.ask(query, video)
    laps = [timed(localizer, query, video) for _ in range(ASKED)]
    shortlist_s, look_s, decode_s, total_s = np.median([lap[:4] for lap in laps], axis=0).tolist()
    order, clip = row_of(folder, hours)
    track = result.track
    found = isinstance(track, ResponseTrack) and bool(order[track.start // STRETCH] < clip)
    # Not ru_maxrss, which begins with that of the process that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024
    return Cost(hours, shortlist_s, look_s, decode_s, total_s, int(laps[0][4]), memory_bytes, peak, found)


def timed(localizer: Localizer, query: Query, video: EncodedVideo) -> tuple[float, float, float, float, int]:
    """Seconds of the parts of a question and of the whole, and how many samples were decoded."""
    search = QuerySearch(
        query=localizer.predictor.prepare(query),
        video=video,
        predictor=localizer.predictor,
        config=localizer.config.search,
        temporal=localizer.config.temporal,
    )
    start = time.perf_counter()
    search.shortlist()
    listed = time.perf_counter()
    search.coarse_scores()
    looked = time.perf_counter()
    answer = localizer.ask(query, video)
    total_s = time.perf_counter() - looked
    coarse_s = looked - listed  # which makes the shortlist again, sooner where the first was not at hand
    shortlist_s = min(listed - start, coarse_s)
    look_s = coarse_s - shortlist_s
    decoded = int(np.count_nonzero(answer.curve.raw))
    return shortlist_s, look_s, total_s - shortlist_s - look_s, total_s, decoded


def plot(costs: Sequence[Cost], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    hours = [cost.hours for cost in costs]
    below = np.zeros(len(costs))
    for name in ("shortlist", "look", "decode"):
        seconds = np.array([getattr(cost, f"{name}_s") for cost in costs])
        left.fill_between(hours, below, below + seconds, label=name, alpha=0.7)
        below += seconds
    left.axhline(1, color="black", linewidth=0.8, linestyle=":")
    left.set(xscale="log", xlabel="hours of video", ylabel="seconds of a question", ylim=(0, None))
    left.legend(loc="best")
    right.plot(hours, [cost.memory_bytes / 1e6 for cost in costs], "o-", label="memory on disk")
    right.plot(hours, [cost.peak_bytes / 1e6 for cost in costs], "s-", label="process, at most")
    right.set(xscale="log", yscale="log", xlabel="hours of video", ylabel="MB")
    right.legend()
    for axes in (left, right):
        axes.set_xticks(hours, [f"{each:g}" for each in hours])
        axes.minorticks_off()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
