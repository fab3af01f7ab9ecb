"""Images on disk, read as RGB and written atomically.

An image may come from anywhere, so Pillow decodes it: it checks each length that a file claims. The size is
read from the header, and nothing larger than MAX_PIXELS is decoded.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import OutputError, QueryError
from egohieraloc.files import atomic_path
from egohieraloc.heif import is_heif, read_heif
from egohieraloc.types import Box, Bytes, Mask, Rgb

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 8192 * 8192
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
Pixels = TypeVar("Pixels")


def read_image(path: str | Path) -> Rgb:
    """Read an image as (H, W, 3) RGB. Transparent pixels have the colour that is stored under them."""
    if is_heif(path):
        return read_heif(path, max_pixels=MAX_PIXELS)
    return _decoded(Path(path), _rgb)


def read_mask(path: str | Path) -> Mask:
    """Read an image as a mask: bright pixels (128 and above) are the object."""
    return np.asarray(_decoded(Path(path), _grey) >= 128)


def read_16_bit(path: str | Path) -> NDArray[np.uint16]:
    """Read a grey image of 16 bits (H, W)."""
    return _decoded(Path(path), _grey_16_bit)


def decode_image(data: bytes) -> Rgb:
    """`read_image` of the bytes of a file."""
    return _decoded(data, _rgb)


def decode_grey(data: bytes) -> Bytes:
    """(H, W) of the bytes of a grey image of 8 bits."""
    return _decoded(data, _grey_8_bit)


def decode_rgba(data: bytes) -> Bytes:
    """(H, W, 4) of the bytes of an image that has transparency."""
    return _decoded(data, _rgba)


def write_image(path: str | Path, image: Rgb | Mask) -> None:
    """Write RGB or a mask; the format follows the file's ending."""
    pixels = image.astype(np.uint8) * 255 if image.dtype == bool else image
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    try:
        encoded = cv2.imencode(Path(path).suffix, pixels)[1]
    except cv2.error as error:
        raise OutputError(f"Cannot encode {path}. Use an ending such as .png or .jpg.") from error
    with atomic_path(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def to_jpeg(rgb: Rgb, scale: float, quality: int) -> bytes:
    """A JPEG of an image made smaller, never larger; two pixels either way are enough to be a query."""
    height, width = rgb.shape[:2]
    size = max(2, round(width * min(1.0, scale))), max(2, round(height * min(1.0, scale)))
    small = cv2.cvtColor(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())


def mask_on_image(mask: Mask | None, box: Box | None, width: int, height: int) -> Mask:
    """A mask that covers `box`, on any grid (h, w), over an image (height, width); empty without a mask."""
    if mask is None or box is None:
        return np.zeros((height, width), bool)
    return _warped(mask.astype(np.float32), box, width, height) > 0.5


def soft_mask_on_image(mask: Bytes, box: Box, width: int, height: int) -> Bytes:
    """The same for probabilities * 255."""
    return np.round(_warped(mask.astype(np.float32), box, width, height)).astype(np.uint8)


def _warped(values: NDArray[np.float32], box: Box, width: int, height: int) -> NDArray[np.float32]:
    rows, columns = values.shape
    cell_x, cell_y = box.width / columns, box.height / rows
    # Half-pixel rule: the centre of cell u lies at x1 + (u + 0.5) cell_x, that of pixel x at x + 0.5.
    image_from_mask = np.array(
        [[cell_x, 0, box.x1 + 0.5 * cell_x - 0.5], [0, cell_y, box.y1 + 0.5 * cell_y - 0.5]]
    )
    return np.asarray(cv2.warpAffine(values, image_from_mask, (width, height)), np.float32)


def _decoded(source: Path | bytes, convert: Callable[[Image], Pixels]) -> Pixels:
    from PIL import Image, ImageOps

    file, name = (io.BytesIO(source), "The image") if isinstance(source, bytes) else (source, str(source))
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            return convert(ImageOps.exif_transpose(image))
    except Image.DecompressionBombError:
        raise QueryError(f"{name} has too many pixels: at most 8192x8192 are read.") from None
    except OSError as error:
        if error.strerror:
            raise QueryError(f"Cannot read the image {name}: {error.strerror}.") from error
        raise QueryError(_no_image(name)) from error
    except Exception as error:  # every format of Pillow has its own kinds for a damaged file
        raise QueryError(_no_image(name)) from error


def _no_image(name: str) -> str:
    return f"{name} is not an image that can be read. Give a PNG, JPEG or WebP file."


def _rgb(image: Image) -> Rgb:
    if image.mode.startswith("I;16"):
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    return np.array(image.convert("RGB"))


def _grey(image: Image) -> Bytes:
    if image.mode.startswith("I;16"):
        return (np.asarray(image) >> 8).astype(np.uint8)
    return np.array(image.convert("L"))


def _grey_8_bit(image: Image) -> Bytes:
    if image.mode not in ("L", "1"):
        raise ValueError(f"grey of 8 bits wanted, got {image.mode}")
    return np.array(image.convert("L"))


def _grey_16_bit(image: Image) -> NDArray[np.uint16]:
    if not image.mode.startswith("I;16"):
        raise ValueError(f"grey of 16 bits wanted, got {image.mode}")
    return np.array(image, np.uint16)


def _rgba(image: Image) -> Bytes:
    if image.mode != "RGBA":
        raise ValueError(f"RGBA wanted, got {image.mode}")
    return np.array(image)
