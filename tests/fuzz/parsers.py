"""Every parser of files from elsewhere: how one input is given to it, and what it may raise."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import EgoHieraLocError

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Parser:
    """`parse` reads the file it is given; `may_raise` is what a caller is told to expect."""

    parse: Callable[[Path], Any]
    name: str = "input"  # of the file
    may_raise: tuple[type[Exception], ...] = (EgoHieraLocError,)

    def __call__(self, data: bytes, folder: Path) -> None:
        """Give it one input in an empty folder; whatever else it raises is a find."""
        path = folder / self.name
        path.write_bytes(data)
        with suppress(*self.may_raise):
            self.parse(path)
        for left in folder.iterdir():
            left.unlink()


@cache
def ours(module: str, name: str) -> Any:
    """A function of the package, imported when it is first needed: some need packages that others do not."""
    return getattr(importlib.import_module(f"egohieraloc.{module}"), name)


def reads(module: str, name: str) -> Callable[[Path], Any]:
    """The function, called with the path; what it yields is read to the end."""

    def parse(path: Path) -> None:
        found = ours(module, name)(path)
        if isinstance(found, Iterator):
            for _ in found:
                pass

    return parse


def text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def read_video(path: Path) -> None:
    video = ours("video.reader", "Video").open(path)
    assert len(video.times_s) == video.info.num_frames
    for frame in video.frames(range(min(3, video.info.num_frames))):
        assert frame.rgb.shape == (video.info.height, video.info.width, 3)
    assert video.focal_px is None or video.focal_px > 0
    ours("memory.wall_clock", "start_of")(video)


def read_photograph(path: Path) -> None:
    """The first of a folder of images: its size, its lens and when it was taken."""
    video = ours("video.reader", "Video").open(path.parent)
    assert video.focal_px is None or video.focal_px > 0
    ours("memory.wall_clock", "start_of")(video)


def read_times(path: Path) -> None:
    for number in range(3):
        shutil.copy(CORPUS / "image" / "small.png", path.with_name(f"{number}.png"))
    ours("video.reader", "Video").open(path.parent).frame(1)


def read_result(path: Path) -> None:
    shutil.copy(CORPUS / "image" / "small.png", path.with_name("query.png"))
    ours("result", "Result").load(path)


def read_weights(path: Path) -> None:
    """The input is the header of a file whose tensors are zeros."""
    header = path.read_bytes()
    ends = [int(end) for end in re.findall(rb"\d{1,7}(?=\])", header)]
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + max(ends, default=0))
    ours("models.weights", "load_weights")(path)


@cache
def small_network() -> Any:
    """Of the seed of `weights`."""
    fields = json.loads((CORPUS / "weights" / "header.json").read_bytes())["__metadata__"]
    config = ours("settings", "from_dict")(ours("config", "NetworkConfig"), json.loads(fields["network"]))
    return ours("models.network", "EgoHieraLocNet")(config)


def read_parts(path: Path) -> None:
    ours("models.compiled", "read_parts")(path, small_network())


def read_chunk(path: Path) -> None:
    store = ours("inference.store", "FeatureStore")(path.parent)
    store.read(0)
    store.read_match(0)


def read_packed(path: Path) -> None:
    """The same annotations, packed with gzip: what is mutated is inside."""
    packed = path.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    for _ in ours("data.stream", "stream_object")(packed, array="videos"):
        pass


def read_setting(path: Path) -> None:
    config = ours("training.optim", "OptimConfig")
    ours("settings", "override")(config(), [text(path)])


def read_model(path: Path) -> None:
    """The three files of a COLMAP model, one after the other; text begins with a remark."""
    parts = path.read_bytes().split(b"\n====\n")
    path.unlink()
    for name, part in zip(("cameras", "images", "points3D"), parts, strict=False):
        path.with_name(name + (".txt" if parts[0].startswith(b"#") else ".bin")).write_bytes(part)
    ours("geometry.cameras_from", "read_given")(path.parent)


def read_trek150_predictions(path: Path) -> None:
    four = np.tile([1.0, 2.0, 3.0, 4.0], (4, 1))
    sequence = ours("data.trek150", "TrekSequence")(
        "P01", path.parent, four, frozenset(), ((0, False),), ((0, 3, 0),)
    )
    ours("evaluation.trek150", "read_all_protocols")(path, [sequence])


def read_depth(path: Path) -> None:
    ours("geometry.depth", "read_depth_folder")(path.parent, [7])


def read_stray(path: Path) -> None:
    path.with_name("camera_matrix.csv").write_text("500,0,32\n0,500,24\n0,0,1\n")
    ours("geometry.formats.phones", "read_stray_scanner")(path.parent)


def read_camera_matrix(path: Path) -> None:
    path.with_name("odometry.csv").write_bytes((CORPUS / "stray" / "odometry.csv").read_bytes())
    ours("geometry.formats.phones", "read_stray_scanner")(path.parent)


def read_aria_points(path: Path) -> None:
    """Packed with gzip: what is mutated is inside."""
    path.with_name("semidense_points.csv.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    ours("geometry.formats.aria", "read_points")(path.parent)


def read_trajectory(path: Path) -> None:
    path.with_name("intrinsics.txt").write_bytes((CORPUS / "intrinsics" / "a.txt").read_bytes())
    ours("geometry.cameras_from", "read_given")(path, path.with_name("intrinsics.txt"))


PARSERS: dict[str, Parser] = {
    "json": Parser(lambda path: ours("documents", "parse_json")(path.read_bytes()), may_raise=(ValueError,)),
    "toml": Parser(lambda path: ours("documents", "parse_toml")(path.read_bytes()), may_raise=(ValueError,)),
    "recipe": Parser(reads("training.recipe", "read_recipe")),
    "setting": Parser(read_setting),
    "box": Parser(lambda path: ours("query", "parse_box")(text(path))),
    "length": Parser(lambda path: ours("geometry.reference", "parse_known_length")(text(path))),
    "result": Parser(read_result, "result.json"),
    "map": Parser(lambda path: ours("result_json", "from_png")(text(path)), may_raise=(ValueError,)),
    "cameras": Parser(reads("geometry.reconstruction", "read_cameras")),
    "reconstruction": Parser(reads("geometry.reconstruction", "load")),
    "transforms": Parser(reads("geometry.cameras_from", "read_given"), "transforms.json"),
    "record3d": Parser(reads("geometry.formats.phones", "read_record3d"), "metadata"),
    "r3d": Parser(reads("geometry.formats.phones", "read_record3d"), "a.r3d"),
    "stray": Parser(read_stray, "odometry.csv"),
    "camera_matrix": Parser(read_camera_matrix, "camera_matrix.csv"),
    "colmap": Parser(read_model),
    "polycam": Parser(lambda path: ours("geometry.formats.phones", "read_polycam")(path.parent), "0.json"),
    "trajectory": Parser(read_trajectory, "a.txt"),
    "intrinsics": Parser(reads("geometry.formats.intrinsics", "read_intrinsics"), "a.txt"),
    "sensor": Parser(reads("geometry.formats.intrinsics", "read_intrinsics"), "sensor.yaml"),
    "aria_points": Parser(read_aria_points, "points.csv"),
    "aria_path": Parser(reads("geometry.formats.aria", "read_mps_trajectory"), "closed_loop_trajectory.csv"),
    "positions": Parser(reads("geometry.reference", "read_known_positions")),
    "image": Parser(reads("images", "read_image")),
    "mask": Parser(reads("images", "read_mask")),
    "depth_png": Parser(read_depth, "7.png"),
    "depth_npy": Parser(read_depth, "7.npy"),
    "exr": Parser(read_depth, "7.exr"),
    "heif": Parser(reads("images", "read_image"), "a.heic"),
    "photograph": Parser(read_photograph, "1.jpg"),
    "video": Parser(read_video),
    "times": Parser(read_times, "times.txt"),
    "weights": Parser(read_weights),
    "parts": Parser(read_parts),
    "checkpoint": Parser(reads("models.backbone", "read_checkpoint"), "a.pth"),
    "chunk": Parser(read_chunk, "chunk-000000.safetensors"),
    "manifest": Parser(
        lambda path: ours("inference.regions", "RegionMemory")(path.parent).has(0), "manifest.txt"
    ),
    "catalogue": Parser(lambda path: ours("memory.shelf", "Shelf")(path.parent).list(), "catalogue.sqlite"),
    "time": Parser(lambda path: ours("clock", "parse_time")(text(path)), may_raise=(ValueError,)),
    "moment": Parser(lambda path: ours("memory.wall_clock", "parse_time")(text(path))),
    "file_name": Parser(lambda path: ours("memory.wall_clock", "time_in_name")(text(path)), may_raise=()),
    "ego4d": Parser(reads("data.ego4d", "read_vq2d")),
    "packed": Parser(read_packed, "input.json"),
    "egotracks": Parser(reads("data.egotracks", "read_egotracks")),
    "clip_lengths": Parser(reads("data.egotracks", "read_clip_lengths")),
    "visor": Parser(reads("data.visor", "read_visor")),
    "vq3d": Parser(reads("data.ego4d_3d", "read_vq3d")),
    "vq3d_mapping": Parser(reads("data.ego4d_3d", "read_mapping")),
    "vq3d_poses": Parser(reads("data.ego4d_3d", "read_clip_poses")),
    "vq3d_intrinsics": Parser(reads("data.ego4d_3d", "read_intrinsics")),
    "rectangles": Parser(reads("data.trek150", "read_rectangles")),
    "tracks": Parser(reads("evaluation.predictions", "read_tracks")),
    "places": Parser(reads("evaluation.predictions", "read_places")),
    "vq2d_predictions": Parser(
        lambda path: ours("evaluation.predictions", "read_vq2d_predictions")(path, [])
    ),
    "egotracks_predictions": Parser(
        lambda path: ours("evaluation.egotracks", "read_egotracks_predictions")(path, [])
    ),
    "trek150_predictions": Parser(read_trek150_predictions),
    "vq3d_predictions": Parser(reads("evaluation.vq3d", "read_vq3d_predictions")),
    "log": Parser(reads("figures.plots", "read_log")),
    "table": Parser(reads("figures.plots", "read_table")),
}
