"""The commands that `tools/kill.py` kills: what each needs, and which of its files tell the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
for folder in ("tests", "tests/evaluation", "tests/geometry", "tests/memory", "tests/web"):
    sys.path.insert(0, str(ROOT / folder))

RECIPE = """
preset = "tiny"
start = "random"
[network]
input_size = 128
query_sizes = [64, 32]
[optim]
steps = 8
batch = 2
precision = "no"
log_every = 1
checkpoint_every = 2
[composer]
query_px = 64
frame_px = 128
clip_frames = 1
twin_similarity = 2.0
min_visible_px = 8.0
[validation]
queries = 0
"""
Words = list[str]


@dataclass(frozen=True)
class Job:
    """`commands(inputs, work)` are run one after the other; `resume` is added to them where a file that
    `resumes` matches is there. `free` matches names of files whose content may differ: logs with times, and
    recordings, as x264 writes the same frames in other bytes; `any_name` what then differs in names."""

    kills: int  # of 200
    prepare: Callable[[Path], None]
    commands: Callable[[Path, Path], list[Words]]
    resume: tuple[str, ...] = ()
    resumes: str = ""
    free: str = r"$^"
    any_name: str = r"$^"
    serves: bool = False


def untrained(inputs: Path) -> None:
    from untrained import untrained_model

    untrained_model(inputs)


def moving_square(inputs: Path) -> None:
    from recordings import image

    from egohieraloc.images import write_image

    untrained(inputs)
    for number in range(20):
        write_image(inputs / "frames" / f"{number}.png", image(0, number))


def rendered_walk(inputs: Path) -> None:
    from box_world import walk
    from egohieraloc.images import write_image

    untrained(inputs)
    for shot in walk(12):
        write_image(inputs / "frames" / f"{shot.frame.index}.png", shot.frame.rgb)


def composed_clips(inputs: Path) -> None:
    from pack_files import write_packs

    write_packs(inputs, coloured=True)
    (inputs / "recipe.toml").write_text(RECIPE)


def benchmark(inputs: Path) -> None:
    from fake_ego4d import make_tree

    untrained(inputs)
    make_tree(inputs, 2)


def short_clip(inputs: Path) -> None:
    from fake_localizer import write_clip

    untrained(inputs)
    write_clip(inputs / "walk.mp4")


def recordings(inputs: Path) -> None:
    from recordings import write_recording

    untrained(inputs)
    for seed in range(2):
        write_recording(inputs / f"2026031{seed}_120000.mp4", seed, seconds=2)


def seen_square(inputs: Path) -> None:
    from recordings import image, write_recording

    from egohieraloc.images import write_image

    untrained(inputs)
    write_recording(inputs / "20260310_120000.mp4", seconds=2)
    write_image(inputs / "square.png", image(0, 0)[10:40, :30])


def with_model(inputs: Path, *words: object) -> Words:
    return [*map(str, words), "--model", str(inputs / "tiny.safetensors"), "--device", "cpu"]


def locate(inputs: Path, work: Path) -> list[Words]:
    query = ("--at", "1", "--box", "5,10,20,20")
    place = ("--out", work / "out", "--cache", work / "cache")
    return [with_model(inputs, "locate", inputs / "frames", *query, *place)]


def locate_3d(inputs: Path, work: Path) -> list[Words]:
    quick = ["--3d", "--set", "sfm.max_features=600", "--set", "sfm.num_threads=1"]
    return [[*words, *quick] for words in locate(inputs, work)]


def train(inputs: Path, work: Path) -> list[Words]:
    recipe, out = str(inputs / "recipe.toml"), str(work / "out")
    return [["train", "--config", recipe, "--data", str(inputs), "--out", out]]


def evaluate(inputs: Path, work: Path) -> list[Words]:
    truth = ("--annotations", inputs / "vq_val.json", "--clips", inputs / "clips", "--workers", 2)
    place = ("--out", work / "out" / "vq2d.jsonl", "--cache", work / "cache")
    return [with_model(inputs, "eval", "vq2d", *truth, *place)]


def serve(inputs: Path, work: Path) -> list[Words]:
    return [with_model(inputs, "serve", "--port", 0, "--folder", work / "out")]


def remember(inputs: Path, work: Path) -> list[Words]:
    videos, memory = sorted(inputs.glob("*.mp4")), ("--memory", work / "memory")
    query = ("--from", videos[0].name, "--at", "0.5", "--box", "10,10,30,30", "--out", work / "out")
    return [
        with_model(inputs, "memory", "add", *videos, *memory),
        with_model(inputs, "memory", "ask", *query, *memory),
    ]


def watch(inputs: Path, work: Path) -> list[Words]:
    memory, segments = ("--memory", work / "memory"), ("--name", "hall", "--segment", 0.5)
    return [
        with_model(inputs, "watch", inputs / "20260310_120000.mp4", *memory, *segments),
        with_model(inputs, "memory", "ask", "--query", inputs / "square.png", "--out", work / "out", *memory),
    ]


JOBS: dict[str, Job] = {
    "locate": Job(50, moving_square, locate, free=r"report\.html$"),
    "locate --3d": Job(25, rendered_walk, locate_3d, free=r"report\.html$|/poses/"),
    "train": Job(30, composed_clips, train, ("--resume",), r"^checkpoint", r"log\.jsonl$|checkpoint"),
    "eval": Job(15, benchmark, evaluate, ("--resume",), r"^vq2d\.jsonl", r"results\.json$"),
    "serve": Job(15, short_clip, serve, serves=True),
    "memory add, ask": Job(40, recordings, remember, free=r"report\.html$|catalogue\.sqlite"),
    "watch, ask": Job(
        25, seen_square, watch, free=r"report\.html$|catalogue\.sqlite|recordings/", any_name="[0-9a-f]{24}"
    ),
}
