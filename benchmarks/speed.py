"""How fast an answer comes: reading a video for the first time, and asking a second question of a long one.

    python benchmarks/speed.py [--model mini] [--minutes 10]

The bundled demo clip is encoded once; its stored features, repeated, stand for a long video. The answer with
the coarse look first is compared with decoding every sample.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from egohieraloc import Localizer, LocalizerConfig, Query, Video, demo
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.encoded import EncodedVideo, write_features
from egohieraloc.inference.regions import RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.settings import override
from egohieraloc.types import Frame, Ints, ResponseTrack


def repeated(encoded: EncodedVideo, minutes: float, folder: Path) -> EncodedVideo:
    """The samples of a video over and over, as one long video at 5 samples a second."""
    whole = encoded.pick(range(len(encoded)))
    order = np.arange(round(minutes * 60 * 5)) % len(whole)
    store, memory = FeatureStore(folder), RegionMemory.of(folder, "long")
    for start in range(0, len(order), STRETCH):
        write_features(whole[order[start : start + STRETCH]], store, memory, start=start)
    video = replace(encoded.video, frame_index=np.arange(len(order)), time_s=np.arange(len(order)) / 5)
    frames = partial(shown_again, encoded, order, len(whole))
    return replace(encoded, video=video, store=store, reading=None, memory=memory, pixels=frames)


def shown_again(encoded: EncodedVideo, order: Ints, period: int, numbers: Sequence[int]) -> Iterator[Frame]:
    """Frames of a row of an encoded video's samples, `order`; those of one period are read in one go."""
    for _, group in groupby(numbers, lambda number: number // period):
        asked = {int(order[number]): number for number in group}
        for sample, frame in encoded.frames(asked).items():
            yield replace(frame, index=asked[sample])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--minutes", type=float, default=10.0)
    arguments = parser.parse_args()
    truth = demo.load_truth()
    query = Query.from_image(demo.QUERY, box=truth.query_box)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        localizer = Localizer.from_pretrained(arguments.model, device=arguments.device, cache=folder)
        video = Video.open(demo.CLIP)
        start = time.perf_counter()
        encoded = localizer.encode(video, dense=True)
        spent = time.perf_counter() - start
        count = len(encoded.frame_index)
        print(f"first reading: {count} samples in {spent:.1f} s, {count / spent:.1f} a second")
        print(f"kept on disk: {encoded.chunk(0).bytes_per_sample / 1000:.0f} kB a sample")

        every = override(LocalizerConfig(), ["search.coarse_margin=1e9", "search.max_decoded=0"])
        thorough = Localizer(localizer.weights, device=arguments.device, config=every, cache=folder)
        video_long = repeated(encoded, arguments.minutes, folder / "long")
        times, answers = {}, {}
        for label, each in (("coarse look first", localizer), ("every sample decoded", thorough)):
            start = time.perf_counter()
            answers[label] = each.ask(query, video_long)
            times[label] = time.perf_counter() - start
            track = answers[label].track
            print(f"{arguments.minutes:g} minutes, {label}: {times[label]:.1f} s, {type(track).__name__}")
        ratio = times["every sample decoded"] / times["coarse look first"]
        tracks = [answer.track for answer in answers.values()]
        spans = [(t.start, t.end) if isinstance(t, ResponseTrack) else None for t in tracks]
        print(f"{ratio:.1f} times faster; same interval: {spans[0] == spans[1]} {spans}")


if __name__ == "__main__":
    main()
