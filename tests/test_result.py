"""One answer, one schema: what is saved, read back, converted and refused."""

from __future__ import annotations

import filecmp
import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

import made_up
from egohieraloc.boxes import mask_to_box
from egohieraloc.errors import DataError, MissingExtraError, OutputError
from egohieraloc.geometry.reconstruction import SparsePoints
from egohieraloc.result import Result
from egohieraloc.result_json import mask_from, mask_part
from egohieraloc.result_schema import schema
from egohieraloc.types import Box, Localization3D, NotFound, NotLocalized, ResponseTrack
from made_up import result as made_result

SCHEMA = Path(__file__).parent.parent / "docs" / "result.schema.json"
KINDS = {
    "found": {"place": None, "cameras": None},
    "found in space": {},
    "no place": {"place": NotLocalized("no frame has a pose", 0, 12)},
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
    saved = made_result(
        video=replace(made_up.video(), until_s=2.1),
        cameras=made_up.cameras(points=SparsePoints(np.random.default_rng(1).normal(size=(9001, 3)))),
    )
    read = Result.load(saved.save(tmp_path / "answer"))
    assert isinstance(read.track, ResponseTrack)
    assert isinstance(saved.track, ResponseTrack)
    np.testing.assert_array_equal(read.query.image, saved.query.image)
    assert (read.query.box, read.query.seen_at_s) == (saved.query.box, saved.query.seen_at_s)
    assert (read.video.source, read.video.info) == (saved.video.source, saved.video.info)
    assert (read.track.score, read.video.until_s, read.versions) == (saved.track.score, 2.1, saved.versions)
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
    assert read.cameras.num_posed == 12
    assert 3000 < len(read.cameras.points.xyz_world) <= 4000
    np.testing.assert_array_equal(read.place.covariance, saved.place.covariance)
    assert read.place.views[0].weight == 0.5
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
    value = made_result().to_dict()
    wanted = {"found", "score", "reason", "video", "sample_fps", "track", "curve", "intervals"}
    assert wanted | {"alternatives", "place"} <= set(value)
    assert {"frame", "sample", "time_s", "box", "score"} <= set(value["track"][0])
    assert value["track"][0]["box"] == [48.0, 30.0, 88.0, 70.0]
    assert value["video"]["path"] == f"/videos/{made_up.HOSTILE}"
    assert value["place"]["displacement"] == [-0.6, 0.7, 2.0]
    assert made_result(place=None).to_dict()["place"] is None


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
    elif change == "a short curve":
        value["curve"]["raw"].pop()
    elif change == "an interval beyond":
        value["intervals"].append([50, 60])
    elif change == "a frame beyond":
        value["track"][0]["frame"] = 9999
    elif change == "neither track nor reason":
        value["found"] = False
    elif change == "no rate":
        value["video"]["fps"] = 0
    elif change == "an image elsewhere":
        value["query"]["image"] = "../secret.png"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (damaged("before numbers"), "before its first release. Ask again with `egohieraloc locate`"),
        (damaged("newer"), "has version 2, wanted 1. Update egohieraloc"),
        (damaged("a box of three"), r"is damaged: track\.1\.box"),
        (damaged("a mask of another size"), "is damaged: the counts of a mask"),
        (damaged("no PNG"), "is damaged: a map is not an 8-bit grey PNG"),
        (damaged("a gap"), "is damaged: A track needs one prediction"),
        (damaged("a short curve"), "one value of each kind per sample"),
        (damaged("an interval beyond"), "an interval leaves the curve"),
        (damaged("a frame beyond"), "a track leaves the video"),
        (damaged("neither track nor reason"), "an answer has a track, or else a reason"),
        (damaged("no rate"), r"is damaged: video\.fps"),
        (damaged("an image elsewhere"), r"is damaged: query\.image"),
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


@pytest.mark.parametrize("fps", [5.0, 29.97, 1 / 3, 0.333333, 0.0166667, 12.3456789])
def test_every_rate_survives(tmp_path: Path, fps: float) -> None:
    rate = Fraction(fps).limit_denominator(1_000_000)  # as a folder of images keeps it
    video = made_up.video()
    saved = made_result(video=replace(video, info=replace(video.info, fps=rate)))
    assert Result.load(saved.save(tmp_path)).to_dict() == saved.to_dict()
    assert Result.load(tmp_path).video.info.fps == rate


def test_no_answer_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no answer at"):
        Result.load(tmp_path)


def test_a_new_answer_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    made_result().save(tmp_path)
    made_result(track=NotFound("gone"), cameras=None).save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["query.png", "result.json"]
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(OutputError, match=r"has other files in it, such as query\.png"):
        made_result().save(tmp_path)


def test_as_arrays_and_rows() -> None:
    result = made_result()
    np.testing.assert_array_equal(result.boxes_xyxy, [[48, 30, 88, 70], [49, 30, 89, 70], [50, 30, 90, 70]])
    assert [m.shape for m in result.masks()] == [(120, 160)] * 3
    assert result.to_rows()[0] == {
        "frame": 24, "sample": 8, "time_s": 1.6, "score": 0.8, "x1": 48, "y1": 30, "x2": 88, "y2": 70,
    }  # fmt: skip
    empty = made_result(track=NotFound("gone"))
    assert (empty.boxes_xyxy.shape, empty.masks(), empty.to_rows()) == ((0, 4), [], [])


def test_a_full_mask_lies_where_its_cells_lie() -> None:
    """Cells 2 to 5 of 8 in either direction are set, in a box of 40 pixels from (48, 30)."""
    mask = made_result().masks()[0]
    assert mask_to_box(mask) == Box(58, 40, 78, 60)
    assert 380 <= mask.sum() <= 400  # its corners are rounded


def test_detections_for_supervision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(MissingExtraError, match="supervision"):
        made_result().to_supervision()
    package = SimpleNamespace(Detections=lambda **values: SimpleNamespace(**values))
    monkeypatch.setitem(sys.modules, "supervision", package)
    first, *_ = found = made_result().to_supervision()
    assert len(found) == 3
    assert first.xyxy.tolist() == [[48, 30, 88, 70]]
    assert (first.mask.shape, first.mask.dtype) == ((1, 120, 160), bool)
    assert first.data["frame"].tolist() == [24]


def test_supervision_itself_draws_them() -> None:
    supervision = pytest.importorskip("supervision")
    found = supervision.Detections.merge(made_result().to_supervision())
    assert found.data["time_s"].tolist() == [1.6, 1.8, 2.0]
    blank = np.zeros((120, 160, 3), np.uint8)
    for annotator in (supervision.BoxAnnotator(), supervision.MaskAnnotator()):
        drawn = annotator.annotate(blank.copy(), found).any(2)
        assert drawn[28:72, 46:92].any()
        assert not drawn[:20].any()


def test_a_table_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pandas"):
        made_result().to_dataframe()


def test_pandas_itself_joins_tables() -> None:
    pandas = pytest.importorskip("pandas")
    found, missed = made_result().to_dataframe(), made_result(track=NotFound("gone")).to_dataframe()
    assert (len(found), len(missed)) == (3, 0)
    assert pandas.concat([missed, found]).dtypes.to_dict() == found.dtypes.to_dict()
    assert found.set_index("time_s").x2.to_dict() == {1.6: 88, 1.8: 89, 2.0: 90}


def test_in_words() -> None:
    assert made_result(place=None).summary == (
        "Last seen from 0:01.6 to 0:02.0 (frames 24 to 30), at the end in the box 50,30,40,40 (x,y,w,h). "
        "Confidence 0.87."
    )
    assert made_result(track=NotFound("Too dark."), place=None).summary == "Not found. Too dark."
    assert "From the camera at the query time it is 2.2 m (± 0.6 m), in front of you" in made_result().summary


def test_another_viewpoint_is_named() -> None:
    elsewhere = replace(made_up.place(), query_frame=27)
    assert "From the camera at 0:01.8, the nearest moment that has a camera pose, it is" in (
        made_result(place=elsewhere).summary
    )


def test_doubts_are_told_saved_and_read(tmp_path: Path) -> None:
    doubtful = made_result(place=replace(made_up.place(), doubts=("the camera path leaps at 0:01.0",)))
    assert doubtful.summary.endswith("\nUncertain: the camera path leaps at 0:01.0.")
    doubtful.save(tmp_path / "answer")
    read = Result.load(tmp_path / "answer")
    assert isinstance(read.place, Localization3D)
    assert read.place.doubts == ("the camera path leaps at 0:01.0",)


def test_another_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(OutputError, match=r"other files in it, such as holiday\.jpg, .* Choose a new"):
        made_result().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_the_query_time_is_in_the_video() -> None:
    assert made_result().query_time_s == 2.2
    assert made_result(video=replace(made_up.video(), until_s=0.9)).query_time_s == 0.9
    assert made_result(video=replace(made_up.video(), until_s=99.0)).query_time_s == 2.2


def test_short_in_a_shell_and_shown_in_a_notebook() -> None:
    result = made_result(place=None)
    assert repr(result) == "Result(ResponseTrack(1.6 s to 2.0 s, 3 samples, confidence 0.87))"
    assert len(repr(made_result())) < 300
    page = made_result(track=NotFound("<b>Too dark</b>"))._repr_html_()
    assert "data:image/jpeg;base64," in page
    assert "<b>" not in page
    assert "Last seen from 0:01.6" in result._repr_html_()  # also where the video is gone


def test_tracks_are_sequences() -> None:
    track = made_result().track
    assert isinstance(track, ResponseTrack)
    assert [p.sample for p in track] == [8, 9, 10]
    assert (len(track), track.start_s, track.end_s) == (3, 1.6, 2.0)
    assert track[-1] is track.predictions[-1]
    x1, y1, x2, y2 = track.predictions[0].box
    assert (x1, y1, x2, y2) == track.predictions[0].box.xyxy
