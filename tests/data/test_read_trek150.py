import re

import numpy as np
import pytest

from egohieraloc.data.trek150 import PROTOCOLS, read_trek150
from egohieraloc.errors import DataError


def sequence(root, name="P01-P01_05-1", truth="1,2,3,4\n-1,-1,-1,-1\n5,6,7,8\n", **files):
    folder = root / name
    folder.mkdir()
    (folder / "groundtruth_rect.txt").write_text(truth)
    for file, text in files.items():
        (folder / f"{file}.txt").write_text(text)
    return folder


def test_a_sequence_with_its_runs(tmp_path):
    folder = sequence(tmp_path, anchors="0,0\n2,1\n1,0\n", anchors_hoi="1,2,0\n", attributes="SC\nFOC, LR\n")
    (folder / "img").mkdir()
    (folder / "img" / "frame_0000000007.jpg").write_bytes(b"")
    (found,) = read_trek150(tmp_path)
    assert found.name == "P01-P01_05-1"
    assert found.attributes == {"SC", "FOC", "LR"}
    assert [p.name for p in found.frame_paths] == ["frame_0000000007.jpg"]
    (whole,) = found.runs("ope")
    assert whole.visible.tolist() == [True, False, True]
    assert (whole.key.clip, whole.key.annotation, whole.key.query_set) == (found.name, "ope", "")
    runs = found.runs("mse")
    assert [(r.key.query_set, r.frames.tolist()) for r in runs] == [
        ("anchor-0", [0, 1, 2]),
        ("anchor-2", [2, 1, 0]),
        ("anchor-1", [1, 2]),
    ]
    assert runs[1].truth_xywh[0].tolist() == [5, 6, 7, 8]
    (touch,) = found.runs("hoi")
    assert (touch.key.query_set, touch.frames.tolist()) == ("hoi-1-2-0", [1, 2])
    (way,) = runs[1].passes
    assert way.start.xywh == (5, 6, 7, 8)
    assert way.template_frame == 2
    assert [r.key for r in found.clip("mse").queries] == [r.key for r in runs]


def test_a_backward_anchor_at_the_first_frame_is_one_frame(tmp_path):
    sequence(tmp_path, anchors="0,1\n")
    (found,) = read_trek150(tmp_path)
    assert found.runs("mse")[0].frames.tolist() == [0]


def test_an_anchor_in_both_directions_gets_two_names(tmp_path):
    sequence(tmp_path, anchors="1,0\n1,1\n")
    (found,) = read_trek150(tmp_path)
    assert [r.key.query_set for r in found.runs("mse")] == ["anchor-1", "anchor-1-backwards"]


def test_tables_may_be_absent(tmp_path):
    sequence(tmp_path)
    (found,) = read_trek150(tmp_path)
    assert found.runs("mse") == found.runs("hoi") == ()
    assert found.attributes == frozenset()
    assert found.truth_xywh.shape == (3, 4)
    assert found.truth_xywh.dtype == np.float64


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"truth": "1,2,3\n"}, r"groundtruth_rect\.txt: line 1 has 3 values instead of 4"),
        ({"truth": "1,2,3,x\n"}, "could not convert"),
        ({"truth": "1,2,3,nan\n"}, "not finite"),
        ({"anchors": "3,0\n"}, r"anchors\.txt: an anchor lies outside the sequence's 3 frames"),
        ({"anchors": "-1,0\n1,0\n"}, "outside"),
        ({"anchors_hoi": "0,3,1\n"}, r"anchors_hoi\.txt: an anchor lies outside"),
    ],
)
def test_bad_tables_are_named_and_stop_nothing(tmp_path, files, message):
    broken = sequence(tmp_path, **files)
    (broken / "img").mkdir()
    (broken / "img" / "frame_0000000007.jpg").write_bytes(b"")
    sequence(tmp_path, name="P02-P02_01-1")
    found, sound = read_trek150(tmp_path)
    assert re.search(message, found.problem)
    assert (len(found), found.name) == (1, "P01-P01_05-1")
    for protocol in PROTOCOLS:
        (run,) = found.runs(protocol)
        assert run.problem == found.problem
        assert len(run.frames) == 0
    assert (sound.problem, len(sound)) == ("", 3)


def test_a_folder_without_sequences(tmp_path):
    with pytest.raises(DataError, match="holds no TREK-150 sequence"):
        list(read_trek150(tmp_path))
