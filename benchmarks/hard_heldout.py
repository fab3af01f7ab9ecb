"""Hard questions about held-out objects in long composed videos, by what makes them hard.

    python benchmarks/hard_heldout.py --data DIR [--model FILE|NAME] [--questions 640] [--json FILE]

DIR holds photos/ and sprites/. The objects are never trained on. Each is seen from another side than in its
query, small, covered, blurred or beside an object that looks like it, in one clip of a video of 1,000 samples
(or as many as there are clips for); a third of the objects are absent. Clips are encoded once and joined.
`--questions 40` is a quick look on a CPU; `--rounds 3` asks three times as many, about other clips. Every
question is answered; refusal.py says how refusals count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from egohieraloc.data.base import Track
from egohieraloc.files import write_json
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.store import CHUNK, FeatureStore
from egohieraloc.localize import Localizer
from egohieraloc.settings import update
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import AS_VIDEO, FPS, ComposedClip, clip_of, halved
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs, read_packs
from egohieraloc.training.composer.scene_sampling import ChosenObjects
from egohieraloc.types import SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.letterbox import Letterbox
from figures import Outcome, outcome, print_outcomes
from options import answer_options
from refusal import answering_localizer, banded, print_rows, rows_by_group, to_json

SAMPLES = 1000  # of a video, at least
BATCH = 8  # clips composed at a time
HARD = update(
    ComposerConfig(),
    AS_VIDEO
    | {
        "absent_share": 0.34,
        "near_view_share": 0.0,
        "far_sides": 1.0,
        "size_px": (24.0, 200.0),
        "usual_size_px": (30.0, 140.0),
        "occluder_share": 0.35,
        "max_covered": 0.6,
    },
)
SHARP = {"motion_blur_share": 0.0, "defocus_share": 0.0}
BLURRED = {"motion_blur_share": 1.0, "motion_blur_px": (8.0, 28.0), "defocus_share": 0.35}
NOTHING_IN_FRONT = {
    "occluder_share": 0.0,
    "shape_share": 0.0,
    "hand_share": 0.0,
    "second_hand_share": 0.0,
    "min_visible_px": 0.0,
    "min_visible_share": 0.0,
}


@dataclass(frozen=True)
class Difficulty:
    """What makes a question hard. Not a number where the object is absent."""

    angle_deg: float  # between the query's view and those of the clip, on average
    size_px: float  # longer side of its box on the 448 px canvas, on average
    covered: float  # share of its area that something hides
    blurred: bool
    rival: bool  # an object that looks like it stands beside it


@dataclass(frozen=True, eq=False)
class HardClip:
    clip: ComposedClip
    difficulty: Difficulty
    absent: bool

    @property
    def is_fair(self) -> bool:
        """Either absent or to be seen."""
        return self.absent or bool(self.clip.presence.any())


class ClipFeatures(FeatureStore):
    """Features of clips of one length, joined in memory."""

    def __init__(self, clips: Sequence[PackedFeatures]) -> None:
        super().__init__(Path("in memory"))
        self._clips = clips
        self._length = len(clips[0])

    def __len__(self) -> int:
        return self._length * len(self._clips)

    def read(self, number: int) -> PackedFeatures:
        return PackedFeatures.cat(list(self._pieces(number)))

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        pieces = list(self._pieces(number))
        return np.concatenate([p.match for p in pieces]), np.concatenate([p.match_scale for p in pieces])

    def _pieces(self, number: int) -> Iterator[PackedFeatures]:
        first, last = number * CHUNK, min((number + 1) * CHUNK, len(self))
        for clip in range(first // self._length, -(-last // self._length)):
            start = clip * self._length
            yield self._clips[clip][max(first - start, 0) : last - start]


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--questions", type=int, default=640, help="of a round, a multiple of 8")
    parser.add_argument("--rounds", type=int, default=1, help="each with clips of its own")
    options = parser.parse_args()
    packs = read_packs(options.data, split="heldout")
    outcomes: list[Outcome] = []
    difficulties: list[Difficulty] = []
    with tempfile.TemporaryDirectory() as scratch:
        localizer, threshold = answering_localizer(
            options.model,
            device=options.device,
            engine=options.engine,
            settings=options.settings,
            cache=Path(scratch),
        )
        for number in range(options.rounds):
            started = time.perf_counter()
            halves = compose_halves(packs, localizer.predictor.device, options.questions, seed=number)
            composed = time.perf_counter()
            for found, difficulty in ask(localizer, halves, seed=number):
                outcomes.append(found)
                difficulties.append(difficulty)
            print(
                f"round {number}: composed in {composed - started:.0f} s, "
                f"encoded and asked in {time.perf_counter() - composed:.0f} s",
                flush=True,
            )
    rows = rows_by_group(outcomes, groups_of(difficulties), threshold)
    print_rows(rows)
    if options.queries:
        print_outcomes(outcomes)
    if options.json:
        write_json(options.json, to_json(rows))


def compose_halves(packs: Packs, device: torch.device, count: int, *, seed: int) -> list[list[HardClip]]:
    """Clips of two halves of the packs that share neither an object nor a photo."""
    halves: list[list[HardClip]] = []
    for side, half in enumerate(halved(packs)):
        clips: list[HardClip] = []
        for kind, (blurred, rival) in enumerate(product((False, True), repeat=2)):
            config = update(HARD, (BLURRED if blurred else SHARP) | {"rival_share": float(rival)})
            number = (seed * 2 + side) * 4 + kind
            clips += compose(half, config, device, count // 8, seed=number)
        halves.append(clips)
    return halves


def compose(
    packs: Packs, config: ComposerConfig, device: torch.device, count: int, *, seed: int
) -> Iterator[HardClip]:
    """Clips of one kind. What hides an object is known by composing the clip again with nothing in front."""
    composer = ClipComposer(packs, config, device, seed)
    bare = ClipComposer(packs, update(config, NOTHING_IN_FRONT), device, seed)
    blurred, rival = config.motion_blur_share > 0, config.rival_share > 0
    for step in range(-(-count // BATCH)):
        size = min(BATCH, count - step * BATCH)
        batch, objects = composer.batch(step, size), composer.chosen_objects(step, size)
        whole = bare.batch(step, size).masks.sum((2, 3))
        angles = view_angles(packs, objects)
        for number in range(size):
            clip = clip_of(batch, number)
            seen = clip.presence
            visible = batch.masks[number].sum((1, 2)) / whole[number].clamp(min=1e-3)
            sides = clip.boxes_xyxy[:, 2:] - clip.boxes_xyxy[:, :2]
            difficulty = Difficulty(
                angle_deg=_mean(angles[number], seen),
                size_px=_mean(sides.max(1) / config.unit, seen),
                covered=_mean(1 - visible.clamp(max=1).double().cpu().numpy(), seen),
                blurred=blurred,
                rival=rival,
            )
            yield HardClip(clip, difficulty, bool(objects.absent[number]))


def view_angles(packs: Packs, objects: ChosenObjects) -> NDArray[np.float64]:
    """Degrees (B, T) between the query's view of a scanned object and those of the frames."""
    directions = packs.sprite_direction[objects.target.cpu()].double()  # (B, V, 3)
    rows = torch.arange(len(directions))
    query = directions[rows, objects.query_view.cpu()]
    frames = directions[rows[:, None], objects.views.cpu()]
    cosine = torch.einsum("bc,btc->bt", query, frames).clamp(-1, 1)
    return torch.rad2deg(cosine.acos()).numpy()


