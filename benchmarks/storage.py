"""What storing features costs: bytes a sample of each preset, and what rounding them does to the answers.

    python benchmarks/storage.py [--model mini] [--data DIR]

The same questions are answered from stored features and from features as the network made them: that of the
bundled demo clip, or those of ego_dev/ in DIR (see `real_dev.py`). Printed are, over the samples decoded both
times, the largest and the mean difference of scores, the space-time IoU of both answers with each other, and
that of each with the truth.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from ego_dev import open_videos, read_queries
from egohieraloc import Localizer, Query, Video, demo
from egohieraloc.config import PRESETS
from egohieraloc.data.base import Track
from egohieraloc.evaluation.vq2d import overlap
from egohieraloc.inference.chunks import samples_of
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import pack
from egohieraloc.inference.predict import Predictor
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.progress import Progress, no_progress
from egohieraloc.result import Result
from egohieraloc.types import Ints, SampledVideo
from egohieraloc.video.letterbox import Letterbox
from figures import outcome


@dataclass(frozen=True, eq=False)
class Exact:
    """Features that were never rounded, in the place of packed ones."""

    features: FrameFeatures

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: slice | Ints) -> Exact:
        return Exact(self.features[index if isinstance(index, slice) else torch.from_numpy(index)])

    @property
    def match(self) -> NDArray[np.float32]:
        return self.features.match.float().cpu().numpy()


def nothing_is_rounded() -> Any:
    """While it lasts, a predictor makes and takes exact features."""
    return patch.multiple(
        "egohieraloc.inference.predict",
        pack=lambda features: Exact(
            FrameFeatures(*(getattr(features, f.name).float() for f in fields(features)))
        ),
        unpack=lambda packed, device, outlines=True: packed.features,
        unpack_match=lambda match, scale, device: torch.from_numpy(match).to(device),
    )


class ExactVideo(EncodedVideo):
    """Samples that are kept at hand, unrounded."""

    def __init__(self, video: Video, sampled: SampledVideo, letterbox: Letterbox, whole: Exact) -> None:
        super().__init__(sampled, letterbox, FeatureStore(Path("in memory")), pixels=video.frames)
        self.__dict__["whole"] = whole

    def fill(self, numbers: Iterable[int], *, progress: Progress = no_progress) -> None:
        """Everything is there."""

    def descriptors(self, numbers: Iterable[int]):  # type: ignore[no-untyped-def]
        return self.pick_descriptors([s for number in numbers for s in samples_of(number, len(self))])

    def pick_descriptors(self, samples: Sequence[int]):  # type: ignore[no-untyped-def]
        return self.pick(samples).match, None

    def pick(self, samples: Sequence[int]) -> Exact:  # type: ignore[override]
        return self.whole[np.array(samples)]


def encode_exactly(predictor: Predictor, video: Video, fps: float | None) -> EncodedVideo:
    sampled = video.sampled(fps)
    letterbox = predictor.letterbox(video.info.width, video.info.height)
    canvases = [letterbox.apply(frame.rgb) for frame in video.frames(sampled.frame_index)]
    parts = [predictor.encode(canvases[i : i + 8]) for i in range(0, len(canvases), 8)]
    whole = Exact(FrameFeatures.cat([part.features for part in parts]))
    return ExactVideo(video, sampled, letterbox, whole)


def questions(data: Path | None) -> Iterator[tuple[str, Video, Query, Track]]:
    if data is None:
        truth = demo.load_truth()
        first, last = truth.appearances[-1]
        boxes = [box.xyxy for box in truth.boxes[first : last + 1] if box is not None]
        query = Query.from_image(demo.QUERY, box=truth.query_box)
        yield "demo", Video.open(demo.CLIP), query, Track.from_boxes(list(range(first, last + 1)), boxes)
        return
    queries = read_queries(data / "ego_dev")
    videos = open_videos(data / "ego_dev", (query.video for query in queries))
    for query in sorted(queries, key=lambda q: q.video):
        yield f"{query.name} {query.target}", videos[query.video], query.query, query.truth


def together(one: Track, other: Track) -> float:
    """Space-time IoU; two empty answers agree."""
    if not len(one) or not len(other):
        return float(len(one) == len(other))
    return overlap(one, other)[1]


def compare(name: str, truth: Track, stored: Result, exact: Result) -> tuple[float, ...]:
    both = (stored.curve.raw > 0) & (exact.curve.raw > 0)
    change = np.abs(stored.curve.raw - exact.curve.raw)[both]
    rounded, plain = (outcome(name, truth, found).answer for found in (stored, exact))
    row = (
        float(change.max(initial=0)),
        float(change.mean()) if change.size else 0.0,
        together(plain, rounded),
        together(truth, rounded),
        together(truth, plain),
    )
    print(f"| {name} | {' | '.join(f'{value:.3f}' for value in row)} |", flush=True)
    return row


def bytes_a_sample() -> None:
    print("| preset | bytes a sample |\n|---|---|")
    for name, config in PRESETS.items():
        neck, side = config.neck, config.input_size
        shapes = ((neck.match, 16), (neck.context, 32), (neck.fine8, 8), (neck.fine4, 4))
        maps = FrameFeatures(*(torch.rand(1, channels, side // s, side // s) for channels, s in shapes))
        print(f"| `{name}` | {pack(maps).bytes_per_sample / 1000:.0f} kB |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    bytes_a_sample()
    names = ("largest score change", "mean", "stIoU of both", "stIoU stored", "stIoU exact")
    print(f"\n| question | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    rows: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as cache:
        stored = Localizer.from_pretrained(options.model, device=options.device, cache=Path(cache))
        exact = Localizer(
            stored.weights, device=options.device, engine=stored.predictor.engine, cache=Path(cache)
        )
        encoded: tuple[Video, EncodedVideo] | None = None
        for name, video, query, truth in questions(options.data):
            with nothing_is_rounded():
                if encoded is None or encoded[0] is not video:
                    encoded = video, encode_exactly(exact.predictor, video, stored.config.search.fps)
                plain = exact.ask(query, encoded[1])
            rows.append(compare(name, truth, stored.ask(query, stored.encode(video)), plain))
    columns = np.array(rows).T
    print(f"| all | {columns[0].max():.3f} | {' | '.join(f'{c.mean():.3f}' for c in columns[1:])} |")


if __name__ == "__main__":
    main()
