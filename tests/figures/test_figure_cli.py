"""`egohieraloc figure`: every command draws from the project's own files and says what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_world import (
    FRAMES,
    KEY,
    POINT,
    SEEN,
    make_trek150,
    make_video,
    make_vq2d,
    make_vq3d,
    result,
    track,
    write_place,
    write_tracks,
)
from matplotlib.figure import Figure
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.data.trek150 import read_trek150
from egohieraloc.errors import DataError
from egohieraloc.evaluation import trek150
from egohieraloc.evaluation.predictions import TrackAnswer, write_own
from egohieraloc.figures.maps import _show_ellipse
from egohieraloc.types import FrameMaps, NotFound

SECOND = QueryKey("room", "a", "2")


def draw(*words: object) -> str:
    """Runs a command and gives back what it says."""
    done = CliRunner().invoke(app, ["figure", *map(str, words)], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def vq2d(tmp_path: Path) -> tuple[object, ...]:
    make_video(tmp_path)
    write_tracks(
        tmp_path / "ours.jsonl",
        "vq2d",
        {KEY: track(SEEN, scale=2), SECOND: track(range(7, 9), scale=2)},
    )
    write_tracks(tmp_path / "other.jsonl", "vq2d", {KEY: Track.empty()})
    return ("--annotations", make_vq2d(tmp_path), "--clips", tmp_path)


def test_qualitative(vq2d: tuple[object, ...], tmp_path: Path) -> None:
    result(tmp_path / "room").save(tmp_path / "answer")
    out = tmp_path / "a.svg"
    both = ("--answers", f"ours={tmp_path / 'ours.jsonl'}", "--answers", f"other={tmp_path / 'other.jsonl'}")
    draw("qualitative", *vq2d, *both, "--query", 1, "--query", 0, "--out", out)
    text = out.read_text()
    assert all(word in text for word in ("ground truth", "ours", "other"))
    assert text.count(">red square</text>") == 2
    folder = ("--answers", f"found={tmp_path / 'answer'}")
    draw("qualitative", *folder, "--out", out)
    assert "ground truth" not in out.read_text()
    draw("qualitative", *vq2d, *folder, "--frames", 2, "--zoom", 0.5, "--out", out)
    assert "ground truth" in out.read_text()
    with pytest.raises(DataError, match=r"--answers takes NAME=PATH, such as 'ours=vq2d\.jsonl', got 'ours'"):
        draw("qualitative", *vq2d, "--answers", "ours", "--out", out)
    with pytest.raises(DataError, match="Prediction files need --annotations and --clips"):
        draw("qualitative", *both, "--out", out)
    with pytest.raises(DataError, match="Give --clips"):
        draw("qualitative", *vq2d[:2], *both, "--out", out)
    with pytest.raises(DataError, match=r"There is no .*none.jsonl for 'ours'"):
        draw("qualitative", *vq2d, "--answers", f"ours={tmp_path / 'none.jsonl'}", "--out", out)


def test_failures_are_the_worst_first(vq2d: tuple[object, ...], tmp_path: Path) -> None:
    ours = ("--answers", f"ours={tmp_path / 'ours.jsonl'}")
    said = draw("failures", *vq2d, *ours, "--out", tmp_path / "a.svg")
    assert "queries 1, 0" in said
    text = (tmp_path / "a.svg").read_text()
    assert text.index("stIoU 0.00") < text.index("stIoU 1.00")
    assert "queries 1\n" in draw("failures", *vq2d, *ours, "--count", 1, "--out", tmp_path / "a.svg")
    assert "stIoU 1.00" not in (tmp_path / "a.svg").read_text()
    with pytest.raises(DataError, match="None of the 2 clips is in"):
        draw("failures", *vq2d[:3], tmp_path / "nowhere", *ours, "--out", tmp_path / "b.svg")
    hidden = json.loads(vq2d[1].read_text())
    for query in hidden["videos"][0]["clips"][0]["annotations"][0]["query_sets"].values():
        del query["response_track"]
    vq2d[1].write_text(json.dumps(hidden))
    with pytest.raises(DataError, match=r"has no response track for clip room"):
        draw("failures", *vq2d, *ours, "--out", tmp_path / "b.svg")


def test_scene(vq2d: tuple[object, ...], tmp_path: Path) -> None:
    files = make_vq3d(tmp_path)
    write_place(tmp_path / "p.jsonl", POINT + 0.1)
    write_place(tmp_path / "lost.jsonl", None)
    words = ("scene", "--annotations", files["annotations"], "--answers", f"ours={tmp_path / 'p.jsonl'}")
    words = (*words, "--answers", f"lost={tmp_path / 'lost.jsonl'}", "--out", tmp_path / "a.svg")
    draw(*words)
    assert "red square" not in (tmp_path / "a.svg").read_text()
    seen = ("--poses", files["poses"], "--mapping", files["mapping"], "--vq2d", vq2d[1], "--clips", tmp_path)
    draw(*words, *seen)
    text = (tmp_path / "a.svg").read_text()
    assert "red square" in text
    assert "from above, grid 0.5 m" in text  # a bad pose, far away, is not part of the path
    with pytest.raises(DataError, match="There is no query 3: the annotations have 1"):
        draw(*words, "--query", 3)


def test_lift(tmp_path: Path) -> None:
    result(make_video(tmp_path)).save(tmp_path / "answer")
    words = ("lift", "--answers", f"ours={tmp_path / 'answer'}", "--out", tmp_path / "a.svg")
    draw(*words)
    assert "ground truth" not in (tmp_path / "a.svg").read_text()
    draw(*words, "--annotations", make_vq3d(tmp_path)["annotations"])
    assert "ground truth" in (tmp_path / "a.svg").read_text()


def test_egotracks_and_trek150_rows(tmp_path: Path) -> None:
    folder = make_trek150(tmp_path)
    own = write_tracks(tmp_path / "t.jsonl", "trek150", {QueryKey("S2", "ope", ""): track(range(FRAMES))})
    words = ("--benchmark", "trek150", "--annotations", folder, "--answers", f"ours={own}", "--query", 1)
    draw("qualitative", *words, "--out", tmp_path / "a.svg")
    assert "S2" in (tmp_path / "a.svg").read_text()
    make_video(tmp_path / "clips")
    box = {"exported_clip_frame_number": 6, "x": 30.0, "y": 20.0, "width": 16.0, "height": 16.0}
    query = {
        "is_valid": True,
        "object_title": "object",
        "visual_crop": box,
        "visual_clip": [],
        "lt_track": [box],
    }
    clip = {"clip_uid": "c", "exported_clip_uid": "room", "annotations": [{"query_sets": {"1": query}}]}
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"videos": [{"video_uid": "v", "split": "val", "clips": [clip]}]}))
    own = write_tracks(tmp_path / "e.jsonl", "egotracks", {QueryKey("room", "#0", "1"): track(range(6, 8))})
    words = ("--benchmark", "egotracks", "--annotations", path, "--clips", tmp_path / "clips")
    draw("qualitative", *words, "--answers", f"ours={own}", "--out", tmp_path / "b.svg")
    assert "object" in (tmp_path / "b.svg").read_text()


def test_trek150_plots(tmp_path: Path) -> None:
    folder = make_trek150(tmp_path)
    exact = {QueryKey(f"S{n}", "ope", ""): track(range(FRAMES)) for n in (1, 2)}
    ours = write_tracks(tmp_path / "ours.jsonl", "trek150", exact)
    words = ("--annotations", folder, "--answers", f"ours={ours}", "--out", tmp_path / "a.svg")
    draw("trek150", *words)
    assert f"ours [{20 / 21:.3f}, 1.000, 1.000]" in (tmp_path / "a.svg").read_text()
    half = write_tracks(tmp_path / "half.jsonl", "trek150", dict(list(exact.items())[:1]))
    draw("trek150", *words, "--answers", f"half={half}")
    # The other sequence counts as lost after its first, given frame.
    assert f"half [{(1 + 1 / 11) * 10 / 21:.3f}," in (tmp_path / "a.svg").read_text()
    draw("attributes", *words, "--protocol", "ope")
    text = (tmp_path / "a.svg").read_text()
    assert all(word in text for word in ("FM (1)", "SC (1)", "all (2)"))
    other = write_tracks(tmp_path / "x.jsonl", "trek150", {QueryKey("Z", "ope", ""): Track.empty()})
    with pytest.raises(DataError, match="'x' has no OPE prediction for any of the 2 sequences"):
        draw("trek150", *words, "--answers", f"x={other}")
    (folder / "S1" / "attributes.txt").unlink()
    with pytest.raises(DataError, match=r"have no attributes: each needs an attributes\.txt"):
        draw("attributes", *words, "--protocol", "ope")


def test_measures_are_the_means_of_their_curves(tmp_path: Path) -> None:
    run = next(read_trek150(make_trek150(tmp_path))).runs("ope")[0]
    boxes = run.truth_xywh + np.random.default_rng(0).normal(0, 4, run.truth_xywh.shape)
    curves, scores = trek150.run_curves(run, boxes), trek150.score_run(run, boxes)
    assert curves.success.mean() == pytest.approx(scores.success)
    assert curves.normalized_precision.mean() == pytest.approx(scores.normalized_precision)
    assert curves.robustness.mean() == pytest.approx(scores.robustness)
    assert (np.diff(curves.success) <= 0).all()
    assert (np.diff(curves.normalized_precision) >= 0).all()
    assert (np.diff(curves.robustness) <= 0).all()


def test_tables_and_logs(tmp_path: Path) -> None:
    table, log = tmp_path / "t.csv", tmp_path / "log.jsonl"
    table.write_text("name,fps,success\nours,40,60\nother,4,62\n")
    log.write_text('{"step": 20, "total": 1.0, "mask": 0.5, "learning_rate": 0.1}\n')
    out = ("--out", tmp_path / "a.pdf")
    draw("tradeoff", table, "--x", "fps", "--y", "success", "--log-x", *out)
    draw("sweep", table, "--x", "name", "--y", "success", *out)
    draw("training", log, *out)
    assert "Drawn:" in draw("training", log, "--loss", "mask", *out)


def test_maps(tmp_path: Path) -> None:
    """The maps are those kept in the answer; of more frames than were kept, those are shown."""
    kept = [np.full((4, 6), 40 * n, np.uint8) for n in range(5)]
    maps = tuple(FrameMaps(s, *kept, ellipse=(50.0, 30.0, 8.0, 5.0), drift=(3.0, 1.0)) for s in (4, 6, 8))
    found = result(make_video(tmp_path), in_3d=False, maps=maps)
    found.save(tmp_path / "answer")
    draw("maps", tmp_path / "answer", "--frames", 2, "--out", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert all(word in text for word in ("query", "0.8 s", "1.6 s", "QAM: location"))
    assert "1.2 s" not in text
    draw("maps", tmp_path / "answer", "--frames", 9, "--out", tmp_path / "a.svg")
    assert "1.2 s" in (tmp_path / "a.svg").read_text()
    axes = Figure().subplots()
    _show_ellipse(axes, maps[0])
    ring = axes.patches[0]
    assert (ring.get_center(), ring.get_width(), ring.get_height()) == ((50, 30), 16, 10)
    assert axes.lines[0].get_xydata().tolist() == [[47, 29], [50, 30]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"track": NotFound("too weak")}, "there are no maps to show: too weak"),
        ({}, "saved without its maps"),
    ],
)
def test_answers_without_maps(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    result(make_video(tmp_path), in_3d=False, **changes).save(tmp_path / "answer")
    with pytest.raises(DataError, match=message):
        draw("maps", tmp_path / "answer", "--out", tmp_path / "b.svg")


def test_quality(tmp_path: Path) -> None:
    """Of four masks one has exactly the quality that is trusted, and one none that is known."""
    answers = [
        TrackAnswer(QueryKey("clip", "a", str(n)), Track.empty(), 0.0, "not found", mask_quality=value)
        for n, value in enumerate((0.1, 0.5, 0.6, 1.0, None))
    ]
    write_own(tmp_path / "p.jsonl", {"benchmark": "vq2d"}, answers)
    out = tmp_path / "quality.svg"
    draw("quality", tmp_path / "p.jsonl", "--out", out)
    written = re.findall(r">(level \d|[\d.]+ %)<", out.read_text())
    assert written == ["level 2", "25.0 %", "level 1", "25.0 %", "level 0", "50.0 %"]
    write_own(tmp_path / "old.jsonl", {"benchmark": "vq2d"}, answers[4:])
    with pytest.raises(DataError, match="holds no quality of a mask"):
        draw("quality", tmp_path / "old.jsonl", "--out", out)
