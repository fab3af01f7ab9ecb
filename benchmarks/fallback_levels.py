"""What the three fallback levels are worth: composed queries, sound and degraded, answered at each level.

    python benchmarks/fallback_levels.py --data DIR [--model FILE|NAME] [--rounds 2] [--clips 40]

DIR holds photos/ and sprites/; the objects are those that `egohieraloc calibrate` uses. Every query is asked
as it is, blurred, at 20 pixels, behind a hand, and with all three at once. `quality` is the mean of the
segmenter's estimate of its mask's IoU, and `5 %` of the queries are below the next number. `level 0 1 2` are
the shares of the queries that the quality sends there. Success is given with every query at level 0, at 1, at
2, and routed by its quality; queries of absent objects are not asked.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from degraded import DEGRADED
from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, overlap
from egohieraloc.files import write_json
from egohieraloc.localize import Localizer
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.composed_videos import ComposedQuery, answer_to, compose_queries
from egohieraloc.training.composer.packs import read_packs
from options import answer_options

ALWAYS = "network.query_mask.trusted=2.0"  # no quality is enough
FORCED = {
    "level 0": ("network.query_mask.fallback=none",),
    "level 1": ("network.query_mask.fallback=level1", ALWAYS),
    "level 2": ("network.query_mask.fallback=level2", ALWAYS),
    "routed": (),
}


@dataclass(frozen=True)
class Asked:
    """One query under one degradation."""

    quality: float
    level: int
    successes: dict[str, bool]  # by forced level


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clips", type=int, default=40)
    options = parser.parse_args()
    packs = read_packs(options.data, split="val", limit=PACK_LIMIT)
    asked: dict[str, list[Asked]] = {name: [] for name in DEGRADED}
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory() as scratch:
            systems = {
                name: Localizer.from_pretrained(
                    options.model,
                    device=options.device,
                    settings=[*options.settings, *words],
                    cache=Path(scratch),
                )
                for name, words in FORCED.items()
            }
            predictor = systems["routed"].predictor
            for query in compose_queries(packs, predictor, Path(scratch), clips=options.clips, seed=number):
                if len(query.truth):
                    for name, degrade in DEGRADED.items():
                        asked[name].append(ask(replace(query, query=degrade(query.query)), systems))
    print_rows(asked)
    if options.json:
        write_json(options.json, {name: [asdict(one) for one in rows] for name, rows in asked.items()})


def ask(query: ComposedQuery, systems: dict[str, Localizer]) -> Asked:
    mask = systems["routed"].predictor.prepare(query.query).mask
    found = {name: answer_to(query, system)[0] for name, system in systems.items()}
    successes = {name: overlap(query.truth, track)[1] >= SUCCESS_THRESHOLD for name, track in found.items()}
    return Asked(mask.quality, mask.level, {name: bool(value) for name, value in successes.items()})


def print_rows(asked: dict[str, list[Asked]]) -> None:
    print(f"{len(asked['as it is'])} queries")
    names = ["quality", "5 %", *(f"level {k}" for k in range(3)), *(f"at {name}" for name in FORCED)]
    print(f"{'':16}" + "".join(f"{name:>12}" for name in names))
    for name, rows in asked.items():
        qualities = np.array([one.quality for one in rows])
        shares = [100 * np.mean([one.level == level for one in rows]) for level in range(3)]
        successes = [100 * np.mean([one.successes[forced] for one in rows]) for forced in FORCED]
        cells = [f"{qualities.mean():.2f}", f"{np.quantile(qualities, 0.05):.2f}"]
        cells += [f"{value:.0f} %" for value in shares] + [f"{value:.1f} %" for value in successes]
        print(f"{name:16}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
