"""Objects shown several times in one composed video, from other sides and in other places: is the last found?

    python benchmarks/last_showing.py --data DIR --clips DIR [--split val] [--clips-a-half 36] [--rounds 1]
    python benchmarks/last_showing.py --data DIR --clips DIR --compare whole=search.probe=0
    python benchmarks/last_showing.py --data DIR --clips DIR --split val --gate

Constants of the temporal rule are chosen here, on the objects of the calibration (`--split val`), and the
others report (`heldout`). A showing lasts 16 samples or less, and a video has up to three of the object among
15 clips of other objects; each question is asked a second time of those others alone, where the object is
absent. Every question is answered; refusal.py says how refusals count. Clips are composed once and kept.
`--gate` asks nothing: it tells how many last showings each `search.coarse_margin` would pass over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.data.base import Track
from egohieraloc.files import write_json
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.search import QuerySearch
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import halved
from egohieraloc.training.composer.packs import Packs
from figures import Outcome, outcome, print_outcomes
from hard_clips import HARD, HardClip, composed, packs_of
from hard_heldout import encoded, joined, last_stretch, localizer, named_settings
from options import answer_options
from refusal import print_differences, print_rows, rows_by_group, to_json

SHOWINGS = 3  # of an object in a video, at most
OTHERS = 15  # clips without it
OBJECTS = 12  # of each half of the packs: few, so that each is shown several times
BATCH = 4  # clips composed at a time
MARGINS = (2, 3, 4, 5, 6)
LONG = update(
    HARD,
    {
        "frame_px": 448,
        "clip_frames": 16,
        "absent_share": 0.0,
        "size_px": (32.0, 240.0),
        "usual_size_px": (48.0, 200.0),
        "edge_share": 0.2,
        "motion_blur_share": 0.2,
        "pan": (0.05, 1.0),
    },
)


@dataclass(frozen=True, eq=False)
class Question:
    """A query, and a video that shows its object up to SHOWINGS times, or not at all."""

    name: str
    query: Query
    video: EncodedVideo
    truth: Track  # the last showing


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--clips", type=Path, required=True, help="composed clips are kept here")
    parser.add_argument("--split", choices=("heldout", "val"), default="heldout", help="which objects")
    parser.add_argument("--clips-a-half", type=int, default=36, help="of a round: half as many questions")
    parser.add_argument("--rounds", type=int, default=1, help="each with clips of its own")
    parser.add_argument("--workers", type=int, default=2, help="processes that ask")
    parser.add_argument("--compare", action="append", default=[], metavar="NAME[=SETTINGS]")
    parser.add_argument("--gate", action="store_true", help="last showings passed over, by coarse margin")
    options = parser.parse_args()
    if options.gate:
        print_gate(options)
        return
    asked = named_settings(options)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in asked}
    for seed in range(options.rounds):
        started = time.perf_counter()
        halves(options, seed)
        print(f"round {seed}: composed in {time.perf_counter() - started:.0f} s", flush=True)
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            for part in pool.map(partial(answers, options, asked, seed), range(options.workers)):
                for name, found in part.items():
                    outcomes[name] += found
    for name, settings in asked.items():
        print(f"\n{name}")
        rows = rows_by_group(outcomes[name], {}, localizer(options, settings)[1])
        print_rows(rows)
        if options.queries:
            print_outcomes(outcomes[name])
        if options.json:
            write_json(options.json.with_stem(f"{options.json.stem}-{name}"), to_json(rows))
    first, *others = asked
    for name in others:
        print_differences(name, outcomes[name], outcomes[first], {})


def print_gate(options: argparse.Namespace) -> None:
    """How many last showings lie farther below a video's best sample than each margin."""
    one, _ = localizer(options, options.settings)
    below = []
    for seed in range(options.rounds):
        for question in questions(one.predictor, halves(options, seed), seed):
            if not len(question.truth):
                continue
            search = QuerySearch(
                query=one.predictor.prepare(question.query),
                video=question.video,
                predictor=one.predictor,
                config=one.config.search,
                temporal=one.config.temporal,
            )
            coarse = search.coarse_scores()
            below.append(coarse.max() - coarse[question.truth.frames].max())
    for margin in MARGINS:
        print(f"margin {margin}: {np.sum(np.array(below) > margin)} of {len(below)} passed over")


