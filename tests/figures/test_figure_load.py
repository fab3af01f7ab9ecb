"""What `save` wrote is read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from figure_world import make_video, result

from egohieraloc.errors import DataError
from egohieraloc.figures.load import read_result
from egohieraloc.query import Query
from egohieraloc.types import Box, Localization3D, NotFound, NotLocalized


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    mask = np.zeros((40, 50), bool)
    mask[8:28, 10:30] = True
    query = Query(
        np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8), Box(10, 8, 30, 28), mask, 0.4
    )
    saved = result(make_video(tmp_path), query=query)
    odd = replace(saved.video, info=replace(saved.video.info, fps=Fraction(30_000, 1001)))
    saved = replace(saved, video=odd)
    saved.save(tmp_path / "out")
    back = read_result(tmp_path / "out")
    assert back.to_dict() == saved.to_dict()
    assert np.array_equal(back.query.image, query.image)
    assert np.array_equal(back.query.mask, mask)
    for read, written in zip(back.track.predictions, saved.track.predictions, strict=True):
        assert np.array_equal(read.mask, written.mask)
    assert back.track.predictions[0].mask_box == saved.track.predictions[0].mask_box
    assert (back.video.info, back.video.frame_indices) == (saved.video.info, saved.video.frame_indices)
    assert (back.query.box, back.query.seen_at_s) == (saved.query.box, saved.query.seen_at_s)
    assert isinstance(back.place, Localization3D)
    assert back.place.views[2].weight == saved.place.views[2].weight
    assert np.array_equal(back.cameras.poses[4].cam_from_world, saved.cameras.poses[4].cam_from_world)


def test_misses_come_back_with_their_reasons(tmp_path: Path) -> None:
    lost = result(
        make_video(tmp_path),
        track=NotFound("too weak", 0.2),
        place=NotLocalized("no pose", 1, 12),
        cameras=None,
    )
    lost.save(tmp_path / "out")
    back = read_result(tmp_path / "out")
    assert (back.track, back.place, back.cameras) == (lost.track, lost.place, None)
    result(tmp_path / "room", in_3d=False).save(tmp_path / "flat")
    assert read_result(tmp_path / "flat").place is None


def test_folders_that_are_no_answer(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no result\.json. Make one with `egohieraloc locate"):
        read_result(tmp_path)
    result(make_video(tmp_path)).save(tmp_path / "out")
    path = tmp_path / "out" / "query.json"
    stored = json.loads(path.read_text())
    del stored["box"]
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match=r"out: result\.json or query\.json: the field 'box' is missing"):
        read_result(tmp_path / "out")
