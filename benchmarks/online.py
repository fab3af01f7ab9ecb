"""Questions that come when the frames have passed: what a bounded memory of features still answers.

    python benchmarks/online.py --data DIR [--budgets 64 16 8 4]

The setting of `eval ovq2d` on the long videos of real_dev.py: samples come one by one, and once the budget in
megabytes of features is spent, one is forgotten for each that comes. `all` remembers every sample, under the
same settings. Frames between two remembered ones of a track take the box of the first.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ego_dev import encoded_squared, joined, long_truth, long_video, open_videos, read_queries, squared
from egohieraloc.data.base import Ints, Track
from egohieraloc.evaluation.run_ovq2d import FEATURES_ALONE, Budget, Forget, forgotten_at, keeping
from egohieraloc.files import write_json
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.result import Result
from egohieraloc.types import ResponseTrack
from figures import Outcome, figures, print_table
from options import answer_options, localizer_of


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--budgets", type=float, nargs="+", default=[64.0, 16.0, 8.0, 4.0], help="megabytes")
    options = parser.parse_args()
    options.settings = [*FEATURES_ALONE, *options.settings]
    queries = read_queries(options.data / "ego_dev")
    videos = open_videos(options.data / "ego_dev", (q.video for q in queries))
    ways = {"all": None} | {
        f"{size:g} MB, {rule}": Budget(1e6 * size, rule) for rule in Forget for size in options.budgets
    }
    outcomes: dict[str, list[Outcome]] = {way: [] for way in ways}
    longs: dict[tuple[str, ...], EncodedVideo] = {}
    with tempfile.TemporaryDirectory() as scratch:
        localizer = localizer_of(options, Path(scratch))
        size = localizer.predictor.config.input_size
        features = {name: encoded_squared(video, localizer.predictor) for name, video in videos.items()}
        for query in queries:
            long = long_video(query, videos)
            if long.parts not in longs:
                parts = [videos[name] for name in long.parts], [features[name] for name in long.parts]
                longs[long.parts] = joined(*parts, Path(scratch) / f"long-{len(longs)}", size)
            video, truth = longs[long.parts], long_truth(query, long, squared(videos[query.video], size))
            for way, budget in ways.items():
                kept = np.arange(len(video))
                if budget is not None:
                    kept = np.flatnonzero(forgotten_at(video, budget) > len(video))
                answered = localizer.ask(query.query, keeping(video, kept))
                given, track = held(answered, kept), answered.track
                peak = float(answered.curve.smooth.max(initial=0.0))
                outcomes[way].append(Outcome(query.name, truth, given, track.score, peak))
    rows = {way: figures(found) for way, found in outcomes.items()}
    print_table(rows)
    if options.json:
        write_json(options.json, {way: asdict(row) for way, row in rows.items()})


def held(answered: Result, kept: Ints) -> Track:
    """The track on all samples, each box held up to the next remembered one."""
    if not isinstance(answered.track, ResponseTrack):
        return Track.empty()
    boxes: dict[int, tuple[float, ...]] = {}
    predictions = answered.track.predictions
    for prediction in predictions:
        start = int(kept[prediction.sample])
        end = start + 1 if prediction is predictions[-1] else int(kept[prediction.sample + 1])
        boxes |= dict.fromkeys(range(start, end), prediction.box.xyxy)
    return Track.from_boxes(list(boxes), list(boxes.values()))


if __name__ == "__main__":
    main()
