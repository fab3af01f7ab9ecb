"""What the three fallback levels are worth: composed queries, sound and degraded, routed by their quality.

    python benchmarks/fallback_levels.py --data DIR --out DIR [--model FILE|NAME] [--rounds 12]

The data hold photos/ and sprites/. Every query is prepared as it is, blurred, at 20 pixels, behind a hand,
with all three at once, and worse: the first table has the shares that the quality sends to each level. Those
sent to level 1 or 2 are answered at every level; the second table has their success in percent with 95 %
intervals, and what the routing wins over using every mask as it is (level 0), query by query. `--clips`
queries a round, in videos of half as many clips. A round goes to `--out` when it is done: a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from egohieraloc.evaluation.vq2d import SUCCESS_THRESHOLD, overlap
from egohieraloc.files import write_json
from egohieraloc.localize import Localizer
from egohieraloc.settings import update
from egohieraloc.training.calibrate import PACK_LIMIT
from egohieraloc.training.composer.composed_videos import (
    VIDEO_CLIPS,
    ComposedQuery,
    answer_to,
    compose_queries,
)
from egohieraloc.training.composer.degraded_queries import DEGRADED
from egohieraloc.training.composer.packs import Packs, read_packs
from options import answer_options
from refusal import answering_localizer, bootstrapped

PRESENT = update(VIDEO_CLIPS, {"absent_share": 0.0})
ALWAYS = "network.query_mask.trusted=2.0"  # no quality is enough
FORCED = (
    ("network.query_mask.fallback=none",),
    ("network.query_mask.fallback=level1", ALWAYS),
    ("network.query_mask.fallback=level2", ALWAYS),
)


@dataclass(frozen=True)
class Asked:
    """One query under one degradation."""

    degradation: str
    quality: float
    level: int
    successes: Sequence[bool]  # at levels 0, 1, 2; empty where level 0 was chosen


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="rounds are kept here")
    parser.add_argument("--split", default="heldout", choices=["val", "heldout"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clips", type=int, default=40)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rounds = [options.out / f"{options.split}-{options.clips}-{k + 1}.json" for k in range(options.rounds)]
    if not all(path.exists() for path in rounds):
        ask_rounds(options, rounds)
    asked = [Asked(**one) for path in rounds for one in json.loads(path.read_text())]
    print_shares(asked)
    print_worth([one for one in asked if one.level])
    if options.json:
        write_json(options.json, [asdict(one) for one in asked])


def ask_rounds(options: argparse.Namespace, rounds: Sequence[Path]) -> None:
    """Those that are not there yet."""
    packs = read_packs(options.data, split=options.split, limit=PACK_LIMIT)
    with tempfile.TemporaryDirectory() as scratch:
        at_level = [
            answering_localizer(
                options.model,
                device=options.device,
                engine=options.engine,
                settings=[*options.settings, *words],
                cache=Path(scratch),
            )[0]
            for words in ((), *FORCED)
        ]
        for seed, path in enumerate(rounds, 1):
            if not path.exists():
                found = ask(packs, at_level, clips=options.clips, seed=seed)
                write_json(path, [asdict(one) for one in found])


def ask(packs: Packs, at_level: Sequence[Localizer], *, clips: int, seed: int) -> Iterator[Asked]:
    """One round. at_level: routed, then forced to each level."""
    routed, *forced = at_level
    with tempfile.TemporaryDirectory() as scratch:
        queries = compose_queries(
            packs, routed.predictor, Path(scratch), clips=clips, config=PRESENT, seed=seed
        )
        for query in queries:
            for name, degrade in DEGRADED.items() if len(query.truth) else ():
                degraded = replace(query, query=degrade(query.query))
                mask = routed.predictor.prepare(degraded.query).mask
                successes = tuple(succeeds(degraded, system) for system in forced) if mask.level else ()
                yield Asked(name, mask.quality, mask.level, successes)


def succeeds(query: ComposedQuery, system: Localizer) -> bool:
    return bool(overlap(query.truth, answer_to(query, system)[0])[1] >= SUCCESS_THRESHOLD)


def print_shares(asked: Sequence[Asked]) -> None:
    headings = ("queries", "quality", "5 %", "level 0", "level 1", "level 2")
    print(f"{'':16}" + "".join(f"{heading:>10}" for heading in headings))
    for name in DEGRADED:
        rows = [one for one in asked if one.degradation == name]
        qualities = np.array([one.quality for one in rows])
        cells = [str(len(rows)), f"{qualities.mean():.2f}", f"{np.quantile(qualities, 0.05):.2f}"]
        cells += [f"{100 * np.mean([one.level == level for one in rows]):.1f} %" for level in range(3)]
        print(f"{name:16}" + "".join(f"{cell:>10}" for cell in cells))


def print_worth(doubted: Sequence[Asked]) -> None:
    headings = ("at level 0", "at level 1", "at level 2", "routed minus level 0")
    print(f"\n{'success %':16}{'queries':>10}" + "".join(f"{heading:>24}" for heading in headings))
    rng = np.random.default_rng(0)
    for name, levels in (("sent to level 1", (1,)), ("sent to level 2", (2,)), ("both", (1, 2))):
        rows = [one for one in doubted if one.level in levels]
        if not rows:
            print(f"{name:16}{0:>10}")
            continue
        successes = 100.0 * np.array([one.successes for one in rows])
        routed = successes[np.arange(len(rows)), [one.level for one in rows]]
        columns = [*successes.T, routed - successes[:, 0]]
        cells = "".join(f"{bootstrapped(column, rng)!s:>24}" for column in columns)
        print(f"{name:16}{len(rows):>10}{cells}")


if __name__ == "__main__":
    main()
