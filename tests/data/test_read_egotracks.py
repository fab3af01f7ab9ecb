import json
import re

import pytest

from egohieraloc.data.egotracks import passes, read_clip_lengths, read_egotracks, scored_frames
from egohieraloc.errors import DataError


def box(frame, x=0.0):
    return {"exported_clip_frame_number": frame, "x": x, "y": 0.0, "width": 10.0, "height": 20.0}


def query(**changes):
    return {
        "is_valid": True,
        "object_title": "red pan",
        "visual_crop": box(14, x=3.0),
        "visual_clip": [box(14, x=2.0), box(20, x=2.0)],
        "lt_track": [box(20, x=1.0), box(8, x=1.0), box(14, x=1.0)],
        **changes,
    }


def write(path, sets, **clip):
    clip = {"clip_uid": "c1", "exported_clip_uid": "e1", "annotations": [{"query_sets": sets}], **clip}
    path.write_text(json.dumps({"videos": [{"video_uid": "vid", "split": "val", "clips": [clip]}]}))
    return path


def only(path):
    (found,) = read_egotracks(path)
    return found


def test_the_truth_unites_track_clip_and_crop_and_the_later_counts(tmp_path):
    (asked,) = only(write(tmp_path / "e.json", {"1": query()})).queries
    assert asked.truth.frames.tolist() == [8, 14, 20]
    assert asked.truth.boxes_xyxy[:, 0].tolist() == [1, 3, 2]
    assert asked.sequence_name == "e1_1_red pan"
    assert asked.crop_frame == 14
    assert asked.size is None
    sized = {**box(14), "original_width": 1440, "original_height": 1080}
    (asked,) = only(write(tmp_path / "e.json", {"1": query(visual_crop=sized)})).queries
    assert asked.size == (1440, 1080)


def test_files_without_answers_and_clips_without_exported_id(tmp_path):
    hidden = {"visual_crop": box(14)}
    found = only(write(tmp_path / "t.json", {"1": hidden}, exported_clip_uid=None))
    assert (found.name, found.clip_uid) == ("c1", "c1")
    assert found.queries[0].truth is None
    found = only(write(tmp_path / "n.json", {"1": hidden}, exported_clip_uid=None, clip_uid=None))
    assert (found.name, found.clip_uid) == ("vid#0", None)


def test_queries_that_cannot_be_asked_say_why(tmp_path):
    nowhere = {k: v for k, v in box(3).items() if k != "exported_clip_frame_number"}
    sets = {"1": query(is_valid=False), "2": query(visual_crop=nowhere), "3": query()}
    found = only(write(tmp_path / "e.json", sets))
    assert [q.key.query_set for q in found.queries] == ["3"]
    assert [(s.query_set, s.reason) for s in found.skipped] == [
        ("1", "marked as not valid in the annotation file"),
        ("2", "its crop has no frame in an exported clip"),
    ]


def test_errors_name_clip_and_query(tmp_path):
    broken, null_x, whole = only(
        write(
            tmp_path / "e.json",
            {"1": {"is_valid": True}, "2": query(visual_crop={**box(3), "x": None}), "3": query()},
        )
    ).queries
    assert re.search(r"e\.json: video vid, clip e1, annotation #0, query 1: .*'visual_crop'", broken.problem)
    assert "query 2" in null_x.problem
    assert null_x.truth is not None  # it is lost, but what was to be found is known
    assert whole.problem == ""
    path = tmp_path / "e.json"
    assert list(read_egotracks(write(path, {}), split="train")) == []
    path.write_text('{"videos": [{"video_uid": "v"}]}')
    with pytest.raises(DataError, match="'clips'"):
        only(path)


def test_scored_frames_meet_the_crop():
    assert scored_frames(14, 30).tolist() == [2, 8, 14, 20, 26]
    assert scored_frames(0, 7).tolist() == [0, 6]
    assert scored_frames(14, 15).tolist() == [2, 8, 14]


def test_protocols(tmp_path):
    (asked,) = only(write(tmp_path / "e.json", {"1": query()})).queries
    (way,) = passes(asked, 30, "vct-vs")
    assert way.frames.tolist() == [2, 8, 14, 20, 26]
    assert way.start is None
    assert (way.template_frame, way.template.x1) == (14, 3.0)
    forwards, backwards = passes(asked, 30, "vct-vc")
    assert forwards.frames.tolist() == [14, 20, 26]
    assert backwards.frames.tolist() == [14, 8, 2]
    assert forwards.start == backwards.start == asked.crop


def test_clip_lengths(tmp_path):
    path = tmp_path / "clip_info.json"
    path.write_text(json.dumps({"e1": {"frames": ["0.jpg", "1.jpg"]}}))
    assert read_clip_lengths(path) == {"e1": 2}
    path.write_text(json.dumps({"e1": {}}))
    with pytest.raises(DataError, match="clip e1: the field 'frames'"):
        read_clip_lengths(path)