def answers(
    options: argparse.Namespace, asked: Mapping[str, Sequence[str]], seed: int, part: int
) -> dict[str, list[Outcome]]:
    """One worker's share of a round."""
    localizers = {name: localizer(options, settings)[0] for name, settings in asked.items()}
    predictor = next(iter(localizers.values())).predictor
    outcomes: dict[str, list[Outcome]] = {name: [] for name in asked}
    for question in islice(questions(predictor, halves(options, seed), seed), part, None, options.workers):
        for name, one in localizers.items():
            found = one.ask(question.query, question.video)
            outcomes[name].append(outcome(question.name, question.truth, found))
    return outcomes


def questions(predictor: Predictor, clips: Sequence[Sequence[HardClip]], seed: int) -> Iterator[Question]:
    """Two for each clip whose object is seen: it is shown, and it is absent."""
    packed = {id(clip): encoded(clip, predictor) for half in clips for clip in half}
    rng = np.random.default_rng(seed)
    for side, half in enumerate(clips):
        for number, clip in enumerate(half):
            others = [clips[1 - side][k] for k in rng.permutation(len(clips[1 - side]))[:OTHERS]]
            same = [other for other in half if other.target == clip.target and other.presence.any()]
            shown = [same[k] for k in rng.permutation(len(same))[:SHOWINGS]]
            places = np.sort(rng.integers(len(others) + 1, size=len(shown)))
            if not shown:
                continue
            row = list(others)
            for before, (place, showing) in enumerate(zip(places.tolist(), shown, strict=True)):
                row.insert(place + before, showing)
            start = row.index(shown[-1]) * len(clip.frames)
            there = np.flatnonzero(shown[-1].presence)
            truth = last_stretch(Track(there + start, shown[-1].boxes_xyxy[there]))
            for found, video in ((truth, row), (Track.empty(), others)):
                features = [packed[id(one)] for one in video]
                name = f"half {side}, clip {number}, {len(shown) if len(found) else 0} shown"
                yield Question(name, clip.query, joined(features, video, predictor.config.input_size), found)


def halves(options: argparse.Namespace, seed: int) -> list[list[HardClip]]:
    """The clips of a round; those that are not there yet are composed."""
    return [_half(options, seed, side) for side in (0, 1)]


def _half(options: argparse.Namespace, seed: int, side: int) -> list[HardClip]:
    count = options.clips_a_half
    paths = [options.clips / f"showing-{options.split}-{seed}-{side}-{k}.npz" for k in range(count)]
    if not all(path.exists() for path in paths):
        options.clips.mkdir(parents=True, exist_ok=True)
        packs = some_objects(halved(packs_of(options.data, options.split))[side], seed)
        composer = ClipComposer(packs, LONG, options.device or "cpu", 2 * seed + side)
        for step in range(-(-count // BATCH)):
            chosen = paths[step * BATCH : (step + 1) * BATCH]
            for clip, path in zip(composed(composer, packs, step, len(chosen)), chosen, strict=True):
                clip.save(path)
    return [HardClip.load(path) for path in paths]


def some_objects(packs: Packs, seed: int) -> Packs:
    """OBJECTS of the scanned objects, others for every seed."""
    chosen: NDArray[np.int64] = np.random.default_rng(seed).permutation(len(packs.sprites))[:OBJECTS]
    return replace(
        packs,
        sprites=packs.sprites[chosen],
        sprite_direction=packs.sprite_direction[chosen],
        sprite_id=packs.sprite_id[chosen],
    )


if __name__ == "__main__":
    main()
