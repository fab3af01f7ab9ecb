"""What a bare crop costs as a query: every question is asked with an image and its box, and with the crop.

    python benchmarks/bare_crops.py --data DIR [--split heldout] [--rounds 4] [--clips 40] [--real]

DIR holds photos/ and sprites/; the composed videos are those of `synthetic_heldout.py`. `--split val` has the
objects of the calibration, to choose on. `--real` asks about the real clips of `ego_dev/` in DIR instead.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ego_dev import open_videos, read_queries
from egohieraloc.data.base import Track
from egohieraloc.files import write_json
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.training.composer.composed_videos import compose_queries
from egohieraloc.training.composer.packs import read_packs
from figures import Outcome, figures, outcome, print_outcomes, print_table
from options import answer_options, localizer_of

Question = tuple[str, Query, EncodedVideo, Track]


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--split", choices=("val", "heldout"), default="heldout")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    answers: dict[str, list[Outcome]] = {"image and box": [], "bare crop": []}
    with tempfile.TemporaryDirectory() as scratch:
        localizer = localizer_of(options, Path(scratch) / "cache")
        asked = real(localizer, options.data) if options.real else composed(localizer, options, Path(scratch))
        for name, query, video, truth in asked:
            for kind, given in zip(answers, (query, Query.from_image(query.crop)), strict=True):
                answers[kind].append(outcome(name, truth, localizer.ask(given, video)))
    rows = {kind: figures(outcomes) for kind, outcomes in answers.items()}
    print_table(rows)
    if options.queries:
        for outcomes in answers.values():
            print_outcomes(outcomes)
    if options.json:
        write_json(options.json, {kind: asdict(row) for kind, row in rows.items()})


def composed(localizer: Localizer, options: argparse.Namespace, scratch: Path) -> Iterator[Question]:
    packs = read_packs(options.data, split=options.split)
    for number in range(options.rounds):
        folder = scratch / f"round-{number}"
        queries = compose_queries(packs, localizer.predictor, folder, clips=options.clips, seed=number)
        for count, one in enumerate(queries):
            yield f"round {number} clip {count}", one.query, one.video, one.truth


def real(localizer: Localizer, data: Path) -> Iterator[Question]:
    queries = read_queries(data / "ego_dev")
    videos = open_videos(data / "ego_dev", (q.video for q in queries))
    encoded = {name: localizer.encode(video) for name, video in videos.items()}
    for q in queries:
        yield f"{q.name} {q.target}", q.query, encoded[q.video], q.truth


if __name__ == "__main__":
    main()
