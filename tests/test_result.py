"""One answer, one schema: what is saved, read back, converted and refused."""

from __future__ import annotations

import filecmp
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from egohieraloc.errors import DataError, MissingExtraError, OutputError
from egohieraloc.result import Result
from egohieraloc.result_json import mask_from, mask_part
from egohieraloc.result_schema import schema
from egohieraloc.types import Box, NotFound, NotLocalized, ResponseTrack
from made_results import HEIGHT, WIDTH, made_place, made_result

SCHEMA = Path(__file__).parent.parent / "docs" / "result.schema.json"
KINDS = {
    "found": {},
    "found in space": made_place(),
    "no place": {"place": NotLocalized("no frame has a pose", 0, 8)},
    "not found": {"track": NotFound("Nothing looks like it.", 0.2), "maps": (), "query_mask": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_read_and_saved_again_has_equal_bytes(tmp_path: Path, kind: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    made_result(**KINDS[kind]).save(first)
    Result.load(first).save(second)
    names = sorted(str(p.relative_to(first)) for p in first.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(second)) for p in second.rglob("*") if p.is_file())
    assert filecmp.cmpfiles(first, second, names, shallow=False)[0] == names


def test_nothing_is_lost(tmp_path: Path) -> None:
    saved = made_result(**made_place())
    read = Result.load(saved.save(tmp_path / "answer"))
    assert isinstance(read.track, ResponseTrack)
    assert isinstance(saved.track, ResponseTrack)
    np.testing.assert_array_equal(read.query.image, saved.query.image)
    assert (read.query.box, read.query.seen_at_s) == (saved.query.box, saved.query.seen_at_s)
    assert (read.video.source, read.video.info) == (saved.video.source, saved.video.info)
    assert (read.track.score, read.until_s, read.versions) == (saved.track.score, 1.5, saved.versions)
    for a, b in zip(read.track, saved.track, strict=True):
        assert (a.frame_index, a.sample, a.time_s, a.score, a.box, a.mask_box) == (
            (b.frame_index, b.sample, b.time_s, b.score, b.box, b.mask_box)
        )
        np.testing.assert_array_equal(a.mask, b.mask)
    np.testing.assert_array_equal(read.curve.raw, saved.curve.raw)
    assert read.curve.intervals == saved.curve.intervals
    for name in ("foreground", "likelihood", "response", "location", "mask"):
        np.testing.assert_array_equal(getattr(read.maps[0], name), getattr(saved.maps[0], name))
    assert (read.maps[0].ellipse, read.maps[0].drift) == (saved.maps[0].ellipse, saved.maps[0].drift)
    assert read.query_mask is not None
    np.testing.assert_array_equal(read.query_mask.mask, saved.query_mask.mask)
    assert read.cameras is not None
    assert read.cameras.num_posed == 7
    assert 3000 < len(read.cameras.points.xyz_world) <= 4000
    np.testing.assert_array_equal(read.place.covariance, saved.place.covariance)
    assert read.place.views[0].weight == 0.3
    assert read.summary == saved.summary


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=7)))
def test_masks_are_coded_as_coco_does(mask: np.ndarray) -> None:
    part = mask_part(mask, Box(0, 0, 1, 1))
    np.testing.assert_array_equal(mask_from(part), mask)
    # Down the columns, runs of zeros and ones by turns, zeros first, none of them empty but the first.
    values = "".join(str(n % 2) * count for n, count in enumerate(part.counts))
    assert values == "".join(str(int(v)) for v in mask.T.ravel())
    assert all(part.counts[1:])


def test_the_schema_on_paper_is_that_of_the_code() -> None:
    """Written by `python -m egohieraloc.result_schema > docs/result.schema.json`."""
    assert json.loads(SCHEMA.read_text()) == schema()


