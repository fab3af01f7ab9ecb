"""Small files of the right schema, with everything the real ones do."""

import gzip
import json
import re

import pytest

from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import DataError


def box(frame, x=10.0, y=20.0, width=30.0, height=40.0):
    return {
        "frame_number": frame,
        "x": x,
        "y": y,
        "width": width,
        "height": height,
        "rotation": 0,
        "original_width": 1440,
        "original_height": 1080,
        "video_frame_number": frame * 6,
    }


def query(**changes):
    return {
        "is_valid": True,
        "errors": [],
        "warnings": [],
        "query_frame": 50,
        "query_video_frame": None,
        "response_track": [box(12), box(10), box(11)],
        "object_title": "cup",
        "visual_crop": box(70, y=-0.15),
        **changes,
    }


def clip(uid, annotations):
    return {
        "clip_uid": uid,
        "video_start_sec": 0.0,
        "video_end_sec": 60.0,
        "clip_fps": 5.0,
        "annotations": annotations,
    }


def write(path, clips, split="val", **extra):
    video = {"video_uid": "vid", "split": split, "clips": clips}
    path.write_text(json.dumps({"version": "1.0.5", **extra, "videos": [video]}))
    return path


def only(path):
    (found,) = read_vq2d(path)
    return found


def test_a_query_is_read(tmp_path):
    found = only(
        write(tmp_path / "vq.json", [clip("c1", [{"query_sets": {"1": query()}, "annotation_uid": "a1"}])])
    )
    (asked,) = found.queries
    assert (found.name, found.clip_uid, found.video_uid, found.fps) == ("c1", "c1", "vid", 5.0)
    assert (asked.key.clip, asked.key.annotation, asked.key.query_set) == ("c1", "a1", "1")
    assert (asked.query_frame, asked.crop_frame, asked.object_title) == (50, 70, "cup")
    assert (asked.width, asked.height, asked.annotation_index) == (1440, 1080, 0)


def test_an_unsorted_track_is_sorted_and_boxes_outside_stay_as_annotated(tmp_path):
    (asked,) = only(write(tmp_path / "vq.json", [clip("c1", [{"query_sets": {"1": query()}}])])).queries
    assert asked.response.frames.tolist() == [10, 11, 12]
    assert asked.response.boxes_xyxy[0].tolist() == [10, 20, 40, 60]
    assert asked.crop.y1 == -0.15
    assert asked.unseen_s == pytest.approx((50 - 12) / 5)


def test_null_clips_and_annotations_without_id_have_names(tmp_path):
    annotations = [{}, {"query_sets": {"2": query()}}]
    first, second = read_vq2d(write(tmp_path / "vq.json", [clip(None, annotations), clip(None, annotations)]))
    assert (first.name, second.name) == ("vid#0", "vid#1")
    assert first.clip_uid is None
    (asked,) = second.queries
    assert asked.key.annotation == "#1"
    assert asked.annotation_index == 1


def test_invalid_queries_are_skipped_with_a_reason(tmp_path):
    sets = {"1": {"is_valid": False, "errors": ["x"]}, "2": query()}
    found = only(write(tmp_path / "vq.json", [clip("c1", [{"query_sets": sets}])]))
    assert [q.key.query_set for q in found.queries] == ["2"]
    assert found.skipped[0].query_set == "1"
    assert "not valid" in found.skipped[0].reason


def test_a_file_without_answers_is_read(tmp_path):
    hidden = {k: v for k, v in query().items() if k not in ("response_track", "object_title")}
    (asked,) = only(write(tmp_path / "test.json", [clip("c1", [{"query_sets": {"1": hidden}}])])).queries
    assert asked.response is None
    assert asked.unseen_s is None
    assert asked.object_title == ""


def test_the_frame_rate_is_the_files_or_five(tmp_path):
    clips = [clip("c1", []), clip("c2", []), clip("c3", [])]
    clips[1]["clip_fps"] = 10.0
    del clips[2]["clip_fps"]
    assert [c.fps for c in read_vq2d(write(tmp_path / "vq.json", clips))] == [5.0, 10.0, 5.0]


