"""Images from anywhere: read alike whatever decoder stands behind, refused before they are large."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from egohieraloc.errors import EgoHieraLocError, GeometryError, QueryError
from egohieraloc.geometry.depth import read_depth, read_depth_folder
from egohieraloc.images import decode_grey, read_image, read_mask
from egohieraloc.video.reader import Video
from hostile import lying_png, png_bomb

PATTERN = np.random.default_rng(0).integers(0, 256, (13, 21, 3), np.uint8)
READERS: dict[str, Callable[[Path], Any]] = {
    "image": read_image,
    "mask": read_mask,
    "depth": lambda path: read_depth_folder(path.parent, [12]),
    "frames": lambda path: Video.open(path.parent).frame(0),
    "map": lambda path: decode_grey(path.read_bytes()),
}


@pytest.mark.parametrize("ending", [".png", ".jpg", ".webp", ".bmp", ".tiff", ".ppm"])
def test_pixels_are_those_that_opencv_reads(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    assert cv2.imwrite(str(path), PATTERN)
    np.testing.assert_array_equal(read_image(path), cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB))
    grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    clear = np.abs(grey.astype(int) - 127.5) > 2  # decoders round grey differently
    assert (read_mask(path) == (grey >= 128))[clear].all()


def test_16_bits_transparency_and_turned_cameras(tmp_path: Path) -> None:
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    cv2.imwrite(str(tmp_path / "deep.png"), deep)
    np.testing.assert_array_equal(read_image(tmp_path / "deep.png"), np.stack([deep >> 8] * 3, -1))
    np.testing.assert_array_equal(read_mask(tmp_path / "deep.png"), deep >= 128 << 8)
    clear = np.dstack([PATTERN, np.zeros((13, 21), np.uint8)])
    cv2.imwrite(str(tmp_path / "clear.png"), clear)
    np.testing.assert_array_equal(read_image(tmp_path / "clear.png"), PATTERN[..., ::-1])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    Image.fromarray(PATTERN).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "turned.png"), np.rot90(PATTERN, -1))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("make", [png_bomb, lying_png])
def test_an_image_is_refused_before_it_takes_time_or_memory(
    tmp_path: Path, reader: str, make: Callable[..., bytes]
) -> None:
    path = tmp_path / "12.png"
    path.write_bytes(make(bits=16 if reader == "depth" else 8))
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with pytest.raises(EgoHieraLocError):
        READERS[reader](path)
    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


def test_words(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(QueryError, match="No such file"):
        read_image(path)
    path.write_bytes(b"no image")
    with pytest.raises(QueryError, match="not an image that can be read"):
        read_image(path)
    path.write_bytes(png_bomb(9000, 8000))
    with pytest.raises(QueryError, match="at most 8192x8192"):
        read_image(path)


def test_depth_of_other_files_is_not_read(tmp_path: Path) -> None:
    """Some formats of FFmpeg are lists of further files, which another's depth map must not make us open."""
    exr = Path(__file__).parent / "fuzz" / "corpus" / "exr" / "7.exr"
    (tmp_path / "other.exr").write_bytes(exr.read_bytes())
    assert read_depth(tmp_path / "other.exr").values.shape == (9, 12)
    (tmp_path / "7.exr").write_text("ffconcat version 1.0\nfile other.exr\n")
    with pytest.raises(GeometryError, match="is not a depth map"):
        read_depth(tmp_path / "7.exr")


def test_depth_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.full((3, 4), 1.5, np.float32))
    (tmp_path / "²").with_suffix(".npy").write_bytes(b"not the second frame")
    (tmp_path / ("1" * 5000)[:200]).touch()
    assert list(read_depth_folder(tmp_path, [1, 2])) == [1]
    whole = (tmp_path / "1.npy").read_bytes()
    huge = whole.replace(b"(3, 4), }", b"(300000, 400000), }".ljust(9))
    for bad in (
        huge,
        whole.replace(b"'shape'", b"'sha(e'"),
        whole.replace(b"(3, 4)", b"(3 4, "),
        whole[:-4],
        b"PK\x03\x04 no zip",
        b"",
    ):
        (tmp_path / "1.npy").write_bytes(bad)
        with pytest.raises(GeometryError, match="is not a depth map"):
            read_depth_folder(tmp_path, [1])