@pytest.mark.parametrize("kind", KINDS)
def test_answers_follow_the_schema(kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema_rs")
    validator = jsonschema.validator_for(json.loads(SCHEMA.read_text()))
    value = made_result(**KINDS[kind]).to_dict()
    validator.validate(json.loads(json.dumps(value, allow_nan=False)))
    assert not validator.is_valid(value | {"score": "high"})
    assert not validator.is_valid(value | {"surprise": 1})
    assert not validator.is_valid({k: v for k, v in value.items() if k != "track"})


def test_keys_that_scripts_stand_on() -> None:
    value = made_result(**made_place()).to_dict()
    wanted = {"found", "score", "reason", "video", "sample_fps", "track", "curve", "intervals"}
    assert wanted | {"alternatives", "place"} <= set(value)
    assert {"frame", "sample", "time_s", "box", "score"} <= set(value["track"][0])
    assert value["track"][0]["box"] == [14.5, 8.0, 34.25, 21.0]
    assert value["video"]["path"] == "kitchen.mp4"
    assert value["place"]["displacement"] == [0.3, -0.2, 1.7]
    assert made_result().to_dict()["place"] is None


def damaged(change: str) -> str:
    value = made_result().to_dict()
    if change == "before numbers":
        del value["format"], value["version"]
    elif change == "newer":
        value["version"] = 2
    elif change == "a box of three":
        value["track"][1]["box"] = [1, 2, 3]
    elif change == "a mask of another size":
        value["track"][0]["mask"]["counts"] = [5]
    elif change == "no PNG":
        value["maps"][0]["response"] = "AAAA"
    elif change == "a gap":
        del value["track"][1]
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (damaged("before numbers"), "before its first release. Ask again with `egohieraloc locate`"),
        (damaged("newer"), "has version 2, wanted 1"),
        (damaged("a box of three"), r"is damaged: track\.1\.box"),
        (damaged("a mask of another size"), "is damaged: the counts of a mask"),
        (damaged("no PNG"), "is damaged: a map is not an 8-bit grey PNG"),
        (damaged("a gap"), "is damaged: A track needs one prediction"),
        ("{", "Cannot read"),
        ("[]", "is not an answer"),
        ("[" * 100_000, "Cannot read"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    path = made_result().save(tmp_path)
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        Result.load(path)


def test_no_answer_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no answer at"):
        Result.load(tmp_path)


def test_a_new_answer_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    made_result(**made_place()).save(tmp_path)
    made_result(track=NotFound("gone")).save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["query.png", "result.json"]
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(OutputError, match="not an earlier answer's"):
        made_result().save(tmp_path)


def test_as_arrays_and_rows() -> None:
    result = made_result()
    np.testing.assert_array_equal(
        result.boxes_xyxy, [[14.5, 8, 34.25, 21], [15.5, 8, 35.25, 21], [16.5, 8, 36.25, 21]]
    )
    assert [m.shape for m in result.masks()] == [(HEIGHT, WIDTH)] * 3
    assert result.to_rows()[0] == {
        "frame": 24, "sample": 4, "time_s": 0.8, "score": pytest.approx(0.86),
        "x1": 14.5, "y1": 8, "x2": 34.25, "y2": 21,
    }  # fmt: skip
    empty = made_result(track=NotFound("gone"))
    assert (empty.boxes_xyxy.shape, empty.masks(), empty.to_rows()) == ((0, 4), [], [])


def test_a_full_mask_lies_where_its_cells_lie() -> None:
    """The disc of sample 4 is centred on row 6 of 13 and column 4 of 17, over 52 rows and 64 columns."""
    rows, columns = np.nonzero(made_result().masks()[0])
    assert columns.mean() + 0.5 == pytest.approx(4.5 * 64 / 17, abs=0.3)
    assert rows.mean() + 0.5 == pytest.approx(6.5 * 52 / 13 - 2, abs=0.3)


def test_detections_for_supervision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(MissingExtraError, match="supervision"):
        made_result().to_supervision()
    package = SimpleNamespace(Detections=lambda **values: SimpleNamespace(**values))
    monkeypatch.setitem(sys.modules, "supervision", package)
    first, *_ = found = made_result().to_supervision()
    assert len(found) == 3
    assert first.xyxy.tolist() == [[14.5, 8, 34.25, 21]]
    assert (first.mask.shape, first.mask.dtype) == ((1, HEIGHT, WIDTH), bool)
    assert first.data["frame"].tolist() == [24]


def test_in_words() -> None:
    assert made_result().summary == (
        "Last seen from 0.8 s to 1.2 s (frames 24 to 36), at the end in the box 16,8,20,13 (x,y,w,h). "
        "Confidence 0.90."
    )
    assert made_result(track=NotFound("Too dark.")).summary == "Not found. Too dark."
    assert "From where the camera is at the query time it is 1.7 m, in front of you" in (
        made_result(**made_place()).summary
    )


def test_another_viewpoint_is_named() -> None:
    known = made_place()
    known["place"] = replace(known["place"], query_frame=36)
    assert (
        "From frame 36 (frame 42, the query time, has no camera pose) it is" in made_result(**known).summary
    )


def test_the_query_time_is_in_the_video() -> None:
    assert made_result(until_s=None).query_time_s == 1.4
    assert made_result(until_s=0.9).query_time_s == 0.9
    assert made_result(until_s=99.0).query_time_s == 1.4


def test_short_in_a_shell_and_shown_in_a_notebook() -> None:
    result = made_result()
    assert repr(result) == "Result(ResponseTrack(0.8 s to 1.2 s, 3 samples, confidence 0.90))"
    page = made_result(track=NotFound("<b>Too dark</b>"))._repr_html_()
    assert "data:image/jpeg;base64," in page
    assert "<b>" not in page
    assert "Last seen from 0.8 s" in result._repr_html_()  # also where the video is gone


def test_tracks_are_sequences() -> None:
    track = made_result().track
    assert isinstance(track, ResponseTrack)
    assert [p.sample for p in track] == [4, 5, 6]
    assert (len(track), track.start_s, track.end_s) == (3, 0.8, 1.2)
    x1, y1, x2, y2 = track.predictions[0].box
    assert (x1, y1, x2, y2) == track.predictions[0].box.xyxy
