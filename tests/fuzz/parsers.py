"""Every parser of files from elsewhere: how one input is given to it, and what it may raise."""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import read_clip_poses, read_intrinsics, read_mapping, read_vq3d
from egohieraloc.data.egotracks import read_clip_lengths, read_egotracks
from egohieraloc.data.stream import stream_object
from egohieraloc.data.trek150 import read_rectangles
from egohieraloc.data.visor import read_visor
from egohieraloc.documents import parse_json, parse_toml
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.evaluation.predictions import read_places, read_tracks, read_vq2d_predictions
from egohieraloc.evaluation.vq3d import read_vq3d_predictions
from egohieraloc.figures.plots import read_log, read_table
from egohieraloc.geometry import reconstruction
from egohieraloc.geometry.depth import read_depth_folder
from egohieraloc.geometry.reference import parse_known_length, read_known_positions
from egohieraloc.images import read_image, read_mask
from egohieraloc.models.weights import load_weights
from egohieraloc.query import parse_box
from egohieraloc.result import Result
from egohieraloc.result_json import from_png
from egohieraloc.settings import override
from egohieraloc.training.optim import OptimConfig
from egohieraloc.training.recipe import read_recipe
from egohieraloc.video.reader import Video

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Parser:
    """`parse` reads the file it is given; `may_raise` is what a caller is told to expect."""

    parse: Callable[[Path], Any]
    name: str = "input"  # of the file
    may_raise: tuple[type[Exception], ...] = (EgoHieraLocError,)

    def __call__(self, data: bytes) -> None:
        """Give it one input; whatever else it raises is a find."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / self.name
            path.write_bytes(data)
            try:
                self.parse(path)
            except self.may_raise:
                return


def text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def read_video(path: Path) -> None:
    video = Video.open(path)
    assert len(video.times_s) == video.info.num_frames
    for frame in video.frames(range(min(3, video.info.num_frames))):
        assert frame.rgb.shape == (video.info.height, video.info.width, 3)
    assert video.focal_px is None or video.focal_px > 0


def read_times(path: Path) -> None:
    for number in range(3):
        shutil.copy(CORPUS / "image" / "small.png", path.with_name(f"{number}.png"))
    Video.open(path.parent).frame(1)


def read_result(path: Path) -> None:
    shutil.copy(CORPUS / "image" / "small.png", path.with_name("query.png"))
    Result.load(path)


def read_weights(path: Path) -> None:
    """The input is the header of a file whose tensors are zeros."""
    header = path.read_bytes()
    ends = [int(end) for end in re.findall(rb"\d{1,7}(?=\])", header)]
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + max(ends, default=0))
    load_weights(path)


def read_packed(path: Path) -> None:
    """The same annotations, packed with gzip: what is mutated is inside."""
    packed = path.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    list(stream_object(packed, array="videos"))


PARSERS: dict[str, Parser] = {
    "json": Parser(lambda path: parse_json(path.read_bytes()), may_raise=(ValueError,)),
    "toml": Parser(lambda path: parse_toml(path.read_bytes()), may_raise=(ValueError,)),
    "recipe": Parser(read_recipe),
    "setting": Parser(lambda path: override(OptimConfig(), [text(path)])),
    "box": Parser(lambda path: parse_box(text(path))),
    "length": Parser(lambda path: parse_known_length(text(path))),
    "result": Parser(read_result, "result.json"),
    "map": Parser(lambda path: from_png(text(path)), may_raise=(ValueError,)),
    "cameras": Parser(reconstruction.read_cameras),
    "reconstruction": Parser(reconstruction.load),
    "positions": Parser(read_known_positions),
    "image": Parser(read_image),
    "mask": Parser(read_mask),
    "depth_png": Parser(lambda path: read_depth_folder(path.parent, [7]), "7.png"),
    "depth_npy": Parser(lambda path: read_depth_folder(path.parent, [7]), "7.npy"),
    "video": Parser(read_video),
    "times": Parser(read_times, "times.txt"),
    "weights": Parser(read_weights),
    "ego4d": Parser(lambda path: list(read_vq2d(path))),
    "packed": Parser(read_packed, "input.json"),
    "egotracks": Parser(lambda path: list(read_egotracks(path))),
    "clip_lengths": Parser(read_clip_lengths),
    "visor": Parser(lambda path: list(read_visor(path))),
    "vq3d": Parser(lambda path: list(read_vq3d(path))),
    "vq3d_mapping": Parser(read_mapping),
    "vq3d_poses": Parser(read_clip_poses),
    "vq3d_intrinsics": Parser(read_intrinsics),
    "rectangles": Parser(read_rectangles),
    "tracks": Parser(read_tracks),
    "places": Parser(read_places),
    "vq2d_predictions": Parser(lambda path: read_vq2d_predictions(path, [])),
    "vq3d_predictions": Parser(read_vq3d_predictions),
    "log": Parser(read_log),
    "table": Parser(read_table),
}
