"""Packs of photos with object masks and of scanned objects rendered from many views, read into tensors.

The folder holds `photos/` (`images_K.tar`, `masks_K.npz`) and `sprites/` (`*.tar`, `index.json`,
`heldout_objects.txt`, `near_duplicates.tsv`). Letters: P photos, M masks, O objects, V views of each.
"""

from __future__ import annotations

import io
import math
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from egohieraloc.documents import read_json
from egohieraloc.errors import DataError, QueryError
from egohieraloc.images import decode_image, decode_rgba
from egohieraloc.types import Rgb

PHOTO_PX = 256
SPRITE_PX = 192
MASK_PX = 96  # side of the grid on which a mask is stored inside its box
VALIDATION_SHARE = 20  # one photo in 20, chosen by name, is never trained on
VALIDATION_OBJECTS = 12  # ... and one scanned object in 12

Split = Literal["train", "val", "heldout"]


@dataclass(frozen=True, eq=False)
class Packs:
    """What clips are composed of. Objects with equal `sprite_id` are near duplicates."""

    photos: Tensor  # (P, 256, 256, 3) uint8
    mask_crops: Tensor  # (M, 96, 96) uint8, the mask inside its box
    mask_photo: Tensor  # (M,) int64, index of its photo
    mask_box: Tensor  # (M, 4) float32 xyxy in pixels of the photo
    sprites: Tensor  # (O, V, 192, 192, 4) uint8 RGBA, centred
    sprite_direction: Tensor  # (O, V, 3) float32, unit vector from the object to the camera
    sprite_id: Tensor  # (O,) int64

    def __post_init__(self) -> None:
        if min(len(self.photos), len(self.mask_crops), len(self.sprites)) == 0:
            raise DataError(
                f"A pack needs photos, masks and sprites, got {len(self.photos)}, {len(self.mask_crops)} "
                f"and {len(self.sprites)}. Give a folder with photos/ and sprites/, and a higher limit."
            )


@dataclass(frozen=True, eq=False)
class _Photos:
    pixels: NDArray[np.uint8]
    crops: NDArray[np.uint8]
    owner: NDArray[np.int64]
    boxes: NDArray[np.float32]


def read_packs(
    folder: str | Path,
    *,
    split: Split = "train",
    publishable: bool = False,
    limit: int | None = None,
    workers: int = 8,
) -> Packs:
    """Read the packs under `folder`.

    `train` has 95 % of the photos and 11 of 12 training objects; `val`, for validation and calibration, has
    the rest of both; `heldout`, for final results, has the held-out objects and the photos of `val`.
    `publishable` keeps only Grocery Store photos; `limit` is the largest number of photos, and of objects, to
    read.
    """
    folder = Path(folder)
    with ThreadPoolExecutor(workers) as pool:
        photos = _read_photos(folder / "photos", split, publishable, limit, pool)
        names, sprites, directions = _read_sprites(folder / "sprites", split, limit, pool)
    identity = object_ids(names, _near_duplicates(folder / "sprites"))
    return Packs(
        photos=torch.from_numpy(photos.pixels),
        mask_crops=torch.from_numpy(photos.crops),
        mask_photo=torch.from_numpy(photos.owner),
        mask_box=torch.from_numpy(photos.boxes),
        sprites=torch.from_numpy(sprites),
        sprite_direction=torch.from_numpy(directions),
        sprite_id=torch.from_numpy(identity),
    )


def object_ids(names: list[str], pairs: Iterable[tuple[str, str]]) -> NDArray[np.int64]:
    """One number per object (O,); objects connected by pairs, also indirectly, share the smallest."""
    position = {name: index for index, name in enumerate(names)}
    ids = np.arange(len(names), dtype=np.int64)
    for first, second in pairs:
        if first in position and second in position:
            a, b = ids[position[first]], ids[position[second]]
            ids[ids == max(a, b)] = min(a, b)
    return ids


def is_validation_photo(name: str) -> bool:
    return zlib.crc32(name.encode()) % VALIDATION_SHARE == 0


def validation_objects(names: list[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """The objects never trained on, chosen by name; of connected objects, all or none."""
    ids = object_ids(names, pairs)
    return {
        name
        for name, first in zip(names, ids.tolist(), strict=True)
        if zlib.crc32(names[first].encode()) % VALIDATION_OBJECTS == 0
    }


def _read_photos(
    folder: Path, split: Split, publishable: bool, limit: int | None, pool: ThreadPoolExecutor
) -> _Photos:
    archives = _files(folder, "images_*.tar")
    pixels: list[NDArray[np.uint8]] = []
    crops: list[NDArray[np.uint8]] = []
    owner: list[int] = []
    boxes: list[NDArray[np.float32]] = []
    share = None if limit is None else math.ceil(limit / len(archives))
    for archive in archives:
        wanted = (
            (name, data)
            for name, data in _members(archive)
            if is_validation_photo(name) == (split != "train")
            and (name.startswith("groc_") or not publishable)
        )
        encoded = dict(islice(wanted, share))
        position = {name: len(pixels) + k for k, name in enumerate(encoded)}
        pixels.extend(pool.map(_decode_photo, encoded.values()))
        masks = _files(folder, archive.name.replace("images_", "masks_").replace(".tar", ".npz"))[0]
        for name, box, crop in _read_masks(masks):
            if name in position:
                owner.append(position[name])
                boxes.append(box)
                crops.append(crop)
    return _Photos(
        np.stack(pixels) if pixels else np.empty((0, PHOTO_PX, PHOTO_PX, 3), np.uint8),
        np.stack(crops) if crops else np.empty((0, MASK_PX, MASK_PX), np.uint8),
        np.array(owner, np.int64),
        np.array(boxes, np.float32).reshape(-1, 4),
    )


def _read_masks(path: Path) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.uint8]]]:
    """For each mask: name of its photo, its box in photo pixels (4,) and the mask inside the box (96, 96)."""
    with np.load(path) as archive:
        table = {key: archive[key] for key in ("ids", "sizes", "bits", "offset", "bbox", "image_index")}
    for k, (x1, y1, x2, y2) in enumerate(table["bbox"].astype(int)):
        index = table["image_index"][k]
        height, width = (int(v) for v in table["sizes"][index])
        bits = np.unpackbits(table["bits"][table["offset"][k] : table["offset"][k + 1]])
        mask = bits[: (y2 - y1) * (x2 - x1)].reshape(y2 - y1, x2 - x1) * np.uint8(255)
        box = np.array([x1 / width, y1 / height, x2 / width, y2 / height], np.float32) * np.float32(PHOTO_PX)
        crop = cv2.resize(mask, (MASK_PX, MASK_PX), interpolation=_interpolation(mask.shape, MASK_PX))
        yield str(table["ids"][index]), box, crop