def ask(
    localizer: Localizer, halves: Sequence[Sequence[HardClip]], *, seed: int
) -> Iterator[tuple[Outcome, Difficulty]]:
    """Ask for the object of each clip in a video of it and clips of the other half."""
    packed = [[encoded(hard.clip, localizer.predictor) for hard in half] for half in halves]
    rng = np.random.default_rng(seed)
    for side, half in enumerate(halves):
        for number, hard in enumerate(half):
            if not hard.is_fair:
                continue
            length = len(hard.clip.frames)
            others = packed[1 - side]
            chosen = rng.permutation(len(others))[: -(-SAMPLES // length)]
            place = int(rng.integers(len(chosen) + 1))
            parts = [others[k] for k in chosen]
            parts.insert(place, packed[side][number])
            video = joined(parts, localizer.predictor.config.input_size)
            answered = localizer.ask(hard.clip.query, video)
            there = np.flatnonzero(hard.clip.presence)
            truth = last_stretch(Track(there + place * length, hard.clip.boxes_xyxy[there]))
            yield outcome(f"half {side}, clip {number}", truth, answered), hard.difficulty


def encoded(clip: ComposedClip, predictor: Predictor) -> PackedFeatures:
    index = np.arange(len(clip.frames))
    return predictor.encode(clip.frames, index, index / FPS)


def joined(parts: Sequence[PackedFeatures], canvas: int) -> EncodedVideo:
    """Clips in a row as one video."""
    store = ClipFeatures(parts)
    index = np.arange(len(store))
    info = VideoInfo(canvas, canvas, Fraction(FPS), len(store))
    sampled = SampledVideo(VideoSource(str(store.folder)), info, FPS, index, index / FPS)
    return EncodedVideo(sampled, Letterbox(canvas, canvas, canvas), store)


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
        **banded(angle, (0, 30, 60, 90, 180), "degrees"),
        **banded(size, (0, 40, 80, 448), "pixels"),
        **banded(covered, (0, 0.05, 0.3, 1), "covered"),
        "sharp": ~blurred,
        "blurred": blurred,
        "no rival": ~rival,
        "rival": rival,
    }


def _mean(values: NDArray[np.float64], which: NDArray[np.bool_]) -> float:
    return float(values[which].mean()) if which.any() else float("nan")


if __name__ == "__main__":
    main()
