"""Composed clips of held-out objects that are hard to find, kept on disk: composing takes longer than asking.

A clip has as many pixels as a real video has, four times those the network sees at its first look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from egohieraloc.files import atomic_path
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import AS_VIDEO, clip_of, halved, query_of
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.packs import Packs, Split, read_packs
from egohieraloc.training.composer.scene_sampling import ChosenObjects
from egohieraloc.types import Box, Rgb

FRAME_PX = 896
BATCH = 2  # clips composed at a time
KINDS = tuple(product((0, 1), range(4)))  # halves of the packs, and what makes their clips hard
FURTHER = 1_000_000  # steps between the clips and the further views of their objects
JPEG_QUALITY = 95
HARD = update(
    ComposerConfig(),
    AS_VIDEO
    | {
        "frame_px": FRAME_PX,
        "absent_share": 0.34,
        "near_view_share": 0.0,
        "far_sides": 1.0,
        "size_px": (24.0, 200.0),
        "usual_size_px": (30.0, 140.0),
        "occluder_share": 0.35,
        "max_covered": 0.6,
    },
)
CROWDED = {"occluder_share": 0.7, "absent_share": 0.2}
SHARP = {"motion_blur_share": 0.0, "defocus_share": 0.0}
BLURRED = {"motion_blur_share": 1.0, "motion_blur_px": (8.0, 28.0), "defocus_share": 0.35}
NOTHING_IN_FRONT = {
    "frame_px": 448,
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
    """A query and a clip of T frames, JPEG encoded, with its truth in pixels of the frames."""

    query_rgb: Rgb
    query_box: NDArray[np.float64]  # (4,)
    frames: tuple[bytes, ...]
    presence: NDArray[np.bool_]  # (T,)
    boxes_xyxy: NDArray[np.float64]  # (T, 4)
    absent: bool
    target: int  # the object that is asked for; near duplicates are one
    difficulty: Difficulty

    @property
    def query(self) -> Query:
        return Query(self.query_rgb, Box(*self.query_box.tolist()))

    @property
    def is_fair(self) -> bool:
        """Either absent or to be seen."""
        return self.absent or bool(self.presence.any())

    @property
    def side(self) -> int:
        """Of its square frames, in pixels."""
        return len(self.frame(0))

    def frame(self, number: int) -> Rgb:
        image = cv2.imdecode(np.frombuffer(self.frames[number], np.uint8), cv2.IMREAD_COLOR)
        return np.ascontiguousarray(image[..., ::-1])

    def save(self, path: Path) -> None:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                query_rgb=self.query_rgb,
                query_box=self.query_box,
                frames=np.frombuffer(b"".join(self.frames), np.uint8),
                lengths=[len(frame) for frame in self.frames],
                presence=self.presence,
                boxes_xyxy=self.boxes_xyxy,
                absent=self.absent,
                target=self.target,
                difficulty=json.dumps(asdict(self.difficulty)),
            )

    @classmethod
    def load(cls, path: Path) -> HardClip:
        with np.load(path) as stored:
            joined, ends = stored["frames"].tobytes(), np.cumsum(stored["lengths"])
            frames = tuple(joined[end - n : end] for end, n in zip(ends, stored["lengths"], strict=True))
            return cls(
                stored["query_rgb"],
                stored["query_box"],
                frames,
                stored["presence"],
                stored["boxes_xyxy"],
                bool(stored["absent"]),
                int(stored["target"]),
                Difficulty(**json.loads(str(stored["difficulty"]))),
            )


def hard_clips(
    data: Path,
    folder: Path,
    count: int,
    *,
    seed: int,
    split: Split = "heldout",
    frame_px: int = FRAME_PX,
    crowded: bool = False,
    device: str = "cpu",
    workers: int = 1,
) -> list[list[HardClip]]:
    """Clips of two halves of the packs of a split that share neither an object nor a photo.

    `count` clips of a seed, a multiple of 16; those that lie in `folder` are not composed again. `crowded`:
    all with a rival, and most with something in front.
    """
    kinds = [kind for kind in KINDS if kind[1] % 2] if crowded else KINDS
    each = count // len(kinds)
    compose = partial(_compose_kind, data, split, frame_px, crowded, folder, each, seed, device)
    if device == "cpu" and workers > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            paths = list(pool.map(compose, kinds))
    else:
        paths = [compose(kind) for kind in kinds]
    return [
        [HardClip.load(path) for (s, _), some in zip(kinds, paths, strict=True) if s == side for path in some]
        for side in (0, 1)
    ]


def further_views(
    data: Path, count: int, views: int, *, seed: int, device: str = "cpu"
) -> list[list[list[Query]]]:
    """For each of `hard_clips`, in their order, further queries of its object: each from the side farthest
    from those before it, on a ground and in a light of its own."""
    halves: list[list[list[Query]]] = [[], []]
    for kind in KINDS:
        packs, config = _packs_and_config(data, kind)
        composer = ClipComposer(packs, config, device, _seed_of(seed, kind))
        for step in range(-(-count // 8 // BATCH)):
            objects = composer.chosen_objects(step, min(BATCH, count // 8 - step * BATCH))
            sides = other_sides(packs, objects, views)
            rendered = [
                composer.queries(FURTHER * (k + 1) + step, objects.target, sides[:, k].to(objects.target))
                for k in range(views)
            ]
            halves[kind[0]] += (
                [query_of(batch.image[n], batch.box[n]) for batch in rendered]
                for n in range(len(objects.target))
            )
    return halves


def other_sides(packs: Packs, objects: ChosenObjects, views: int) -> torch.Tensor:
    """Views (B, views) of scanned objects: each the farthest from the query's view and those before it."""
    directions = packs.sprite_direction[objects.target.cpu()].double()  # (B, V, 3)
    cosine = torch.einsum("bvc,bwc->bvw", directions, directions)
    rows = torch.arange(len(directions))
    nearest = cosine[rows, objects.query_view.cpu()]  # (B, V) to those chosen so far
    chosen = []
    for _ in range(views):
        chosen.append(nearest.argmin(1))
        nearest = torch.maximum(nearest, cosine[rows, chosen[-1]])
    return torch.stack(chosen, 1)


