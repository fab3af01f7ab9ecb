"""Hard questions about held-out objects in long composed videos, by what makes them hard.

    python benchmarks/hard_heldout.py --data DIR --clips DIR [--model FILE|NAME] [--questions 640]
    python benchmarks/hard_heldout.py --data DIR --clips DIR --compare without-second-look --compare dpm-only

The objects are never trained on. Each is seen from another side than in its query, small, covered, blurred or
beside an object that looks like it, in one clip of a video of 1,000 samples (or as many as there are clips
for); a third of the objects are absent. Clips are composed once and kept in `--clips`; `--rounds 3` asks
three times as many questions, about other clips. Every question is answered; refusal.py says how refusals
count.

`--split val` asks about the objects of the calibration instead, to choose by. `--crowded`: every clip has an
object that looks like the target beside it, most have something in front, and fewer objects are absent.

`--compare` asks the same questions again under the settings of an ablation, or NAME=SETTINGS (commas between
several), from the same features, and gives the difference to the first row question by question, with its
interval. `--against NAME=FILE` does so with other weights. `--json` keeps every question's outcome too:
seeds.py compares weights of several seeds with it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from egohieraloc.ablations import find_ablation
from egohieraloc.data.base import Track
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.files import write_json
from egohieraloc.inference.chunks import samples_of
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.store import FeatureStore
from egohieraloc.localize import Localizer
from egohieraloc.types import Frame, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.letterbox import Letterbox
from figures import Outcome, outcome, print_outcomes
from hard_clips import FRAME_PX, Difficulty, HardClip, hard_clips
from options import answer_options
from refusal import (
    answering_localizer,
    banded,
    print_differences,
    print_rows,
    rows_by_group,
    to_json,
)

SAMPLES = 1000  # of a video, at least
FPS = 5.0
OWN = "as shipped"
COVERED = 0.05  # share of an object from which it counts as covered


class ClipFeatures(FeatureStore):
    """Features of clips of one length, joined in memory."""

    def __init__(self, clips: Sequence[PackedFeatures]) -> None:
        super().__init__(Path("in memory"))
        self._clips = clips
        self._length = len(clips[0])

    def __len__(self) -> int:
        return self._length * len(self._clips)

    def has(self, number: int) -> bool:
        return True

    def read(self, number: int) -> PackedFeatures:
        return PackedFeatures.cat(list(self._samples(number)))

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        samples = list(self._samples(number))
        return np.concatenate([s.match for s in samples]), np.concatenate([s.match_scale for s in samples])

    def _samples(self, number: int) -> Iterator[PackedFeatures]:
        for sample in samples_of(number, len(self)):
            clip, place = divmod(sample, self._length)
            yield self._clips[clip][place : place + 1]


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--clips", type=Path, required=True, help="composed clips are kept here")
    parser.add_argument("--split", choices=("heldout", "val"), default="heldout", help="which objects")
    parser.add_argument("--questions", type=int, default=640, help="of a round, a multiple of 16")
    parser.add_argument("--frame-px", type=int, default=FRAME_PX, help="448 without a second look: faster")
    parser.add_argument("--crowded", action="store_true", help="rivals in all clips, more things in front")
    parser.add_argument("--rounds", type=int, default=1, help="each with clips of its own")
    parser.add_argument("--workers", type=int, default=2, help="processes that compose and ask")
    parser.add_argument("--compare", action="append", default=[], metavar="NAME[=SETTINGS]")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=FILE", help="other weights")
    options = parser.parse_args()
    asked = named_settings(options)
    models = {OWN: options.model} | dict(word.split("=", 1) for word in options.against)
    asked |= {name: list(options.settings) for name in models}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in asked}
    difficulties: list[Difficulty] = []
    for number in range(options.rounds):
        started = time.perf_counter()
        clips(options, number)
        composed = time.perf_counter()
        parts = partial(answers, options, asked, models, number)
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            for part in pool.map(parts, range(options.workers)):
                found, difficult = part
                for name, some in found.items():
                    outcomes[name] += some
                difficulties += difficult
        print(
            f"round {number}: composed in {composed - started:.0f} s, "
            f"encoded and asked in {time.perf_counter() - composed:.0f} s",
            flush=True,
        )
    groups = groups_of(difficulties)
    rows = {
        name: rows_by_group(
            outcomes[name], groups, localizer(options, settings, models.get(name, options.model))[1]
        )
        for name, settings in asked.items()
    }
    for name, table in rows.items():
        print(f"\n{name}")
        print_rows(table)
        if options.queries:
            print_outcomes(outcomes[name])
    for name in list(asked)[1:]:
        print_differences(name, outcomes[name], outcomes[OWN], groups)
    if options.json:
        tables = {name: to_json(table) for name, table in rows.items()}
        write_json(options.json, {"rows": tables, "questions": question_rows(outcomes, difficulties)})


def question_rows(
    outcomes: Mapping[str, Sequence[Outcome]], difficulties: Sequence[Difficulty]
) -> list[dict[str, object]]:
    """What became of every question, for seeds.py."""
    return [
        {
            "present": len(one[OWN].truth) > 0,
            "difficulty": {k: None if v != v else v for k, v in asdict(difficulty).items()},  # no NaN
            "tube_iou": {name: float(overlap(o.truth, o.answer)[1]) for name, o in one.items()},
            "score": {name: o.score for name, o in one.items()},
        }
        for one, difficulty in zip(by_question(outcomes), difficulties, strict=True)
    ]


def by_question(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[dict[str, Outcome]]:
    """The rows' outcomes of one question after the other."""
    for row in zip(*outcomes.values(), strict=True):
        yield dict(zip(outcomes, row, strict=True))