def _read_sprites(
    folder: Path, split: Split, limit: int | None, pool: ThreadPoolExecutor
) -> tuple[list[str], NDArray[np.uint8], NDArray[np.float32]]:
    index = read_json(_files(folder, "index.json")[0])["objects"]
    held_out = set(_files(folder, "heldout_objects.txt")[0].read_text(encoding="utf-8").split())
    pairs = _near_duplicates(folder)
    if split == "heldout":
        # A held-out object with a near duplicate in the training set would measure memory, not recognition.
        twins = {n for a, b in pairs if (a in held_out) != (b in held_out) for n in (a, b)}
        wanted = held_out - twins
    else:
        names = sorted(entry["name"] for entry in index if entry["name"] not in held_out)
        reserved = validation_objects(names, pairs)
        wanted = reserved if split == "val" else set(names) - reserved
    chosen = [entry for entry in index if entry["name"] in wanted][:limit]
    names = [entry["name"] for entry in chosen]
    encoded: dict[str, bytes] = {}
    for shard in sorted({entry["shard"] for entry in chosen}):
        encoded.update(_members(folder / shard))
    seen = [[view for view in entry["views"] if _path(entry, view) in encoded] for entry in chosen]
    count = min(map(len, seen), default=0)
    if count == 0 and chosen:
        raise DataError(f"{folder} has objects without views: its index and its tar files do not match.")
    views = [(entry, view) for entry, some in zip(chosen, seen, strict=True) for view in some[:count]]
    pixels = list(pool.map(_decode_sprite, (encoded[_path(entry, view)] for entry, view in views)))
    shape = (len(chosen), count, SPRITE_PX, SPRITE_PX, 4)
    sprites = np.stack(pixels).reshape(shape) if pixels else np.empty(shape, np.uint8)
    azimuth, elevation = (
        np.radians([view[key] for _, view in views]).reshape(len(chosen), count) for key in ("az", "el")
    )
    around = (np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation))
    return names, sprites, np.stack(around, -1).astype(np.float32)


def _path(entry: dict[str, Any], view: dict[str, Any]) -> str:
    return f"{entry['name']}/{view['view']:02d}"


def _near_duplicates(folder: Path) -> list[tuple[str, str]]:
    lines = _files(folder, "near_duplicates.tsv")[0].read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines[1:] if line]
    if any(len(row) < 4 for row in rows):
        raise DataError(
            f"{folder}/near_duplicates.tsv needs tab-separated rows with two names in columns 3, 4."
        )
    return [(row[2], row[3]) for row in rows]


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name without suffix, and content, of each image in a tar file."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.endswith(".webp"):
                    handle = tar.extractfile(member)
                    yield member.name.removesuffix(".webp"), (handle or io.BytesIO()).read()
    except (OSError, tarfile.TarError) as error:
        raise DataError(f"Cannot read {archive}: {error}.") from error


def _decode_photo(data: bytes) -> Rgb:
    image = _decoded(data, decode_image)
    if image.shape[:2] != (PHOTO_PX, PHOTO_PX):
        image = cv2.resize(image, (PHOTO_PX, PHOTO_PX), interpolation=cv2.INTER_LINEAR)
    return image


def _decode_sprite(data: bytes) -> NDArray[np.uint8]:
    image = _decoded(data, decode_rgba)
    if max(image.shape[:2]) > SPRITE_PX:
        raise DataError(f"A sprite must be at most {SPRITE_PX} px, got shape {image.shape}.")
    height, width = image.shape[:2]
    top, left = (SPRITE_PX - height) // 2, (SPRITE_PX - width) // 2
    canvas = np.zeros((SPRITE_PX, SPRITE_PX, 4), np.uint8)
    canvas[top : top + height, left : left + width] = image
    return canvas


def _decoded(data: bytes, decode: Callable[[bytes], Rgb]) -> Rgb:
    try:
        return decode(data)
    except QueryError as error:
        raise DataError("An image of the pack cannot be decoded, or is a sprite and not RGBA.") from error


def _interpolation(shape: tuple[int, ...], size: int) -> int:
    return cv2.INTER_AREA if min(shape) > size else cv2.INTER_LINEAR


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f"{folder} holds no {pattern}. Give the folder that has photos/ and sprites/.")
    return found
