"""The score commands, from files to tables."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egohieraloc.cli.score import app
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import TrackAnswer, write_own

sys.path.append(str(Path(__file__).parents[1] / "evaluation"))
from fake_ego4d import make_tree

SMALL_3D = Path(__file__).parents[1] / "evaluation" / "fixtures" / "vq3d_small.json"


def call(*words, fails=None):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if fails is None:
        assert result.exit_code == 0, result.output + repr(result.exception)
    else:
        assert isinstance(result.exception, DataError)
        assert fails in str(result.exception)
    return result.output


@pytest.fixture(scope="module")
def vq2d(tmp_path_factory):
    """Annotations, perfect predictions, and predictions that find half of the objects."""
    root = tmp_path_factory.mktemp("ego4d")
    annotations, _ = make_tree(root, num_clips=2)
    queries = [q for clip in read_vq2d(annotations) for q in clip.queries]
    perfect = [TrackAnswer(q.key, q.response, 0.9) for q in queries]
    half = [TrackAnswer(a.key, a.track if i % 2 else Track.empty(), 0.9) for i, a in enumerate(perfect)]
    write_own(root / "perfect.jsonl", {"benchmark": "vq2d"}, perfect)
    write_own(root / "half.jsonl", {"benchmark": "vq2d"}, half)
    return annotations, root / "perfect.jsonl", root / "half.jsonl"


def test_vq2d(vq2d, tmp_path):
    annotations, perfect, _ = vq2d
    shown = call(
        "vq2d", "--annotations", annotations, "--predictions", perfect, "--json", tmp_path / "r.json"
    )
    assert "own score" in shown
    assert "100.00" in shown
    saved = json.loads((tmp_path / "r.json").read_text())
    assert (saved["benchmark"], Path(saved["predictions"]).name) == ("vq2d", "perfect.jsonl")
    assert saved["versions"]["numpy"]
    assert saved["results"]["own_score"] == {
        "num_queries": 7,
        "tap": 1.0,
        "tap25": 1.0,
        "stap": 1.0,
        "stap25": 1.0,
        "recovery": 100.0,
        "success": 100.0,
    }
    call(
        "vq2d",
        "--annotations",
        annotations,
        "--predictions",
        perfect,
        "--split",
        "train",
        fails="no query to score",
    )


def test_compare(vq2d, tmp_path):
    annotations, perfect, half = vq2d
    words = ("--annotations", annotations, "--first", perfect, "--second", half, "--resamples", 200)
    shown = call("compare", "vq2d", *words, "--json", tmp_path / "c.json")
    assert "vq2d, 200 resamples" in shown
    assert "Only 7 queries: below 30" in shown
    saved = json.loads((tmp_path / "c.json").read_text())
    success = saved["results"]["success %"]
    assert success["value"] == pytest.approx(100 * 4 / 7)
    assert success["low"] <= success["value"] <= success["high"]
    assert (saved["seed"], Path(saved["compared_with"]).name) == (0, "half.jsonl")
    call("compare", "vq2d", *words, "--split", "train", fails="no query to score")


def test_compare_vq3d(tmp_path):
    words = ("--annotations", SMALL_3D, "--first", SMALL_3D, "--second", SMALL_3D, "--resamples", 20)
    shown = call("compare", "vq3d", *words, "--json", tmp_path / "c.json")
    assert "angle to annotator 1 rad" in shown
    assert json.loads((tmp_path / "c.json").read_text())["results"]["L2 m"]["value"] == 0


def test_seeds(vq2d, tmp_path):
    annotations, perfect, half = vq2d
    paths = [tmp_path / f"{i}.json" for i in range(4)]
    for path, file in zip(paths, (perfect, perfect, half, half), strict=True):
        call("vq2d", "--annotations", annotations, "--predictions", file, "--json", path)
    content = json.loads(paths[0].read_text())
    content["results"]["own_score"]["success"] = 90.0
    paths[0].write_text(json.dumps(content))
    words = ("--first", paths[0], "--first", paths[1], "--second", paths[2], "--second", paths[3])
    shown = call("seeds", *words, "--json", tmp_path / "s.json")
    assert "2 runs against 2, Welch's t" in shown
    saved = json.loads((tmp_path / "s.json").read_text())["results"]["own_score.success"]
    assert saved["difference"]["first"] == 95
    assert saved["std_first"] == pytest.approx(50**0.5)
    assert not any("groups" in name or "num" in name for name in shown.split())
    call("seeds", "--first", paths[0], "--second", paths[1], fails="at least two runs of each")
    other = tmp_path / "other.json"
    other.write_text('{"results": {"x": 1.0}}')
    call("seeds", *words[:4], "--second", other, "--second", other, fails="no measure in common")


def test_submit_and_validate(vq2d, tmp_path):
    annotations, _, half = vq2d
    out = tmp_path / "s.json"
    shown = call("submit", "vq2d", "--annotations", annotations, "--predictions", half, "--out", out)
    assert "is a valid vq2d submission" in shown
    content = json.loads(out.read_text())
    content["version"] = "0"
    out.write_text(json.dumps(content))
    shown = call(
        "validate", "vq2d", "--annotations", annotations, "--submission", out, fails="has 1 problem;"
    )
    assert "version should be" in shown


def test_vq3d(tmp_path):
    shown = call("vq3d", "--annotations", SMALL_3D, "--predictions", SMALL_3D, "--json", tmp_path / "r.json")
    assert "one point per scan" in shown
    assert "have no prediction" not in shown
    assert "VQ3D by group" not in shown
    call("vq3d", "--annotations", SMALL_3D, "--predictions", SMALL_3D, "--mapping", "m", fails="needs both")
    words = ("vq3d", "--annotations", SMALL_3D, "--predictions", SMALL_3D, "--split", "train")
    call(*words, fails="no VQ3D query")
    assert json.loads((tmp_path / "r.json").read_text())["results"]["scores"]["success_star"] == 50
    out = tmp_path / "s.json"
    shown = call("submit", "vq3d", "--annotations", SMALL_3D, "--predictions", SMALL_3D, "--out", out)
    assert "is a valid vq3d submission" in shown


def test_egotracks(tmp_path):
    def box(frame):
        return {"exported_clip_frame_number": frame, "x": 0.0, "y": 0.0, "width": 10.0, "height": 20.0}

    query = {
        "is_valid": True,
        "object_title": "pan",
        "visual_crop": box(6),
        "visual_clip": [],
        "lt_track": [box(0), box(12)],
    }
    clip = {"clip_uid": "c", "exported_clip_uid": "e", "annotations": [{"query_sets": {"1": query}}]}
    annotations, info = tmp_path / "egotracks_val.json", tmp_path / "clip_info.json"
    annotations.write_text(json.dumps({"videos": [{"video_uid": "v", "split": "val", "clips": [clip]}]}))
    info.write_text(json.dumps({"e": {"frames": ["x"] * 20}}))
    key = QueryKey("e", "#0", "1")
    predictions = tmp_path / "p.jsonl"
    track = Track.from_boxes([0], [(0, 0, 10, 20)])
    write_own(predictions, {"benchmark": "egotracks"}, [TrackAnswer(key, track, 1.0)])
    files = ("--annotations", annotations, "--predictions", predictions)
    shown = call("egotracks", *files, "--clip-info", info, "--json", tmp_path / "r.json")
    assert "2 frames have no prediction" in shown  # of those that show the object, the crop's among them
    assert "3 frames have no prediction" in call("egotracks", *files, "--clip-info", info, "--grid")
    saved = json.loads((tmp_path / "r.json").read_text())["results"]
    assert saved["average_overlap"] == 0.5
    # One frame reported and right, of two: precision 1, recall 1/2.
    assert saved["by_sequence"]["f_score"] == pytest.approx(2 / 3)
    assert "66.67" in shown
    call("submit", "egotracks", *files, "--out", tmp_path / "s.json", "--clip-info", info)
    call("submit", "egotracks", *files, "--out", tmp_path / "s.json", fails="give --clip-info")


def make_sequence(data):
    """Two frames of an object that stands still, with an anchor at the second."""
    sequence = data / "P01-x"
    sequence.mkdir(parents=True)
    (sequence / "groundtruth_rect.txt").write_text("0,0,10,10\n0,0,10,10\n")
    (sequence / "anchors.txt").write_text("1,1\n")
    return sequence


def test_trek150(tmp_path):
    sequence = make_sequence(tmp_path / "data")
    (sequence / "attributes.txt").write_text("FM\n")
    for folder, name in (("ope", "P01-x"), ("mse", "P01-x-anchor-1")):
        (tmp_path / "tracker" / folder).mkdir(parents=True)
        (tmp_path / "tracker" / folder / f"{name}.txt").write_text("0,0,10,10\n0,0,10,10\n")
    files = ("--annotations", tmp_path / "data", "--predictions", tmp_path / "tracker")
    for protocol in ("ope", "mse"):
        shown = call("trek150", *files, "--protocol", protocol, "--json", tmp_path / "r.json")
        assert "FM" in shown
        assert json.loads((tmp_path / "r.json").read_text())["results"]["overall"][
            "success"
        ] == pytest.approx(20 / 21)
    call("trek150", *files, "--protocol", "hoi", fails="None of the 0 predictions")
    shown = call("submit", "trek150", *files, "--out", tmp_path / "s.json")
    assert "is a valid trek150 submission" in shown


def test_trek150_protocols_are_joined(tmp_path):
    """`eval` writes one file for each protocol; the server wants one for all."""
    sequence = make_sequence(tmp_path / "data")
    (sequence / "anchors_hoi.txt").write_text("0,1,2\n")
    files = []
    for protocol, name in (("ope", ""), ("mse", "anchor-1"), ("hoi", "hoi-0-1-2")):
        track = Track.from_boxes([0, 1], [(0, 0, 10, 10), (1, 1, 6, 7)])
        path = tmp_path / f"{protocol}.jsonl"
        write_own(
            path, {"benchmark": "trek150"}, [TrackAnswer(QueryKey("P01-x", protocol, name), track, 1.0)]
        )
        files += ["--predictions", path]
    words = ("submit", "trek150", "--annotations", tmp_path / "data", "--out", tmp_path / "s.json")
    call(*words, *files[:2], fails="There is no MSE prediction for P01-x anchor-1")
    call(*words, *files, *files[:2], fails="ope.jsonl answers clip P01-x, annotation ope")
    assert not (tmp_path / "s.json").exists()
    assert "is a valid trek150 submission" in call(*words, *files)
    results = json.loads((tmp_path / "s.json").read_text())["results"]
    assert results["ope"]["P01-x"] == [[0, 0, 10, 10], [1, 1, 5, 6]]
    # Backwards from frame 1.
    assert results["mse"]["P01-x"]["anchor-1"] == [[1, 1, 5, 6], [0, 0, 10, 10]]
    assert results["hoi"]["P01-x"]["hoi-0-1-2"] == results["ope"]["P01-x"]