def named_settings(options: argparse.Namespace) -> dict[str, list[str]]:
    """Settings to ask with, by name: those given, and those to compare."""
    asked = {OWN: list(options.settings)}
    for word in options.compare:
        name, _, settings = word.partition("=")
        changes = settings.split(",") if settings else find_ablation(name).settings
        asked[name] = [*options.settings, *changes]
    return asked


def clips(options: argparse.Namespace, seed: int) -> list[list[HardClip]]:
    """The clips of a round; those that are not there yet are composed."""
    return hard_clips(
        options.data,
        options.clips,
        options.questions,
        split=options.split,
        seed=seed,
        frame_px=options.frame_px,
        crowded=options.crowded,
        device=options.device or "cpu",
        workers=options.workers,
    )


def answers(
    options: argparse.Namespace,
    asked: Mapping[str, Sequence[str]],
    models: Mapping[str, str],
    seed: int,
    part: int,
) -> tuple[dict[str, list[Outcome]], list[Difficulty]]:
    """One worker's share of a round: all rows of one model after those of another."""
    chosen, hard = slice(part, None, options.workers), clips(options, seed)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in asked}
    difficulties: list[Difficulty] = []
    for model in dict.fromkeys(models.values()):
        localizers = {
            name: localizer(options, settings, model)[0]
            for name, settings in asked.items()
            if models.get(name, options.model) == model
        }
        difficulties = []
        for found, difficulty in ask(localizers, hard, seed=seed, chosen=chosen):
            for name, one in found.items():
                outcomes[name].append(one)
            difficulties.append(difficulty)
    return outcomes, difficulties


def localizer(
    options: argparse.Namespace, settings: Sequence[str], model: str | None = None
) -> tuple[Localizer, float]:
    """With settings of its own, and the threshold at which it would refuse. Features stay in memory."""
    return answering_localizer(
        model or options.model,
        device=options.device,
        engine=options.engine,
        settings=settings,
        cache=options.clips,
    )


