"""A folder of packs as training reads it: plain photos with masks, plain sprites."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np

PHOTOS = [f"coco_{k:012d}" for k in range(40)] + [f"groc_{k:05d}" for k in range(20)]
OBJECTS = [f"jar_{k}" for k in (0, 1, 2, 3, 32, 33, 4, 5)]
RESERVED = OBJECTS[4:6]  # the first by its name, the other as its near duplicate
HELD_OUT = OBJECTS[6:]


def webp(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".webp", pixels, [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _photo(number: int, *, coloured: bool) -> np.ndarray:
    """Grey; where `coloured`, what the mask covers is red, so that it can be trained on."""
    photo = np.full((256, 192 if number % 2 else 256, 3), 3 * number, np.uint8)
    if coloured:
        photo[40:60, 30:35] = (30, 30, 230)
    return photo


def write_packs(folder: Path, *, coloured: bool = False) -> Path:
    """Photo k is a uniform grey of 3 k, every second one 192 px wide; sprite k has the red value k + 1."""
    (folder / "photos").mkdir()
    (folder / "sprites").mkdir()
    write_tar(
        folder / "photos/images_0.tar",
        {f"{name}.webp": webp(_photo(k, coloured=coloured)) for k, name in enumerate(PHOTOS)},
    )
    mask = np.zeros((20, 10), bool)
    mask[:, :5] = True
    bits = np.packbits(mask)
    np.savez(
        folder / "photos/masks_0.npz",
        ids=np.array(PHOTOS),
        sizes=np.array([(256, 192 if k % 2 else 256) for k in range(len(PHOTOS))], np.uint16),
        bits=np.tile(bits, len(PHOTOS)),
        offset=np.arange(len(PHOTOS) + 1, dtype=np.uint32) * len(bits),
        bbox=np.tile(np.array([[30, 40, 40, 60]], np.uint16), (len(PHOTOS), 1)),
        image_index=np.arange(len(PHOTOS), dtype=np.uint32),
    )
    index = []
    for shard, names in (("train.tar", OBJECTS[:6]), ("heldout.tar", HELD_OUT)):
        members = {}
        for name in names:
            pixels = np.zeros((192, 100, 4), np.uint8)
            pixels[4:-4, 4:-4] = (0, 0, OBJECTS.index(name) + 1, 255)  # BGRA
            members |= {f"{name}/{view:02d}.webp": webp(pixels) for view in range(3)}
            views = [{"view": v, "az": 90.0 * v, "el": 0.0} for v in range(3)]
            index.append({"name": name, "shard": shard, "views": views})
        write_tar(folder / "sprites" / shard, members)
    (folder / "sprites/index.json").write_text(json.dumps({"objects": index}))
    (folder / "sprites/heldout_objects.txt").write_text("\n".join(HELD_OUT) + "\n")
    rows = [("jar_0", "jar_2", "0"), ("jar_1", "jar_4", "1"), ("jar_33", "jar_32", "0")]
    lines = ["similarity\textent\tobject_a\tobject_b\tcrosses_split"]
    lines += ["\t".join(("0.9", "0.1", *row)) for row in rows]
    (folder / "sprites/near_duplicates.tsv").write_text("\n".join(lines) + "\n")
    return folder
