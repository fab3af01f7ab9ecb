"""Find personal objects again: photographs of the same object in other places, among objects of its class.

    python benchmarks/personal.py --data DIR [--model FILE|NAME] [--json FILE]

DIR holds personal/, whose build.py makes the videos and the questions (62 present and 10 absent). Every
question is answered; refusal.py says how refusals count. `--videos 1` asks about the first of the six only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ego_dev import open_videos, read_queries
from egohieraloc.files import write_json
from figures import outcome, print_outcomes
from options import answer_options
from refusal import answering_localizer, banded, print_rows, rows_by_group, to_json


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--videos", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "built"
        build = options.data / "personal" / "build.py"
        subprocess.run(
            [sys.executable, str(build), "--out", str(built)], check=True, stdout=subprocess.DEVNULL
        )
        queries = read_queries(built)
        names = sorted({query.video for query in queries})[: options.videos]
        queries = [query for query in queries if query.video in names]
        videos = open_videos(built, names)
        localizer, threshold = answering_localizer(
            options.model,
            device=options.device,
            engine=options.engine,
            settings=options.settings,
            cache=Path(scratch) / "cache",
        )
        started, outcomes = time.perf_counter(), []
        for query in queries:
            found = localizer.locate(query.query, videos[query.video])
            outcomes.append(outcome(f"{query.name} {query.target}", query.truth, found))
    print(f"{len(outcomes)} questions in {time.perf_counter() - started:.0f} s, encoding included")
    boxes = [o.truth.boxes_xyxy for o in outcomes]
    sizes = np.array([(b[:, 2:] - b[:, :2]).max(1).mean() if len(b) else np.nan for b in boxes])
    rows = rows_by_group(outcomes, banded(sizes, (0, 128, 192, 641), "pixels"), threshold)
    print_rows(rows)
    if options.queries:
        print_outcomes(outcomes)
    if options.json:
        write_json(options.json, to_json(rows))


if __name__ == "__main__":
    main()
