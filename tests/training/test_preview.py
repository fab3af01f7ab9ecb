"""Contact sheets of training clips."""

from __future__ import annotations

from pathlib import Path

import cv2

from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.shaped_composer import ShapedComposer
from egohieraloc.training.preview import contact_sheet, write_contact_sheet
from tiny_packs import small_config, tiny_packs


def test_contact_sheet(tmp_path: Path) -> None:
    batch = ClipComposer(tiny_packs(), small_config(), "cpu", 3).batch(0, 4)
    sheet = contact_sheet(batch)
    assert sheet.shape == (4 * 448, 224 + 2 * 448, 3)
    assert sheet.dtype.name == "uint8"
    present = bool(batch.presence[0, 0] > 0.5)
    assert tuple(sheet[1, 300]) == ((0, 255, 0) if present else (255, 40, 40))
    write_contact_sheet(tmp_path, batch.take(slice(3)))
    assert cv2.imread(str(tmp_path / "contact_sheet.png")).shape == (3 * 448, 224 + 2 * 448, 3)
    small = cv2.imread(str(tmp_path / "contact_sheet.jpg"))
    assert small.shape == (2 * 224, 224 + 2 * 448, 3)  # two columns at half size; the last cell is empty
    assert small[230:, 570:].max() < 20
    assert small[230:, :550].max() > 100


def test_frames_without_borders_keep_their_shape() -> None:
    config = small_config(borders=False, aspects=((16 / 9, 1.0),))
    batch = ShapedComposer(tiny_packs(), config, "cpu", 3).batch(0, 2)
    assert batch.frames.shape[-2:] == (96, 128)
    sheet = contact_sheet(batch)
    assert sheet.shape == (2 * 448, 224 + 2 * 448, 3)
    frame = sheet[:448, 224 : 224 + 448]
    assert frame[336:].max() == 0  # 96 / 128 of the square are the frame
    assert frame[:336].max() > 0
