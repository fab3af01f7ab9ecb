"""What further looks at the candidates of a question are worth, one by one and together.

    python benchmarks/looks.py --data DIR [--rounds 8] [--workers 8] [--device cuda] [--json FILE]
    python benchmarks/looks.py --evidence FILE

The objects are those of the calibration, in square frames of 896 pixels. Each candidate of a question is seen
by the first look, cut out and searched for in the query's image (a look back: in its best sample, in three
samples, and in the image's mirror image), and looked at from close by (a second look). Lines are fitted to
three quarters of the rounds and judged on the rest. `right`: the best of five candidates lies on the object;
the other columns: and is surer than so many of the absent objects' best. `--json` keeps what was seen, and
`--evidence` reads it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from egohieraloc.files import write_json
from egohieraloc.inference.look_back import look_back
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.second_look import best_samples, logit, look_again
from egohieraloc.localize import Localizer
from egohieraloc.models.weights import Calibration, find_weights, load_weights
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.calibrate import LARGE_CLIPS, PACK_LIMIT, logistic, shows_object
from egohieraloc.training.composer.composed_videos import ComposedQuery, compose_queries
from egohieraloc.training.composer.packs import read_packs
from egohieraloc.types import Box, Floats

SQUARE = update(LARGE_CLIPS, {"aspects": ((1.0, 1.0),)})
QUERIES = 96  # of a round
MOST = 10  # candidates that are seen ...
WEIGHED = 5  # ... and weighed
FOLDS = 4
REFUSED = (0.8, 0.9, 0.95)
RESAMPLES = 600
Candidate = Mapping[str, Any]
ROWS: dict[str, Callable[[Candidate], tuple[float, ...]]] = {
    "first look": lambda c: (c["first"],),
    "and back": lambda c: (c["first"], c["back"][0]),
    "and back, likeliest of three": lambda c: (c["first"], max(c["back"])),
    "and back, also mirrored": lambda c: (c["first"], max(c["back"][0], c["mirrored"][0])),
    "and second": lambda c: (c["first"], second(c)),
    "and back and second": lambda c: (c["first"], c["back"][0], second(c)),
    "all of them": lambda c: (c["first"], max(c["back"]), max(c["mirrored"]), second(c)),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--evidence", type=Path)
    options = parser.parse_args()
    if options.evidence:
        questions = json.loads(options.evidence.read_text())
    else:
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            jobs = [(options.data, options.model, options.device, number) for number in range(options.rounds)]
            questions = [
                question for part in pool.map(seen_in_round, *zip(*jobs, strict=True)) for question in part
            ]
    if options.json:
        write_json(options.json, questions)
    present = [question for question in questions if question["present"]]
    print(f"{len(present)} present, {len(questions) - len(present)} absent")
    for most in (1, 3, 5, 8, MOST):
        share = np.mean([any(c["ok"] for c in question["cand"][:most]) for question in present])
        print(f"one of {most} candidates lies on the object in {100 * share:.1f} %")
    before = None
    print("| | right % |" + "".join(f" at {100 * share:g} % refused |" for share in REFUSED))
    for name, features in ROWS.items():
        best = judged(questions, features)
        figures = [right_above(best, share) for share in (0.0, *REFUSED)]
        print(f"| {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |", end="")
        print("" if before is None else f" {difference(before, best)}")
        before = best if name == "and back" else before


def second(candidate: Candidate) -> float:
    """Of what cannot be seen from closer by the first look."""
    said = candidate["second"]
    return float(candidate["first"] if said is None else said)


def judged(
    questions: Sequence[Mapping[str, Any]], features: Callable[[Candidate], tuple[float, ...]]
) -> Floats:
    """(Q, 3) of every question: is the object present, the value of the best candidate, does it lie on it."""
    rounds = sorted({question["seed"] for question in questions})
    best = np.zeros((len(questions), 3))
    for fold in range(FOLDS):
        held = set(rounds[fold::FOLDS])
        seen = [c for question in questions if question["seed"] not in held for c in candidates(question)]
        slopes, offset = logistic(
            np.array([features(c) for c in seen]), np.array([c["ok"] for c in seen], np.float64)
        )
        for row, question in enumerate(questions):
            if question["seed"] in held:
                values = [
                    (float(np.dot(slopes, features(c))) + offset, c["ok"]) for c in candidates(question)
                ]
                best[row] = question["present"], *max(values, default=(-np.inf, False))
    return best


def candidates(question: Mapping[str, Any]) -> list[Candidate]:
    """Those that can be cut out, as many as are weighed."""
    return [c for c in question["cand"][:WEIGHED] if c["back"]]


def right_above(best: Floats, refused: float) -> float:
    """Percent of present objects found, surer than that share of absent ones."""
    present, value, ok = best.T
    absent = np.sort(value[present == 0])
    bar = absent[int(np.ceil(refused * len(absent))) - 1] if refused else -np.inf
    return 100 * float(np.mean(((ok == 1) & (value > bar))[present == 1]))


def difference(before: Floats, after: Floats, refused: float = 0.9) -> str:
    """At equal refusal, with its 95 % interval by bootstrap over questions."""
    random = np.random.default_rng(0)
    drawn = (random.integers(0, len(before), len(before)) for _ in range(RESAMPLES))
    low, high = np.percentile(
        [right_above(after[rows], refused) - right_above(before[rows], refused) for rows in drawn],
        (2.5, 97.5),
    )
    middle = right_above(after, refused) - right_above(before, refused)
    return f"at {100 * refused:g} % against back: {middle:+.1f} [{low:.1f}, {high:.1f}]"


def seen_in_round(data: Path, model: str, device: str, seed: int) -> list[dict[str, Any]]:
    """The questions of a round, and what every look says of their candidates."""
    torch.set_num_threads(1)
    packs = read_packs(data, split="val", limit=PACK_LIMIT)
    weights = replace(load_weights(find_weights(model)), calibration=Calibration(threshold=0.0))
    with tempfile.TemporaryDirectory() as scratch:
        localizer = Localizer(weights, device=device, cache=Path(scratch))
        composed = compose_queries(
            packs, localizer.predictor, Path(scratch), clips=QUERIES, config=SQUARE, seed=seed
        )
        return [
            {"seed": seed, "present": len(query.truth) > 0, "cand": list(seen(localizer, query))}
            for query in composed
        ]


def seen(localizer: Localizer, query: ComposedQuery) -> Iterator[Candidate]:
    predictor, config, video = localizer.predictor, localizer.config, query.video
    prepared, mirrored = predictor.prepare(query.query), predictor.prepare(in_a_mirror(query.query))
    rule = replace(config.temporal, max_alternatives=MOST - 1)
    search = QuerySearch(
        query=prepared, video=video, predictor=predictor, config=config.search, temporal=rule
    )
    decoded = search.decode(search.coarse_scores())
    choice = search.choice(decoded)
    if choice.chosen is None:
        return
    intervals = (choice.chosen, *choice.alternatives)
    closer = look_again(search, decoded, intervals)
    for place, interval in enumerate(intervals):
        samples = [(sample, sample) for sample in best_samples(decoded, interval, 3)]
        if samples:
            said = [
                look_back(replace(search, query=shown), decoded, samples) or []
                for shown in (prepared, mirrored)
            ]
            back, in_mirror = ([value for value in some if value is not None] for some in said)
            yield {
                "first": logit(float(choice.curve.raw[interval[0] : interval[1] + 1].max())),
                "back": back,
                "mirrored": in_mirror,
                "second": closer[place].logit if closer else None,
                "ok": shows_object(interval, decoded, query),
            }


def in_a_mirror(query: Query) -> Query:
    x1, y1, x2, y2 = query.box.xyxy
    width = query.image.shape[1]
    return Query(np.ascontiguousarray(query.image[:, ::-1]), Box(width - x2, y1, width - x1, y2))


if __name__ == "__main__":
    main()