def _compose_kind(
    data: Path,
    split: Split,
    frame_px: int,
    crowded: bool,
    folder: Path,
    count: int,
    seed: int,
    device: str,
    kind: tuple[int, int],
) -> list[Path]:
    side, number = kind
    name = f"{split}{'-crowded' * crowded}-{frame_px}-{seed}-{side}-{number}"
    paths = [folder / f"{name}-{clip}.npz" for clip in range(count)]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        packs, config = _packs_and_config(data, kind, split)
        sized = update(config, {"frame_px": frame_px} | (CROWDED if crowded else {}))
        _compose(packs, sized, device, paths, seed=_seed_of(seed, kind))
    return paths


def _packs_and_config(
    data: Path, kind: tuple[int, int], split: Split = "heldout"
) -> tuple[Packs, ComposerConfig]:
    """One half of the packs, and how clips are composed: sharp or blurred, with or without a rival."""
    side, number = kind
    look, rival = (BLURRED if number >= 2 else SHARP), number % 2 == 1
    return halved(packs_of(data, split))[side], update(HARD, look | {"rival_share": float(rival)})


def _seed_of(seed: int, kind: tuple[int, int]) -> int:
    return (seed * 2 + kind[0]) * 4 + kind[1]


@cache
def packs_of(data: Path, split: Split) -> Packs:
    return read_packs(data, split=split, limit=PACK_LIMIT if split == "val" else None)


def _compose(packs: Packs, config: ComposerConfig, device: str, paths: list[Path], *, seed: int) -> None:
    """What hides an object is known by composing the clip again with nothing in front, a quarter as large."""
    composer = ClipComposer(packs, config, device, seed)
    bare = ClipComposer(packs, update(config, NOTHING_IN_FRONT), device, seed)
    for step in range(-(-len(paths) // BATCH)):
        chosen = paths[step * BATCH : (step + 1) * BATCH]
        if all(path.exists() for path in chosen):
            continue
        for clip, path in zip(composed(composer, packs, step, len(chosen), bare=bare), chosen, strict=True):
            clip.save(path)


def composed(
    composer: ClipComposer, packs: Packs, step: int, size: int, *, bare: ClipComposer | None = None
) -> Iterator[HardClip]:
    """Clips of a step; how much of an object is covered is known where there is a `bare` composer."""
    config = composer.config
    batch, objects = composer.batch(step, size), composer.chosen_objects(step, size)
    covered = np.full(batch.presence.shape, np.nan)
    if bare is not None:
        whole = bare.batch(step, size).masks.sum((2, 3)) * config.unit**2
        covered = 1 - (batch.masks.sum((2, 3)) / whole.clamp(min=1e-3)).clamp(max=1).double().cpu().numpy()
    angles = view_angles(packs, objects)
    for number in range(size):
        clip = clip_of(batch, number)
        sides = clip.boxes_xyxy[:, 2:] - clip.boxes_xyxy[:, :2]
        difficulty = Difficulty(
            angle_deg=_mean(angles[number], clip.presence),
            size_px=_mean(sides.max(1) / config.unit, clip.presence),
            covered=_mean(covered[number], clip.presence),
            blurred=config.motion_blur_share > 0,
            rival=config.rival_share > 0,
        )
        yield HardClip(
            clip.query.image,
            np.array(clip.query.box.xyxy),
            tuple(_jpeg(frame) for frame in clip.frames),
            clip.presence,
            clip.boxes_xyxy,
            bool(objects.absent[number]),
            int(batch.source[number]),
            difficulty,
        )


def view_angles(packs: Packs, objects: ChosenObjects) -> NDArray[np.float64]:
    """Degrees (B, T) between the query's view of a scanned object and those of the frames."""
    directions = packs.sprite_direction[objects.target.cpu()].double()  # (B, V, 3)
    rows = torch.arange(len(directions))
    query = directions[rows, objects.query_view.cpu()]
    frames = directions[rows[:, None], objects.views.cpu()]
    cosine = torch.einsum("bc,btc->bt", query, frames).clamp(-1, 1)
    return torch.rad2deg(cosine.acos()).numpy()


def _jpeg(rgb: Rgb) -> bytes:
    return bytes(cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1])


def _mean(values: NDArray[np.float64], which: NDArray[np.bool_]) -> float:
    return float(values[which].mean()) if which.any() else float("nan")
