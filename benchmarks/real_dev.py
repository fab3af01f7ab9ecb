"""Ask about real first-person clips with hand-made truth, beside two baselines without training.

    python benchmarks/real_dev.py --data DIR [--model FILE|NAME] [--long] [--no-baselines] [--json FILE]

DIR holds ego_dev/. `--long` sets each video in the middle of others that show other places: 300 to 450
samples, on square frames. Each video is encoded once; a long one is made by joining features.
The baselines follow the same temporal rule, applied to what their scores rise above the video's median: their
scores are never near 0. They have no calibrated threshold and so refuse nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ego_dev import (
    DevQuery,
    encoded_squared,
    joined,
    long_truth,
    long_video,
    open_videos,
    read_queries,
    squared,
)
from egohieraloc.config import NetworkConfig, TemporalConfig
from egohieraloc.data.base import Track
from egohieraloc.files import write_json
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.temporal import choose_interval
from egohieraloc.localize import Localizer
from egohieraloc.video.reader import Video
from figures import Outcome, figures, outcome, print_outcomes, print_table
from matchers import FeatureMatcher, Matcher, Matches, TemplateMatcher
from options import answer_options, localizer_of

BASELINES: dict[str, Callable[[], Matcher]] = {
    "template matching": TemplateMatcher,
    "ImageNet features": FeatureMatcher,
}


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--cache", type=Path, help="keep features here, but for --long")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--baselines", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    queries = read_queries(options.data / "ego_dev")
    videos = open_videos(options.data / "ego_dev", (q.video for q in queries))
    answers: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        localizer = localizer_of(options, options.cache or Path(scratch))
        ask = ask_long if options.long else ask_short
        answers["egohieraloc"] = ask(localizer, queries, videos, Path(scratch))
    if options.baselines:
        for name, build in BASELINES.items():
            answers[name] = ask_baseline(build(), queries, videos, long=options.long)
    rows = {name: figures(outcomes) for name, outcomes in answers.items()}
    print_table(rows)
    if options.queries:
        print_outcomes(answers["egohieraloc"])
    if options.json:
        write_json(options.json, {name: asdict(row) for name, row in rows.items()})


def encode_all(localizer: Localizer, videos: dict[str, Video]) -> dict[str, EncodedVideo]:
    started = time.perf_counter()
    encoded = {name: localizer.encode(video) for name, video in videos.items()}
    seconds = time.perf_counter() - started
    count = sum(len(e.time_s) for e in encoded.values())
    print(f"encoding: {count} frames, {count / seconds:.1f} frames a second (with what was stored before)")
    return encoded


def ask_short(
    localizer: Localizer, queries: list[DevQuery], videos: dict[str, Video], scratch: Path
) -> list[Outcome]:
    encode_all(localizer, videos)
    started, outcomes = time.perf_counter(), []
    for query in queries:
        found = localizer.locate(query.query, videos[query.video])
        outcomes.append(outcome(f"{query.name} {query.target}", query.truth, found))
    _say_speed(time.perf_counter() - started, [videos[q.video].info.num_frames for q in queries])
    return outcomes


def ask_long(
    localizer: Localizer, queries: list[DevQuery], videos: dict[str, Video], scratch: Path
) -> list[Outcome]:
    predictor = localizer.predictor
    size = predictor.config.input_size
    encoded = {name: encoded_squared(video, predictor) for name, video in videos.items()}
    stores: dict[tuple[str, ...], EncodedVideo] = {}
    seconds, counts, outcomes = 0.0, [], []
    for query in queries:
        long = long_video(query, videos)
        if long.parts not in stores:
            parts, features = [videos[name] for name in long.parts], [encoded[name] for name in long.parts]
            stores[long.parts] = joined(parts, features, scratch / f"long-{len(stores)}", size)
        started = time.perf_counter()
        found = localizer.ask(query.query, stores[long.parts])
        seconds += time.perf_counter() - started
        counts.append(long.count)
        truth = long_truth(query, long, squared(videos[query.video], size))
        outcomes.append(outcome(f"{query.name} {query.target}", truth, found))
    _say_speed(seconds, counts)
    return outcomes


def _say_speed(seconds: float, counts: list[int]) -> None:
    print(
        f"asking: {len(counts)} questions of videos of {min(counts)} to {max(counts)} samples, "
        f"{seconds / len(counts):.2f} s each, {sum(counts) / seconds:.1f} frames a second"
    )


def ask_baseline(
    matcher: Matcher, queries: list[DevQuery], videos: dict[str, Video], *, long: bool
) -> list[Outcome]:
    """All on square canvases, as for long videos."""
    boxes = {name: squared(video, NetworkConfig().input_size) for name, video in videos.items()}
    prepared = {
        name: matcher.prepare([boxes[name].apply(frame.rgb) for frame in video.samples(None)])
        for name, video in videos.items()
    }
    outcomes = []
    for query in queries:
        whole = long_video(query, videos)
        parts = whole.parts if long else (query.video,)
        matches = Matches.cat([matcher.match(query.query, prepared[name]) for name in parts])
        truth = long_truth(query, whole, boxes[query.video])
        if not long:
            truth = Track(query.truth.frames, truth.boxes_xyxy)
        outcomes.append(baseline_outcome(f"{query.name} {query.target}", truth, matches))
    return outcomes


def baseline_outcome(name: str, truth: Track, matches: Matches) -> Outcome:
    peak = float(matches.scores.max())
    rise = np.maximum(matches.scores - np.median(matches.scores), 0)
    chosen = choose_interval(rise, np.arange(len(rise)) / 5, TemporalConfig()).chosen
    if chosen is None:
        return Outcome(name, truth, Track.empty(), 0.0, peak)
    samples = np.arange(chosen[0], chosen[1] + 1)
    return Outcome(name, truth, Track(samples, matches.boxes_xyxy[samples]), peak, peak)


if __name__ == "__main__":
    main()
