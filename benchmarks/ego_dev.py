"""The development set of real first-person clips, as it lies on disk, and its clips joined to long videos."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from egohieraloc.data.base import Track
from egohieraloc.inference.chunks import CHUNK
from egohieraloc.inference.encoded import EncodedVideo, store_features
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Predictor
from egohieraloc.query import Query
from egohieraloc.types import Box, Frame, Rgb
from egohieraloc.video.letterbox import Letterbox
from egohieraloc.video.reader import Video

FPS = 5.0
MAX_LONG = 450  # samples
# Videos that share a clip or a home share a place; the words are parts of the queries' source names.
PLACES = {
    "v2_home_milk": {"egohomes"},
    "v4_aria_cooking": {"cooking_aria", "bike_repair_aria"},
    "v5_ego4d_a": {"EGO4D_EGO4D"},
    "v7_aria_bike": {"basketball_aria", "bike_repair_aria", "cooking_aria"},
    "e1_life_down": {"egolife"},
    "e2_life_up": {"egolife"},
    "e3_life_b": {"egolife", "bike_repair_aria"},
    "e4_edina_kitchen": {"egodepthnormal", "egohomes"},
    "e5_hand_table": {"sam2"},
}


@dataclass(frozen=True, eq=False)
class DevQuery:
    """One question of the set; the track is empty when the object is absent."""

    name: str
    video: str
    target: str
    source: str
    frame: Path
    box: Box
    truth: Track

    @cached_property
    def query(self) -> Query:
        return Query.from_image(self.frame, box=self.box)


@dataclass(frozen=True)
class LongVideo:
    """Videos in a row, on one canvas, and where the searched one begins."""

    parts: tuple[str, ...]
    start: int
    count: int


def read_queries(folder: Path) -> list[DevQuery]:
    queries = []
    for row in json.loads((folder / "annotations.json").read_text(encoding="utf-8")):
        crop, track = row["query_crop"], row["response_track"] or []
        queries.append(
            DevQuery(
                row["qid"],
                row["video"],
                row["object"],
                crop["source_clip"],
                next((folder / "queries").glob(f"{row['qid']}_frame.*")),
                Box(*crop["box"]),
                Track.from_boxes([b["frame"] for b in track], [[b[k] for k in BOX_KEYS] for b in track]),
            )
        )
    return queries


BOX_KEYS = ("x1", "y1", "x2", "y2")


def open_videos(folder: Path, names: Iterable[str]) -> dict[str, Video]:
    return {name: Video.open(folder / "videos" / name, folder_fps=FPS) for name in sorted(set(names))}


def long_video(query: DevQuery, videos: dict[str, Video]) -> LongVideo:
    """The searched video in the middle of others in which the object cannot be, at most MAX_LONG samples."""
    places = PLACES[query.video] | {
        place for some in PLACES.values() for place in some if place in query.source
    }
    names = list(videos)
    turn = names.index(query.video)
    others = [name for name in names[turn + 1 :] + names[:turn] if not PLACES[name] & places]
    count = videos[query.video].info.num_frames
    chosen = []
    for name in others:
        if count + videos[name].info.num_frames <= MAX_LONG:
            chosen.append(name)
            count += videos[name].info.num_frames
    half = len(chosen) // 2
    start = sum(videos[name].info.num_frames for name in chosen[:half])
    return LongVideo((*chosen[:half], query.video, *chosen[half:]), start, count)


def squared(video: Video, size: int) -> Letterbox:
    """How its frames lie in those of a long video, which are square, with black borders where it is not."""
    return Letterbox(video.info.width, video.info.height, size, square=True)


def long_truth(query: DevQuery, long: LongVideo, letterbox: Letterbox) -> Track:
    """The true track in samples of the long video and pixels of its frames."""
    corners = query.truth.boxes_xyxy.reshape(-1, 2, 2)
    return Track(query.truth.frames + long.start, letterbox.points_to_canvas(corners).reshape(-1, 4))


def encoded_squared(video: Video, predictor: Predictor) -> PackedFeatures:
    """The features of all of its frames as a long video shows them."""
    letterbox = squared(video, predictor.config.input_size)
    canvases = (letterbox.apply(frame.rgb) for frame in video.samples(None))
    return PackedFeatures.cat([predictor.encode(some) for some in _batches(canvases, CHUNK)])


def joined(
    videos: Sequence[Video], encoded: Sequence[PackedFeatures], folder: Path, size: int
) -> EncodedVideo:
    """Videos in a row, with their features, as one whose frames have `size` pixels either way."""
    owners = [(video, k) for video in videos for k in range(video.info.num_frames)]

    def frames(numbers: Sequence[int]) -> Iterator[Frame]:
        for number in numbers:
            video, k = owners[number]
            yield Frame(number, number / FPS, squared(video, size).apply(video.frame(k).rgb))

    packed = PackedFeatures.cat(list(encoded))
    return replace(store_features(packed, folder, Letterbox(size, size, size), fps=FPS), pixels=frames)


def _batches(canvases: Iterator[Rgb], size: int) -> Iterator[list[Rgb]]:
    while some := list(islice(canvases, size)):
        yield some