def test_a_split_can_be_chosen(tmp_path):
    path = write(tmp_path / "vq.json", [clip("c1", [])], split="val")
    assert len(list(read_vq2d(path, split="val"))) == 1
    assert list(read_vq2d(path, split="train")) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"response_track": [box(1), box(3)]}, "leaves out frames between 1 and 3"),
        ({"response_track": [box(1), box(1)]}, "frame 1 comes twice"),
        ({"response_track": [box(1, width=-2)]}, "negative width"),
        ({"visual_crop": {"frame_number": 1}}, "'x' is missing"),
        ({"query_frame": None}, "int"),
        ({"visual_crop": None}, "visual_crop|subscriptable"),
    ],
)
def test_a_broken_record_is_a_query_with_a_problem_that_names_it(tmp_path, changes, message):
    """It stops nothing: the others are read, and it is counted."""
    path = write(
        tmp_path / "vq.json", [clip("c1", [{"query_sets": {"3": query(**changes)}, "annotation_uid": "a1"}])]
    )
    (asked,) = only(path).queries
    assert re.search(message, asked.problem)
    for part in ("vq.json", "video vid", "clip c1", "annotation a1", "query 3"):
        assert part in asked.problem
    assert asked.response is not None  # empty where it is what is broken
    assert len(asked.response) == (0 if "response_track" in changes else len(query()["response_track"]))


def test_two_queries_of_one_name_are_refused(tmp_path):
    twice = {"query_sets": {"1": query()}, "annotation_uid": "a1"}
    path = write(tmp_path / "vq.json", [clip("c1", [twice, twice])])
    with pytest.raises(DataError, match=r"vq\.json asks twice for clip c1, annotation a1, query 1\. Give"):
        list(read_vq2d(path))
    path = write(tmp_path / "vq.json", [clip("c1", [twice]), clip("c1", [twice])])
    with pytest.raises(DataError, match="asks twice"):
        list(read_vq2d(path))


def test_a_clip_without_annotations_is_an_error(tmp_path):
    broken = clip("c1", [])
    del broken["annotations"]
    with pytest.raises(DataError, match="clip c1: the field 'annotations' is missing"):
        list(read_vq2d(write(tmp_path / "vq.json", [broken])))
    with pytest.raises(DataError, match="'clip_uid' is missing"):
        list(read_vq2d(write(tmp_path / "vq.json", [{}])))
    (tmp_path / "v.json").write_text('{"videos": [{}]}')
    with pytest.raises(DataError, match="'video_uid' is missing"):
        list(read_vq2d(tmp_path / "v.json"))


def test_the_flattened_form_is_grouped_by_clip(tmp_path):
    items = [
        {
            "metadata": {"video_uid": "vid", "video_start_sec": 0, "video_end_sec": 9, "clip_fps": 5.0},
            "clip_uid": uid,
            "query_set": "1",
            "dataset_uid": f"val_{number:010d}",
            **{k: v for k, v in query().items() if k != "is_valid"},
        }
        for number, uid in enumerate(["c1", "c2", "c1"])
    ]
    path = tmp_path / "val_annot.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump(items, file)
    clips = list(read_vq2d(path))
    assert [(c.name, len(c.queries)) for c in clips] == [("c1", 2), ("c2", 1)]
    assert clips[0].queries[1].key.annotation == "val_0000000002"
    assert sum(len(clip.queries) for clip in read_vq2d(path, split="val")) == 3
    assert list(read_vq2d(path, split="train")) == []
    del items[1]["visual_crop"]["x"]
    with gzip.open(path, "wt") as file:
        json.dump(items, file)
    broken = list(read_vq2d(path))[1].queries[0]
    assert "clip c2, annotation val_0000000001, query 1" in broken.problem
