import json

import numpy as np
import pytest

from egohieraloc.data.visor import read_visor
from egohieraloc.errors import DataError

SQUARE = [[100, 100], [199, 100], [199, 199], [100, 199]]


def item(**changes):
    return {
        "image": {
            "name": "P01_01_frame_0000000140.jpg",
            "image_path": "P01_01/P01_01_frame_0000000140.jpg",
            "subsequence": "P01_01_seq_00001",
            "video": "P01_01",
        },
        "annotations": [
            {
                "id": "u1",
                "name": "left hand",
                "class_id": 300,
                "exhaustive": "y",
                "in_contact_object": "u2",
                "segments": [SQUARE],
            },
            {
                "id": "u2",
                "name": "glove",
                "class_id": 60,
                "exhaustive": "n",
                "on_which_hand": ["left hand"],
                "segments": [SQUARE, []],
            },
        ],
        **changes,
    }


def write(path, *items):
    path.write_text(json.dumps({"info": {}, "video_annotations": items}))
    return path


def test_a_sparse_frame(tmp_path):
    (frame,) = read_visor(write(tmp_path / "P01_01.json", item()))
    assert (frame.video, frame.subsequence, frame.frame_index) == ("P01_01", "P01_01_seq_00001", 140)
    assert not frame.interpolated
    hand, glove = frame.objects
    assert (hand.uid, hand.name, hand.class_id, hand.exhaustive) == ("u1", "left hand", 300, "y")
    assert hand.in_contact_with == "u2"
    assert glove.on_which_hand == ("left hand",)
    assert len(glove.polygons) == 1
    mask = hand.mask()
    assert mask.shape == (1080, 1920)
    assert mask.sum() == 100 * 100
    assert mask[100:200, 100:200].all()


def test_a_mask_at_another_size(tmp_path):
    (frame,) = read_visor(write(tmp_path / "v.json", item()))
    mask = frame.objects[0].mask(width=960, height=540)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (50, 100, 50, 100)


def test_dense_files_are_smaller_and_say_what_was_interpolated(tmp_path):
    first, second = read_visor(write(tmp_path / "v.json", item(type=0), item(type=1)), dense=True)
    assert (first.interpolated, second.interpolated) == (False, True)
    assert first.objects[0].mask().shape == (480, 854)


def test_errors_name_frame_and_object(tmp_path):
    with pytest.raises(
        DataError, match=r"v\.json: frame P01_01_frame_0000000140.jpg, object u9: .*'segments'"
    ):
        list(read_visor(write(tmp_path / "v.json", item(annotations=[{"id": "u9", "name": "x"}]))))
    with pytest.raises(DataError, match="'image' is missing"):
        list(read_visor(write(tmp_path / "v.json", {})))
    broken = item()
    del broken["annotations"]
    with pytest.raises(DataError, match="'annotations' is missing"):
        list(read_visor(write(tmp_path / "v.json", broken)))
