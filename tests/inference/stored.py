"""Stand-ins for tests of the search: a video of numbered images and a predictor that reads the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import SearchConfig, TemporalConfig
from egohieraloc.images import write_image
from egohieraloc.inference.chunks import all_chunks
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import CanvasMaps, Decoded
from egohieraloc.inference.reading import Reading
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.weights import Calibration
from egohieraloc.types import Box, Rgb, SampledVideo, VideoInfo, VideoSource
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

SIZE = 32
MAPS = CanvasMaps(*[np.zeros((2, 2), np.float32)] * 4, *[np.zeros(2, np.float32)] * 3)


def sampled(count: int, *, width: int = 64, height: int = 48) -> SampledVideo:
    """Every sixth frame of a video of 30 frames a second."""
    info = VideoInfo(width, height, Fraction(30), 6 * count)
    return SampledVideo(VideoSource("nowhere.mp4"), info, 5.0, 6 * np.arange(count), np.arange(count) / 5)


def search_over(video: Any, predictor: Any, **changes: Any) -> QuerySearch:
    """A search for anything at all."""
    parts = {"query": None, "config": SearchConfig(), "temporal": TemporalConfig()}
    return QuerySearch(video=video, predictor=predictor, **(parts | changes))


def numbered_folder(folder: Path, count: int) -> Video:
    """Image i is grey of value i; 10 images a second."""
    for number in range(count):
        write_image(folder / f"{number:04d}.png", np.full((6, 8, 3), number, np.uint8))
    return Video.open(folder, folder_fps=10)


def packed(values: Sequence[int]) -> PackedFeatures:
    """Features whose descriptors say `values`."""
    count = len(values)
    ones = np.ones((count, 1), np.float16)
    codes = np.zeros((count, 1, 1, 1), np.uint8)
    match = np.array(values, np.int8).reshape(count, 1, 1, 1), np.ones(count, np.float16)
    return PackedFeatures(*match, *[codes, ones] * 3)


def reading_of(video: Video, predictor: Any, store: FeatureStore) -> EncodedVideo:
    """All frames of a video, none of them encoded yet."""
    letterbox = Letterbox(video.info.width, video.info.height, predictor.config.input_size)
    sampled = video.sampled(None)
    return EncodedVideo(sampled, letterbox, store, Reading(sampled, letterbox, predictor, video))


def encode_all(video: Video, predictor: Any, store: FeatureStore) -> EncodedVideo:
    encoded = reading_of(video, predictor, store)
    encoded.fill(all_chunks(len(encoded)))
    return encoded


def decoded(
    score: float, left: float = 0.0, shot: int | None = None, *, outlined: bool = True, columns: int = 8
) -> Decoded:
    """An answer with a box 8 pixels wide and 4 high on the canvas, and a mask with one cell. Samples of one
    shot show the same scene, those of different ones have nothing in common. columns: cells in each of
    the mask's eight rows."""
    cells = None if outlined else np.zeros((1, 2, 2), np.float32)
    scene = None if shot is None else np.eye(8, dtype=np.float32)[shot]
    mask = np.zeros((8, columns), np.uint8)
    mask[4, 4] = 255
    return Decoded(score, Box(left, 10, left + 8, 14), mask, MAPS, scene, cells)


class Draws:
    """A predictor that draws masks later."""

    largest_batch = 16

    def outlined(self, packed: object, seen: Sequence[Decoded]) -> list[Decoded]:
        assert all(each.cells is not None for each in seen)
        return [replace(each, cells=None) for each in seen]


class Counts(list[int]):
    """A predictor's state that counts the samples of each run."""

    def rows(self, index: list[int]) -> Counts:
        return Counts(self[row] for row in index)

    def after(self, samples: int) -> Counts:
        return Counts(count + samples for count in self)

    @staticmethod
    def joined(states: Sequence[Counts]) -> Counts:
        return Counts(count for state in states for count in state)


@dataclass
class NumberReader(Draws):
    """A predictor whose descriptors are the images' grey values; its state counts what it has seen."""

    config: SimpleNamespace
    encoded: list[int]
    batches: list[list[int]]
    encode_batch: int = 8

    @classmethod
    def make(cls) -> NumberReader:
        return cls(SimpleNamespace(input_size=SIZE), [], [])

    def encode(self, canvases: Sequence[Rgb]) -> PackedFeatures:
        values = [int(canvas[SIZE // 2, SIZE // 2, 0]) for canvas in canvases]
        self.encoded += values
        return packed(values)

    def coarse(self, query: object, match: NDArray[np.int8], scale: NDArray) -> NDArray[np.float32]:
        return match[:, 0, 0, 0].astype(np.float32)

    coarse_gain = 1.0
    calibration = Calibration()
    can_follow = True

    def tokens(self, query: object) -> NDArray[np.float32]:
        return np.ones((1, 1), np.float32)

    def start(self, query: object, *, runs: int = 1) -> Counts:
        return Counts([0] * runs)

    def decode(
        self, query: object, features: PackedFeatures, state: Counts, *, outlined: bool = True
    ) -> tuple[list[Decoded], Counts]:
        values = features.match[:, 0, 0, 0].tolist()
        assert values
        self.batches.append(values)
        times = len(values) // len(state)
        counted = [count + time for count in state for time in range(times)]
        seen = [decoded(c, left=v, outlined=outlined) for c, v in zip(counted, values, strict=True)]
        return seen, state.after(times)
