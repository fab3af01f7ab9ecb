"""What the memory's shortlist loses: is the true appearance still looked at when only a few stretches are?

    python benchmarks/shortlist_recall.py --data DIR [--questions 1000] [--split heldout] [--folder DIR]

DIR holds photos/, sprites/ and ego_dev/. Each question of ego_dev is asked about all of its videos that show
other places beside its own; each composed one about its own clip set among all clips that share neither an
object nor a photo with it. Nothing is decoded: a question counts when the exhaustive look would decode a true
sample, and it is kept when the look at the shortlist alone still would. The second row of each kind is that
of a shortlist chosen by the scores of the look itself, as if everything were remembered.

With `--around FOLDER` the footage that memory_hours.py keeps in FOLDER, an hour, follows the composed clips.
Without ego_dev/, or with `--questions 0`, only the others are asked. Composing a thousand clips takes a
while: with `--folder` they are kept. Settings are chosen with `--split val`; the figures in the docs are of
held-out objects.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ego_dev import PLACES, open_videos, read_queries
from egohieraloc.config import SearchConfig
from egohieraloc.files import atomic_path, write_json
from egohieraloc.inference.chunks import CHUNK, PHASES
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.regions import codebook, prototypes, similarity
from egohieraloc.inference.search import best_and_latest, between, promising
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.query import Query
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composed_videos import BATCH, VIDEO_CLIPS, ComposedClip, clip_of, halved
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Box, Rgb
from memory_hours import codewords
from options import answer_options

SIZES = (4, 8, 16, 32, 64, 128)  # stretches on the shortlist
LOOKED_AT = 8 * CHUNK  # samples at a time
CONFIG = SearchConfig()


@dataclass(frozen=True, eq=False)
class Footage:
    """The even samples of a video."""

    match: NDArray[np.int8]  # (M, D, h, w)
    scale: NDArray[np.float16]  # (M,)
    words: NDArray[np.int8]  # (stretches, CODEWORDS, D)


@dataclass(frozen=True, eq=False)
class Look:
    """What is known of one question before anything is decoded; M even samples."""

    coarse: NDArray[np.float64]  # (M,)
    stretch: NDArray[np.intp]  # (M,) the stretch of each
    similarity: NDArray[np.float64]  # (stretches,) from memory
    truth: NDArray[np.bool_]  # (M,)

    @property
    def exact(self) -> NDArray[np.float64]:
        """(stretches,) the best coarse score of each."""
        best = np.full(len(self.similarity), -np.inf)
        np.maximum.at(best, self.stretch, self.coarse)
        return best

    def keeps_truth(self, chosen: NDArray[np.bool_] | None = None) -> bool:
        """Whether a true sample would be decoded, looking at the chosen stretches or at all."""
        coarse = self.coarse if chosen is None else np.where(chosen[self.stretch], self.coarse, -np.inf)
        every = np.full(2 * len(coarse), -np.inf)
        every[::2] = coarse
        decoded = promising(between(every), CONFIG)
        return bool((decoded[::2] & self.truth).any())


@dataclass(frozen=True)
class Outcome:
    """Of one question: whether a true sample would be decoded, looking everywhere and at each of `SIZES`."""

    stretches: int
    found: bool
    kept: tuple[bool, ...]  # chosen by what is remembered
    kept_exact: tuple[bool, ...]  # ... and by the coarse scores


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--questions", type=int, default=1000, help="composed ones")
    parser.add_argument("--split", choices=("heldout", "val"), default="heldout", help="which objects")
    parser.add_argument("--seed", type=int, default=0, help="of the composed ones")
    parser.add_argument("--folder", type=Path, help="keep composed clips here")
    parser.add_argument("--around", type=Path, help="folder of memory_hours.py: footage around each clip")
    options = parser.parse_args()
    predictor = Predictor(
        load_weights(find_weights(options.model)), device=options.device, engine=options.engine
    )
    outcomes = {}
    if (options.data / "ego_dev").exists():
        outcomes["ego_dev"] = [judged(look, predictor) for look in real(options.data / "ego_dev", predictor)]
    if options.questions:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.folder or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            outcomes["composed"] = composed(options, predictor, folder)
    rows = {name: row(found) for name, found in outcomes.items()}
    print("| questions | found by the exhaustive look | stretches | by |", *(f"{s} |" for s in SIZES))
    print("|---|---|---|---|" + "---|" * len(SIZES))
    for name, figures in rows.items():
        for by in ("memory", "look"):
            kept = " | ".join(f"{100 * figures[f'kept by {by} at {size}']:.1f} %" for size in SIZES)
            counts = f"{figures['questions']} | {figures['found']} | {figures['stretches']}"
            print(f"| {name}: {counts} | {by} | {kept} |")
    if options.json:
        write_json(options.json, rows)


def judged(look: Look, predictor: Predictor) -> Outcome:
    def kept(scores: NDArray[np.float64], margin: float) -> tuple[bool, ...]:
        shortlists = (best_and_latest(scores, margin, size) if size < len(scores) else None for size in SIZES)
        return tuple(map(look.keeps_truth, shortlists))

    margin, similar = CONFIG.coarse_margin, look.similarity
    by_memory, by_look = kept(similar, margin / predictor.coarse_gain), kept(look.exact, margin)
    return Outcome(len(similar), look.keeps_truth(), by_memory, by_look)


def row(outcomes: Sequence[Outcome]) -> dict[str, float]:
    found = [outcome for outcome in outcomes if outcome.found]
    figures: dict[str, float] = {
        "questions": len(outcomes),
        "found": len(found),
        "stretches": int(np.median([outcome.stretches for outcome in outcomes])),
    }
    for k, size in enumerate(SIZES):
        figures[f"kept by memory at {size}"] = float(np.mean([outcome.kept[k] for outcome in found]))
        figures[f"kept by look at {size}"] = float(np.mean([outcome.kept_exact[k] for outcome in found]))
    return figures


def footage(canvases: Iterable[Rgb], predictor: Predictor) -> Footage:
    """Encode the even samples of a video, a chunk at a time."""
    frames, rows = iter(canvases), []
    while batch := list(islice(frames, CHUNK)):
        rows.append(predictor.encode(batch))
    return footage_of(
        np.concatenate([chunk.match for chunk in rows])[None],
        np.concatenate([chunk.match_scale for chunk in rows])[None],
    )


def footage_of(match: NDArray[np.int8], scale: NDArray[np.float16]) -> Footage:
    """Of clips (clips, samples, ...) in a row."""
    match, scale = match.reshape(-1, *match.shape[2:]), scale.reshape(-1)
    words = [codebook(match[start : start + CHUNK]) for start in range(0, len(match), CHUNK)]
    return Footage(match, scale, np.stack(words))


def look(predictor: Predictor, query: Query, seen: Footage, truth: NDArray[np.bool_]) -> Look:
    prepared = predictor.prepare(query)
    some = range(0, len(seen.match), LOOKED_AT)
    coarse = [
        predictor.coarse(prepared, seen.match[s : s + LOOKED_AT], seen.scale[s : s + LOOKED_AT]) for s in some
    ]
    similar = similarity(seen.words, prototypes(predictor.tokens(prepared)))
    stretch = np.arange(len(seen.match)) // CHUNK
    return Look(np.concatenate(coarse).astype(np.float64), stretch, similar.astype(np.float64), truth)


def joined(looks: Sequence[Look]) -> Look:
    """Videos in a row."""
    starts = np.cumsum([0, *(len(look.similarity) for look in looks)])
    return Look(
        np.concatenate([look.coarse for look in looks]),
        np.concatenate([look.stretch + start for look, start in zip(looks, starts, strict=False)]),
        np.concatenate([look.similarity for look in looks]),
        np.concatenate([look.truth for look in looks]),
    )


def real(folder: Path, predictor: Predictor) -> Iterator[Look]:
    queries = [query for query in read_queries(folder) if len(query.truth.frames)]
    seen = {}
    for name, video in open_videos(folder, PLACES).items():
        letterbox = predictor.letterbox(video.info.width, video.info.height)
        even = np.arange(0, video.info.num_frames, 2)
        seen[name] = footage((letterbox.apply(frame.rgb) for frame in video.frames(even)), predictor)
    for query in queries:
        looks = []
        for name, each in seen.items():
            truth = np.zeros(len(each.match), bool)
            if name == query.video:
                truth[np.unique(query.truth.frames // 2)[: len(truth)]] = True
            elif PLACES[name] & PLACES[query.video]:
                continue
            looks.append(look(predictor, query.query, each, truth))
        yield joined(looks)


@dataclass(frozen=True, eq=False)
class Clips:
    """Some composed clips of T frames, of which every second is encoded; n of those in each."""

    queries: NDArray[np.uint8]  # (clips, S, S, 3)
    boxes: NDArray[np.float64]  # (clips, 4) of the objects in the queries
    presence: NDArray[np.bool_]  # (clips, n)
    match: NDArray[np.int8]  # (clips, n, D, h, w)
    scale: NDArray[np.float16]  # (clips, n)

    @classmethod
    def of(cls, clips: Sequence[ComposedClip], predictor: Predictor) -> Clips:
        packed = [predictor.encode(clip.frames[::2]) for clip in clips]
        return cls(
            np.stack([clip.query.image for clip in clips]),
            np.array([clip.query.box.xyxy for clip in clips]),
            np.stack([clip.presence[::2] for clip in clips]),
            np.stack([features.match for features in packed]),
            np.stack([features.match_scale for features in packed]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Clips]) -> Clips:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))


def composed(options: argparse.Namespace, predictor: Predictor, folder: Path) -> list[Outcome]:
    split, count, seed = options.split, options.questions, options.seed
    packs = halved(read_packs(options.data, split=split))
    composers = [
        ClipComposer(half, VIDEO_CLIPS, predictor.device, 2 * seed + k) for k, half in enumerate(packs)
    ]
    sizes = [min(BATCH, count // 2 - start) for start in range(0, count // 2, BATCH)]
    parts = [
        [
            kept_clips(composer, step, size, predictor, folder / f"{split}-{seed}-{side}-{step}-{size}.npz")
            for side, composer in enumerate(composers)
        ]
        for step, size in enumerate(sizes)
    ]
    halves = [Clips.joined(half) for half in zip(*parts, strict=True)]
    seen = [footage_of(half.match, half.scale) for half in halves]
    around = kept_footage(options.around) if options.around else None
    order, outcomes = np.random.default_rng(seed), []
    for side, half in enumerate(halves):
        for number in np.flatnonzero(half.presence.any(1)).tolist():
            others = seen[1 - side]
            place = int(order.integers(len(others.words) - 1))
            seen_look = inserted(half, number, others, place, predictor)
            if around is not None:
                query = Query(half.queries[number], Box(*half.boxes[number].tolist()))
                after = look(predictor, query, around, np.zeros(len(around.match), bool))
                seen_look = joined([seen_look, after])
            outcomes.append(judged(seen_look, predictor))
    return outcomes


def kept_footage(folder: Path) -> Footage:
    """What memory_hours.py made: the even samples of whole stretches."""
    store, chunks = FeatureStore(folder / "footage"), []
    while (chunk := store.read_match(PHASES * len(chunks))) is not None:
        chunks.append(chunk)
    match, scale = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return Footage(match, scale, codewords(folder))


def kept_clips(composer: ClipComposer, step: int, size: int, predictor: Predictor, path: Path) -> Clips:
    """The clips of one step; they are composed unless an earlier run has done so."""
    if not path.exists():
        batch = composer.batch(step, size)
        clips = Clips.of([clip_of(batch, number) for number in range(size)], predictor)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{f.name: getattr(clips, f.name) for f in fields(clips)})
    with np.load(path) as stored:
        return Clips(*(stored[f.name] for f in fields(Clips)))


def inserted(half: Clips, number: int, others: Footage, place: int, predictor: Predictor) -> Look:
    """A look at a clip at the beginning of one stretch, instead of what was there, and at all others."""
    query = Query(half.queries[number], Box(*half.boxes[number].tolist()))
    length, start = half.presence.shape[1], place * CHUNK
    rest = slice(start + length, start + CHUNK)
    changed = footage_of(
        np.concatenate([half.match[number], others.match[rest]])[None],
        np.concatenate([half.scale[number], others.scale[rest]])[None],
    )
    changed_look = look(predictor, query, changed, np.zeros(CHUNK, bool))
    found = look(predictor, query, others, np.zeros(len(others.match), bool))
    found.coarse[start : start + CHUNK] = changed_look.coarse
    found.similarity[place] = changed_look.similarity[0]
    found.truth[start : start + length] = half.presence[number]
    return found


if __name__ == "__main__":
    main()
