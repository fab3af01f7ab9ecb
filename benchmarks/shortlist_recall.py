"""What the memory's shortlist loses: is the true appearance still looked at when only a few stretches are?

    python benchmarks/shortlist_recall.py --data DIR [--questions 1000] [--seed 0] [--device cuda]

DIR holds photos/, sprites/ and ego_dev/. Each question of ego_dev is asked about all of its videos that show
other places beside its own; each composed one about its own clip set among all clips that share neither an
object nor a photo with it. Nothing is decoded: a question counts when the exhaustive look would decode a true
sample, and it is kept when the look at the shortlist alone still would. Without ego_dev/, or with
`--questions 0`, only the others are asked.
Settings are chosen with other seeds than 0, of which the figures in the docs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ego_dev import PLACES, open_videos, read_queries
from egohieraloc.config import SearchConfig
from egohieraloc.files import write_json
from egohieraloc.inference.chunks import CHUNK
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.regions import codebook, prototypes
from egohieraloc.inference.search import best_and_latest, between, promising
from egohieraloc.models.weights import find_weights, load_weights
from egohieraloc.query import Query
from egohieraloc.training.composer.composed_videos import ComposedClip, compose_halves
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Rgb
from egohieraloc.video.letterbox import Letterbox
from options import answer_options

SIZES = (4, 8, 16, 32, 64)  # stretches on the shortlist
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

    def keeps_truth(self, margin: float, size: int | None = None) -> bool:
        """Whether a true sample would be decoded, with that shortlist."""
        coarse = self.coarse
        if size is not None and size < len(self.similarity):
            chosen = best_and_latest(self.similarity, margin, size)
            coarse = np.where(chosen[self.stretch], coarse, -np.inf)
        every = np.full(2 * len(coarse), -np.inf)
        every[::2] = coarse
        decoded = promising(between(every), CONFIG)
        return bool((decoded[::2] & self.truth).any())


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--questions", type=int, default=1000, help="composed ones")
    parser.add_argument("--seed", type=int, default=0, help="of the composed ones")
    options = parser.parse_args()
    predictor = Predictor(load_weights(find_weights(options.model)), device=options.device)
    looks = {}
    if (options.data / "ego_dev").exists():
        looks["ego_dev"] = list(real(options.data / "ego_dev", predictor))
    if options.questions:
        looks["composed"] = list(composed(options.data, predictor, options.questions, options.seed))
    margin = CONFIG.coarse_margin / predictor.coarse_gain
    rows = {name: row(found, margin) for name, found in looks.items()}
    print("| questions | found by the exhaustive look | stretches |", *(f"{s} |" for s in SIZES))
    print("|---|---|---|" + "---|" * len(SIZES))
    for name, figures in rows.items():
        kept = " | ".join(f"{100 * figures[f'kept at {size}']:.1f} %" for size in SIZES)
        print(f"| {name}: {figures['questions']} | {figures['found']} | {figures['stretches']} | {kept} |")
    if options.json:
        write_json(options.json, rows)


def row(looks: Sequence[Look], margin: float) -> dict[str, float]:
    found = [look for look in looks if look.keeps_truth(margin)]
    return {
        "questions": len(looks),
        "found": len(found),
        "stretches": int(np.median([len(look.similarity) for look in looks])),
    } | {
        f"kept at {size}": float(np.mean([look.keeps_truth(margin, size) for look in found]))
        for size in SIZES
    }


def footage(canvases: Iterable[Rgb], predictor: Predictor) -> Footage:
    """Encode the even samples of a video, a chunk at a time."""
    rows, batch = [], []
    for canvas in canvases:
        batch.append(canvas)
        if len(batch) == CHUNK:
            rows.append(predictor.encode(batch))
            batch = []
    rows += [predictor.encode(batch)] if batch else []
    return Footage(
        np.concatenate([chunk.match for chunk in rows]),
        np.concatenate([chunk.match_scale for chunk in rows]),
        np.stack([codebook(chunk.match) for chunk in rows]),
    )


def look(predictor: Predictor, query: Query, seen: Footage, truth: NDArray[np.bool_]) -> Look:
    prepared = predictor.prepare(query)
    some = range(0, len(seen.match), LOOKED_AT)
    coarse = [
        predictor.coarse(prepared, seen.match[s : s + LOOKED_AT], seen.scale[s : s + LOOKED_AT]) for s in some
    ]
    wanted = prototypes(predictor.tokens(prepared))
    best = [float((words.astype(np.float32) @ wanted.T).max()) / 127 for words in seen.words]
    stretch = np.arange(len(seen.match)) // CHUNK
    return Look(np.concatenate(coarse).astype(np.float64), stretch, np.array(best), truth)


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
        letterbox = Letterbox(video.info.width, video.info.height, predictor.config.input_size)
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


def composed(data: Path, predictor: Predictor, count: int, seed: int) -> Iterator[Look]:
    packs = read_packs(data, split="heldout")
    halves = compose_halves(packs, predictor.device, clips=count, seed=seed)
    seen = [footage((f for clip in half for f in clip.frames[::2]), predictor) for half in halves]
    order = np.random.default_rng(seed)
    for side, half in enumerate(halves):
        for clip in half:
            if clip.presence[::2].any():
                others = seen[1 - side]
                yield inserted(clip, others, int(order.integers(len(others.words) - 1)), predictor)


def inserted(clip: ComposedClip, others: Footage, place: int, predictor: Predictor) -> Look:
    """A look at the clip at the beginning of one stretch, instead of what was there, and at all others."""
    own, start = predictor.encode(clip.frames[::2]), place * CHUNK
    rest = slice(start + len(own), start + CHUNK)
    match = np.concatenate([own.match, others.match[rest]])
    scale = np.concatenate([own.match_scale, others.scale[rest]])
    changed = look(predictor, clip.query, Footage(match, scale, codebook(match)[None]), np.zeros(CHUNK, bool))
    found = look(predictor, clip.query, others, np.zeros(len(others.match), bool))
    found.coarse[start : start + CHUNK], found.similarity[place] = changed.coarse, changed.similarity[0]
    found.truth[start : start + len(own)] = clip.presence[::2]
    return found


if __name__ == "__main__":
    main()
