"""Depth maps of devices find their frames, and keep their metres."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.device_depth import DepthFolder, depth_of_device
from egohieraloc.geometry.given import FrameTable
from egohieraloc.types import DepthUnit

METRES = np.linspace(0.5, 4.0, 12 * 16, dtype=np.float32).reshape(12, 16)


def write_exr(path: Path, values: np.ndarray, form: str) -> None:
    with av.open(str(path), "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("exr", rate=1)
        stream.height, stream.width, stream.pix_fmt = *values.shape[:2], form
        for packet in [*stream.encode(av.VideoFrame.from_ndarray(values, format=form)), *stream.encode()]:
            container.mux(packet)


def write(path: Path, metres: np.ndarray = METRES) -> None:
    if path.suffix == ".npy":
        np.save(path, metres)
    elif path.suffix == ".exr":
        write_exr(path, metres, "grayf32le")
    else:
        cv2.imwrite(str(path), (1000 * metres).round().astype(np.uint16))


@pytest.mark.parametrize("ending", [".png", ".npy", ".exr", ".tiff"])
def test_each_form_holds_metres(tmp_path, ending):
    write(tmp_path / f"000003{ending}")
    found = DepthFolder.open(tmp_path, FrameTable(np.arange(5) / 5))([1, 3])
    assert list(found) == [3]
    assert found[3].unit is DepthUnit.METRIC
    np.testing.assert_allclose(found[3].values, METRES, atol=6e-4)


def test_of_a_coloured_exr_the_first_channel_is_taken(tmp_path):
    write_exr(tmp_path / "0.exr", np.dstack([METRES, 9 * METRES, 0 * METRES]), "gbrpf32le")
    found = DepthFolder.open(tmp_path, FrameTable(np.zeros(1)))([0])
    np.testing.assert_array_equal(found[0].values, METRES)


def test_names_come_before_numbers(tmp_path):
    for number in (1, 2):
        write(tmp_path / f"{number}.npy", np.full((2, 2), number, np.float32))
    named = FrameTable(np.arange(2) / 5, ("000001.jpg", "000002.jpg"))
    assert {i: m.values[0, 0] for i, m in DepthFolder.open(tmp_path, named)([0, 1]).items()} == {0: 1, 1: 2}
    video = FrameTable(np.arange(3) / 5)
    assert {i: m.values[0, 0] for i, m in DepthFolder.open(tmp_path, video)([0, 1, 2]).items()} == {
        1: 1,
        2: 2,
    }


def test_times_need_not_be_equal_but_near(tmp_path):
    """TUM's RGB-D data: both sensors have clocks and rates of their own."""
    for time in (100.012, 100.19, 100.45):
        write(tmp_path / f"{time:.3f}.npy", np.full((2, 2), time, np.float32))
    names = tuple(f"{100 + i / 5:.3f}.png" for i in range(3))
    found = DepthFolder.open(tmp_path, FrameTable(np.arange(3) / 5, names))([0, 1, 2])
    assert {i: round(float(m.values[0, 0]), 3) for i, m in found.items()} == {0: 100.012, 1: 100.19}


def test_what_belongs_to_no_frame_is_an_error(tmp_path):
    write(tmp_path / "about_lunch.png")
    with pytest.raises(GeometryError, match=r"about_lunch\.png"):
        DepthFolder.open(tmp_path, FrameTable(np.arange(3) / 5))
    with pytest.raises(GeometryError, match="Cannot read depth maps"):
        DepthFolder.open(tmp_path / "absent", FrameTable(np.arange(3) / 5))
    with pytest.raises(GeometryError, match="give the recording"):
        depth_of_device(tmp_path / "depth.vrs", FrameTable(np.arange(3) / 5), None)
    (tmp_path / "1.exr").write_bytes(b"not an image")
    with pytest.raises(GeometryError, match="not an EXR image"):
        DepthFolder.open(tmp_path, FrameTable(np.arange(3) / 5))([1])