@dataclass(frozen=True, eq=False)
class HardQuestion:
    """A clip, and the video to ask for its object: it and clips of the other half."""

    name: str
    side: int
    number: int  # of the clip, in its half
    clip: HardClip
    video: EncodedVideo
    truth: Track


def ask(
    localizers: Mapping[str, Localizer],
    halves: Sequence[Sequence[HardClip]],
    *,
    seed: int,
    chosen: slice = slice(None),
) -> Iterator[tuple[dict[str, Outcome], Difficulty]]:
    """Ask for the objects of clips."""
    predictor = next(iter(localizers.values())).predictor
    for question in islice(questions(predictor, halves, seed=seed), chosen.start, chosen.stop, chosen.step):
        found = {
            row: outcome(question.name, question.truth, one.ask(question.clip.query, question.video))
            for row, one in localizers.items()
        }
        yield found, question.clip.difficulty


def questions(
    predictor: Predictor, halves: Sequence[Sequence[HardClip]], *, seed: int
) -> Iterator[HardQuestion]:
    """One about each clip that is fair."""
    packed = [[encoded(hard, predictor) for hard in half] for half in halves]
    rng = np.random.default_rng(seed)
    for side, half in enumerate(halves):
        for number, hard in enumerate(half):
            if not hard.is_fair:
                continue
            length, others = len(hard.frames), halves[1 - side]
            chosen = rng.permutation(len(others))[: -(-SAMPLES // length)].tolist()
            place = int(rng.integers(len(chosen) + 1))
            parts, clips = [packed[1 - side][k] for k in chosen], [others[k] for k in chosen]
            parts.insert(place, packed[side][number])
            clips.insert(place, hard)
            video = joined(parts, clips, predictor.config.input_size)
            there = np.flatnonzero(hard.presence)
            truth = last_stretch(Track(there + place * length, hard.boxes_xyxy[there]))
            yield HardQuestion(f"half {side}, clip {number}", side, number, hard, video, truth)


def encoded(clip: HardClip, predictor: Predictor) -> PackedFeatures:
    letterbox = predictor.letterbox(clip.side, clip.side)
    return predictor.encode([letterbox.apply(clip.frame(k)) for k in range(len(clip.frames))])


def joined(parts: Sequence[PackedFeatures], clips: Sequence[HardClip], canvas: int) -> EncodedVideo:
    """Clips in a row as one video."""
    store, length, side = ClipFeatures(parts), len(clips[0].frames), clips[0].side
    index = np.arange(len(store))
    info = VideoInfo(side, side, Fraction(FPS), len(store))
    sampled = SampledVideo(VideoSource(str(store.folder)), info, FPS, index, index / FPS)

    def frames(numbers: Iterable[int]) -> Iterator[Frame]:
        return (Frame(k, k / FPS, clips[k // length].frame(k % length)) for k in numbers)

    return EncodedVideo(sampled, Letterbox(side, side, canvas), store, pixels=frames)


def last_stretch(track: Track) -> Track:
    """The last frames without a gap."""
    breaks = np.flatnonzero(np.diff(track.frames) > 1)
    start = int(breaks[-1]) + 1 if breaks.size else 0
    return replace(track, frames=track.frames[start:], boxes_xyxy=track.boxes_xyxy[start:])


def groups_of(difficulties: Sequence[Difficulty]) -> dict[str, NDArray[np.bool_]]:
    angle, size, covered, blurred, rival = (
        np.array([getattr(d, name) for d in difficulties]) for name in Difficulty.__dataclass_fields__
    )
    return {
        **banded(angle, (0, 60, 90, 181), "degrees"),
        **banded(size, (0, 40, 80, 448), "pixels"),
        **banded(covered, (0, COVERED, 0.3, 1), "covered"),
        "sharp": ~blurred,
        "blurred": blurred,
        "no rival": ~rival,
        "rival": rival,
        "rival and covered": rival & (covered >= COVERED),
    }


if __name__ == "__main__":
    main()
