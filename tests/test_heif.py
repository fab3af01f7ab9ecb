"""HEIC photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from egohieraloc.errors import QueryError
from egohieraloc.heif import is_heif, read_heif
from egohieraloc.images import read_image


def test_a_photograph_of_a_phone_is_read(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pixels = np.full((48, 64, 3), (30, 60, 90), np.uint8)
    pixels[:, 32:] = (200, 60, 30)
    path = tmp_path / "photo.heic"
    pillow_heif.from_bytes("RGB", (64, 48), pixels.tobytes()).save(path, quality=95)
    assert is_heif(path)
    np.testing.assert_allclose(read_image(path)[24, [8, 56]], [(30, 60, 90), (200, 60, 30)], atol=8)
    with pytest.raises(QueryError, match="too many pixels"):
        read_heif(path, max_pixels=48 * 64 - 1)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(QueryError, match="is not an image that can be read"):
        read_image(path)


def test_other_files_are_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"\0\0\0\x20ftypisom")
    assert not is_heif(tmp_path / "clip.mp4")
    assert not is_heif(tmp_path / "missing.heic")
