"""Images on disk, read as RGB and written atomically."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import OutputError, QueryError
from egohieraloc.files import atomic_path
from egohieraloc.heif import is_heif, read_heif
from egohieraloc.types import Box, Bytes, Mask, Rgb


def read_image(path: str | Path) -> Rgb:
    """Read an image as (H, W, 3) RGB. Transparent pixels have the colour that is stored under them."""
    if is_heif(path):
        return read_heif(path)
    pixels = _decode(path, cv2.IMREAD_COLOR)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)


def read_mask(path: str | Path) -> Mask:
    """Read an image as a mask: bright pixels (128 and above) are the object."""
    return _decode(path, cv2.IMREAD_GRAYSCALE) >= 128


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


def _decode(path: str | Path, flags: int) -> Bytes:
    path = Path(path)
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise QueryError(f"Cannot read the image {path}: {error.strerror or error}.") from error
    pixels = None
    with suppress(cv2.error):  # of images too large for it
        pixels = cv2.imdecode(data, flags) if data.size else None
    if pixels is None:
        raise QueryError(f"{path} is not an image that can be read. Give a PNG, JPEG or WebP file.")
    return np.asarray(pixels, np.uint8)
