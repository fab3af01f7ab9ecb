"""Which score tells best whether a sample shows the object? Several, compared on composed queries.

    python benchmarks/sample_scores.py --data DIR [--model FILE|NAME] [--rounds 4]

The objects are those that `egohieraloc calibrate` uses. Every score but the paper's is calibrated by logistic
regression on the other rounds. `success` counts all answers; `rejecting` those with a score above 80 % of the
absent objects'; `apart` is the share of pairs of a correct answer and an absent object in which the correct
answer has the higher score.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from egohieraloc.config import TemporalConfig
from egohieraloc.data.base import Track
from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, overlap
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.temporal import choose_interval
from egohieraloc.localize import Localizer
from egohieraloc.models.ram import cell_score, mask_confidence
from egohieraloc.training.calibrate import PACK_LIMIT, logistic
from egohieraloc.training.composer.composed_videos import ComposedQuery, compose_queries
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Floats

REJECTED_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Samples:
    """Boxes and scores of the N samples of a query's video."""

    truth: Track
    boxes: Floats  # (N, 4) predicted
    presence: Floats  # (N,) logits of the presence head
    mask: Floats  # (N,) the paper's confidence, from the mask
    similarity: Floats  # (N,) logits from descriptors alone
    cell: Floats  # (N,) logits of the highest cell

    @property
    def shown(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(len(self.cell)), self.truth.frames)


FITTED: dict[str, Callable[[Samples], Floats]] = {
    "presence head": lambda s: s.presence,
    "similarity": lambda s: s.similarity,
    "best cell": lambda s: s.cell,
}
LITERAL: dict[str, Callable[[Samples], Floats]] = {
    "mask (paper)": lambda s: s.mask,
    "presence x mask": lambda s: expit(s.presence) * s.mask,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--clips", type=int, default=40)
    options = parser.parse_args()
    packs = read_packs(options.data, split="val", limit=PACK_LIMIT)
    rounds: list[list[Samples]] = []
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory() as scratch:
            settings = ["network.ram.score=presence"]
            localizer = Localizer.from_pretrained(options.model, settings=settings, cache=Path(scratch))
            queries = compose_queries(
                packs, localizer.predictor, Path(scratch), clips=options.clips, seed=number
            )
            rounds.append([score_samples(localizer, query) for query in queries])
    count = sum(len(s.truth) > 0 for part in rounds for s in part)
    print(f"{count} present and {sum(map(len, rounds)) - count} absent objects")
    print(f"{'':18}{'success':>10}{'rejecting':>10}{'apart':>10}")
    for name, score in LITERAL.items():
        report(name, [(s, score(s)) for part in rounds for s in part])
    for name, score in FITTED.items():
        scored = []
        for number, part in enumerate(rounds):
            others = [s for k, other in enumerate(rounds) if k != number for s in other]
            slope, offset = logistic(
                np.concatenate([score(s) for s in others]),
                np.concatenate([s.shown for s in others]).astype(np.float64),
            )
            scored += [(s, expit(slope * score(s) + offset)) for s in part]
        report(name, scored)


def score_samples(localizer: Localizer, query: ComposedQuery) -> Samples:
    """Decode every sample."""
    predictor, video = localizer.predictor, query.video
    prepared = predictor.prepare(query.query)
    search = QuerySearch(
        query=prepared,
        video=video,
        predictor=predictor,
        config=localizer.config.search,
        temporal=localizer.config.temporal,
    )
    state, boxes, presence, mask, cell = predictor.start(prepared), [], [], [], []
    for start in range(0, len(video), 8):
        part = video.pick(range(start, min(start + 8, len(video))))
        output, after = predictor.match(prepared, part, state)
        boxes += [d.box.xyxy for d in predictor.decode(prepared, part, state)[0]]
        state = after
        presence.append(output.ram.score_logit)
        cell.append(cell_score(output.ram.cell_logits))
        mask.append(mask_confidence(output.ram.mask_logits.float().sigmoid()))
    return Samples(
        query.truth,
        np.array(boxes),
        torch.cat(presence).double().cpu().numpy(),
        torch.cat(mask).double().cpu().numpy(),
        search.coarse_scores(),
        torch.cat(cell).double().cpu().numpy(),
    )


def report(name: str, scored: list[tuple[Samples, Floats]]) -> None:
    """Print one row, with the default temporal rule."""
    absent, answers = [], []
    for samples, scores in scored:
        chosen = choose_interval(scores, np.arange(len(scores)) / 5, TemporalConfig()).chosen
        first, last = chosen or (0, 0)
        peak = scores[first : last + 1].max()
        if len(samples.truth) == 0:
            absent.append(peak)
            continue
        frames = np.arange(first, last + 1)
        answer = Track.from_boxes(frames.tolist(), [tuple(b) for b in samples.boxes[first : last + 1]])
        answers.append((overlap(samples.truth, answer)[1] >= SUCCESS_THRESHOLD, peak))
    correct = np.array([peak for is_correct, peak in answers if is_correct])
    bar = np.sort(absent)[int(np.ceil(REJECTED_SHARE * len(absent))) - 1]
    apart = np.mean(correct[:, None] > np.array(absent))
    print(
        f"{name:18}{100 * len(correct) / len(answers):10.1f}"
        f"{100 * (correct > bar).sum() / len(answers):10.1f}{100 * apart:10.1f}"
    )


if __name__ == "__main__":
    main()
