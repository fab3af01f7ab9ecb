"""Accuracy on composed videos of scanned objects that were never used in training.

    python benchmarks/synthetic_heldout.py --data DIR [--model FILE|NAME] [--rounds 8] [--json FILE]

DIR holds photos/ and sprites/. The video of a query is its own clip among all clips of the other half of the
objects and photos: by default 21 clips of 6 frames. About a third of the objects are absent. Each round
composes 40 new clips. `--trained 130` uses that many objects of the training set instead, to see whether
unseen objects are harder.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, overlap
from egohieraloc.files import write_json
from egohieraloc.training.composer.composed_videos import ComposedQuery, compose_queries
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import ResponseTrack
from figures import figures, outcome, print_outcomes, print_table
from options import answer_options, localizer_of


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--trained", type=int, metavar="N", help="use N training objects instead")
    options = parser.parse_args()
    packs = read_packs(options.data, split="heldout")
    if options.trained:
        known = read_packs(options.data, limit=options.trained)
        parts = ("sprites", "sprite_direction", "sprite_id")
        packs = replace(packs, **{part: getattr(known, part) for part in parts})
    outcomes, mask_ious, seconds = [], [], 0.0
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as scratch:
            localizer = localizer_of(options, Path(scratch))
            for query in compose_queries(
                packs, localizer.predictor, Path(scratch), clips=options.clips, seed=number
            ):
                started = time.perf_counter()
                answered = localizer.ask(query.query, query.video)
                seconds += time.perf_counter() - started
                outcomes.append(outcome(f"clip {len(outcomes)}", query.truth, answered))
                if overlap(query.truth, outcomes[-1].answer)[1] >= SUCCESS_THRESHOLD:
                    mask_ious += found_mask_ious(query, answered.track)
    row = figures(outcomes)
    print(f"{seconds / len(outcomes):.2f} s per query")
    print_table({"egohieraloc": row})
    print(f"{'mask IoU':20}{np.mean(mask_ious):20.3f}   over {len(mask_ious)} found frames")
    if options.queries:
        print_outcomes(outcomes)
    if options.json:
        write_json(options.json, asdict(row) | {"mask_iou": float(np.mean(mask_ious))})


def found_mask_ious(query: ComposedQuery, answer: ResponseTrack) -> list[float]:
    """Mask IoU in each frame of the true track that the answer also has."""
    given = {p.sample: p.mask for p in answer.predictions}
    ious = []
    for frame, truth in zip(query.truth.frames, query.masks, strict=True):
        mask = given.get(int(frame))
        if mask is not None and truth.any():
            ious.append(float((mask & truth).sum() / (mask | truth).sum()))
    return ious


if __name__ == "__main__":
    main()
