"""Our system over small trees of every benchmark: from the command to the table."""

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import fake_ego4d
import numpy as np
import pytest
from fake_ego4d import FRAMES, make_tree, render, wait_for_lines
from fake_tracking import CROP_FRAMES, NUM_FRAMES, TRUTH, make_egotracks, make_trek150, save_tiny
from typer.testing import CliRunner

from egohieraloc.cli.eval import app
from egohieraloc.data.base import QueryKey
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.egotracks import scored_frames
from egohieraloc.errors import ConfigError, DataError, QueryError, VideoError, WeightsError
from egohieraloc.evaluation import run_vq2d, workers
from egohieraloc.evaluation.predictions import read_own, read_tracks
from egohieraloc.evaluation.run_vq2d import ClipSearch, System
from egohieraloc.images import write_image
from egohieraloc.inference.predict import Predictor
from egohieraloc.result import Result
from egohieraloc.types import Box, FramePrediction, NotFound, ResponseTrack, ScoreCurve
from egohieraloc.video.reader import Video

SLOW_MAIN = """
import time
from egohieraloc.cli import main
from egohieraloc.localize import Localizer
ask = Localizer.ask
def slowly(*words, **named):
    time.sleep(0.4)
    return ask(*words, **named)
Localizer.ask = slowly
main()
"""


def call(*words, fails=None, says=""):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if fails is None:
        assert result.exit_code == 0, result.output + repr(result.exception)
    else:
        assert isinstance(result.exception, fails), result.output + repr(result.exception)
        assert says in str(result.exception)
    return " ".join(result.output.split())


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("EGOHIERALOC_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("ego4d"))


def words_for(tree, tiny, out, *more):
    annotations, clips = tree
    return ["vq2d", "--annotations", annotations, "--clips", clips, "--model", tiny, "--out", out, *more]


@pytest.fixture(scope="module")
def whole(tree, tiny, tmp_path_factory):
    """The prediction file of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "vq2d.jsonl"
    assert "own score" in call(*words_for(tree, tiny, out))
    return out


@pytest.fixture
def loads(monkeypatch):
    """The weights files that are loaded from now on."""
    paths = []
    load = run_vq2d.load_weights

    def counted(path):
        paths.append(path)
        return load(path)

    monkeypatch.setattr(run_vq2d, "load_weights", counted)
    return paths


def test_vq2d_from_the_command_to_the_results(tree, whole):
    header, answers = read_own(whole)
    assert list(answers) == [q.key for clip in read_vq2d(tree[0]) for q in clip.queries]
    found = [a for a in answers.values() if not a.reason]
    assert len(found) == 9
    for answer in found:
        assert 0 <= answer.track.frames[0] <= answer.track.frames[-1] < FRAMES - 1
        assert answer.track.is_contiguous
        assert answer.crop_sharpness > 0
        assert 0 <= answer.mask_quality <= 1
    assert header["config"]["model"] == "tiny"
    assert header["config"]["temporal"]["rule"] == "extend"
    results = json.loads(whole.with_name("vq2d.results.json").read_text())
    assert results["results"]["own_score"]["num_queries"] == 10
    assert {"sharpest third", "seen < 10 s ago", "small (< 32² px)"} <= results["results"]["groups"].keys()
    assert (results["config"], results["seed"]) == (header["config"], 0)
    assert results["versions"]["numpy"] == np.__version__


def test_a_killed_run_ends_with_the_same_file(tree, tiny, whole, tmp_path):
    out = tmp_path / "vq2d.jsonl"
    words = [str(word) for word in words_for(tree, tiny, out, "--cache", tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_MAIN, "eval", *words], env=environment, start_new_session=True
    )
    log = out.with_name("vq2d.jsonl.unfinished")
    wait_for_lines(log, 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 4 <= log.read_text().count("\n") - 1 < 10
    call(*words, fails=DataError, says="Resume that run")
    call(*words, "--resume", "--set", "temporal.median=7", fails=DataError, says="config differ")
    call(*words, "--resume")
    assert out.read_bytes() == whole.read_bytes()


def test_workers_share_the_cores_and_give_the_same_file(tree, tiny, whole, tmp_path, monkeypatch, loads):
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    call(*words_for(tree, tiny, tmp_path / "vq2d.jsonl", "--workers", 2, "--cache", tmp_path / "cache"))
    assert loads == [tiny]  # here; each worker has loaded its own
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert (tmp_path / "vq2d.jsonl").read_bytes() == whole.read_bytes()


def count_encoded(monkeypatch):
    """Numbers of the frames that are read to be encoded from now on."""
    seen = []
    canvases = Video.canvases

    def counted(self, indices, letterbox):
        for frame in canvases(self, indices, letterbox):
            seen.append(frame.index)
            yield frame

    monkeypatch.setattr(Video, "canvases", counted)
    return seen


def test_a_clip_is_encoded_once_however_many_queries(tree, tiny, tmp_path, monkeypatch):
    seen = count_encoded(monkeypatch)
    call(*words_for(tree, tiny, tmp_path / "a.jsonl", "--cache", tmp_path / "cache"))
    assert len(seen) == 3 * FRAMES
    call(*words_for(tree, tiny, tmp_path / "b.jsonl", "--cache", tmp_path / "cache"))
    assert len(seen) == 3 * FRAMES


def test_weights_are_loaded_once_and_freed(tree, tiny, tmp_path, monkeypatch, loads):
    networks = weakref.WeakSet()
    prepare = Predictor.__init__

    def counted(self, *words, **named):
        prepare(self, *words, **named)
        networks.add(self)

    monkeypatch.setattr(Predictor, "__init__", counted)
    call(*words_for(tree, tiny, tmp_path / "a.jsonl"))
    assert loads == [tiny]
    gc.collect()
    assert len(networks) == 0


def test_each_worker_loads_the_weights_once():
    """It is sent the settings of the system, and keeps what it loads."""
    system = System("mini", "cpu", ("temporal.median=7",))
    assert system.localizer is system.localizer
    assert system.localizer.config.temporal.median == 7
    sent = pickle.dumps(system)
    assert len(sent) < 1000
    copy = pickle.loads(sent)
    assert copy == system
    assert "weights" not in vars(copy)
    # Ray sends the system with every clip.
    assert workers._unpickled(sent) is workers._unpickled(sent)


def test_clips_that_are_missing_or_broken(tree, tiny, tmp_path):
    annotations, clips = tree
    some = tmp_path / "clips"
    some.mkdir()
    (some / "clip-0.mp4").symlink_to(clips / "clip-0.mp4")
    (some / "clip-1.mp4").write_bytes(b"no video")
    out = tmp_path / "some.jsonl"
    shown = call(*words_for((annotations, some), tiny, out))
    assert "1 of 3 clips do not exist; the first is" in shown
    assert "clip-2.mp4" in shown
    assert "Their 3 queries are left out." in shown
    assert "3 queries have no prediction and count as not found." in shown
    assert "4 of 7 queries have no full answer" in shown
    answers = read_tracks(out)
    assert len(answers) == 7
    assert "clip-1.mp4" in answers[QueryKey("clip-1", "annotation-1", "2")].reason
    strict = words_for((annotations, some), tiny, tmp_path / "strict.jsonl", "--strict")
    call(*strict, fails=DataError, says="1 of 3 clips do not exist")
    (some / "clip-2.mp4").symlink_to(clips / "clip-2.mp4")
    call(*strict, fails=VideoError, says="clip-1.mp4")
    # What was missing can be added to the same run.
    (some / "clip-1.mp4").unlink()
    shown = call(*words_for((annotations, some), tiny, out, "--resume"))
    assert QueryKey("clip-2", "annotation-2", "1") in read_tracks(out)


def test_a_crop_outside_its_image_is_an_answer_with_a_reason(tree, tiny, tmp_path):
    content = json.loads(tree[0].read_text())
    content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]["2"]["visual_crop"]["x"] = 500.0
    path = tmp_path / "vq_val.json"
    path.write_text(json.dumps(content))
    call(*words_for((path, tree[1]), tiny, tmp_path / "out.jsonl"))
    answers = read_tracks(tmp_path / "out.jsonl")
    assert "needs 2 pixels either way" in answers[QueryKey("clip-0", "annotation-0", "2")].reason
    assert answers[QueryKey("clip-0", "annotation-0", "3")].reason == ""
    strict = words_for((path, tree[1]), tiny, tmp_path / "strict.jsonl", "--strict")
    call(*strict, fails=QueryError, says="needs 2 pixels either way")


def test_a_folder_of_frames_is_a_clip(tree, tiny, tmp_path):
    annotations, clips = tree
    for number in range(3):
        for frame in Video.open(clips / f"clip-{number}.mp4").samples(None):
            write_image(tmp_path / "clips" / f"clip-{number}" / f"{frame.index}.png", frame.rgb)
    call(*words_for((annotations, tmp_path / "clips"), tiny, tmp_path / "out.jsonl"))
    answers = read_tracks(tmp_path / "out.jsonl")
    assert sum(not a.reason for a in answers.values()) == 9


def test_mistakes_are_named(tree, tiny, tmp_path):
    annotations, clips = tree
    out = tmp_path / "out.jsonl"
    call(*words_for((annotations, tmp_path / "no"), tiny, out), fails=DataError, says="There is no folder")
    call(*words_for((tmp_path / "no.json", clips), tiny, out), fails=DataError, says="no.json")
    call(*words_for(tree, tmp_path / "no.safetensors", out), fails=WeightsError, says="no weights file")
    call(*words_for(tree, tiny, out, "--set", "search.fsp=5"), fails=ConfigError, says="search.fps")
    (tmp_path / "empty").mkdir()
    empty = words_for((annotations, tmp_path / "empty"), tiny, out)
    call(*empty, fails=DataError, says="3 of 3 clips do not exist")
    call(*empty, "--split", "test", fails=DataError, says="There are no queries")
    assert not list(tmp_path.glob("out*"))


def test_a_split_without_answers_is_not_scored(tree, tiny, tmp_path):
    content = json.loads(tree[0].read_text())
    for video in content["videos"]:
        for clip in video["clips"]:
            for annotation in clip["annotations"]:
                for query in annotation.get("query_sets", {}).values():
                    query.pop("response_track", None)
    hidden = tmp_path / "vq_test_unannotated.json"
    hidden.write_text(json.dumps(content))
    out = tmp_path / "test.jsonl"
    assert "no ground truth to score against" in call(*words_for((hidden, tree[1]), tiny, out))
    assert len(read_tracks(out)) == 10
    assert not out.with_suffix(".results.json").exists()


class Scripted:
    """Stands for a Localizer: finds what it is told to find, and notes what it was asked."""

    def __init__(self, fps, first, last, *, found=True):
        self.fps, self.first, self.last, self.found = fps, first, last, found
        self.asked = []

    def encode(self, video, until_s):
        return video.sampled(indices=video.sample_indices(self.fps, until_s=until_s))

    def ask(self, query, encoded):
        self.asked.append((query, encoded))
        curve = ScoreCurve(encoded.time_s, encoded.time_s, encoded.time_s, 0.5)
        if len(encoded.frame_index) == 0:
            return Result(query, encoded, NotFound("nothing to see"), curve)
        mask, covered = np.ones((2, 2), bool), Box(0, 0, encoded.info.width, encoded.info.height)
        predictions = tuple(
            FramePrediction(int(index), s, float(time_s), 0.9, Box(s, 2, s + 4, 8), mask, covered)
            for s, (index, time_s) in enumerate(zip(encoded.frame_index, encoded.time_s, strict=True))
            if self.first <= s <= self.last
        )
        track = ResponseTrack(predictions, 0.7)
        if self.found:
            return Result(query, encoded, track, curve)
        return Result(query, encoded, NotFound("too weak", 0.7), curve, (track,))


@pytest.fixture
def query(tree):
    return next(read_vq2d(tree[0])).queries[0]


def search(query, localizer, path):
    return ClipSearch(localizer, Video.open(path), (query,), 5.0)


@pytest.mark.parametrize(("repeats", "scale"), [(1, 1), (6, 1), (1, 2), (6, 2)])
def test_answers_are_on_the_grid_of_the_annotation(tmp_path, query, repeats, scale):
    render(tmp_path / "clip.mp4", 0, repeats=repeats, scale=scale)
    localizer = Scripted(5.0, 3, 6)
    found = search(query, localizer, tmp_path / "clip.mp4").find(query)
    assert [p.frame_index for p in found.predictions] == [3, 4, 5, 6]
    assert [p.time_s for p in found.predictions] == [0.6, 0.8, 1.0, 1.2]
    assert found.predictions[0].box.xyxy == (3 / scale, 2 / scale, 7 / scale, 8 / scale)
    assert found.predictions[0].mask_box.xyxy == (0, 0, 96, 64)
    ((question, encoded),) = localizer.asked
    assert encoded.frame_index.tolist() == list(range(0, (FRAMES - 1) * repeats, repeats))
    assert encoded.info.width == 96 * scale
    # The crop is where the object is, in the image of its frame, at the file's own size.
    assert question.box.xyxy == tuple(v * scale for v in query.crop.xyxy)
    assert np.abs(question.crop.mean((0, 1)) - fake_ego4d.COLOURS["1"]).max() < 25
    assert question.seen_at_s == pytest.approx(query.crop_frame / 5)


@pytest.mark.parametrize(("fps", "frames"), [(2.5, [2, 3, 4, 5]), (10.0, [2])])
def test_other_search_rates_still_give_every_frame_a_box(tmp_path, query, fps, frames):
    render(tmp_path / "clip.mp4", 0, repeats=2)
    first, last = (1, 2) if fps < 5 else (4, 5)
    found = search(query, Scripted(fps, first, last), tmp_path / "clip.mp4").find(query)
    assert [p.frame_index for p in found.predictions] == frames


def test_nothing_at_or_after_the_question_is_searched(tree, query):
    localizer = Scripted(5.0, 0, 0)
    searched = search(query, localizer, tree[1] / "clip-0.mp4")
    early = replace(query, query_frame=4, crop_frame=10)  # the crop may come after the question
    searched.find(early)
    assert localizer.asked[-1][1].frame_index.tolist() == [0, 1, 2, 3]
    assert localizer.asked[-1][0].seen_at_s == pytest.approx(2.0)
    nothing = searched.find(replace(query, query_frame=0))
    assert (nothing.predictions, nothing.reason) == ((), "nothing to see")
    # A question after the end of the clip searches all of it.
    late = replace(query, query_frame=100)
    localizer = Scripted(5.0, FRAMES - 2, FRAMES - 1)
    found = search(late, localizer, tree[1] / "clip-0.mp4").find(late)
    assert len(localizer.asked[-1][1].frame_index) == FRAMES
    assert [p.frame_index for p in found.predictions] == [FRAMES - 2, FRAMES - 1]


def test_the_best_candidate_is_given_though_it_is_unsure(tree, query):
    found = search(query, Scripted(5.0, 3, 6, found=False), tree[1] / "clip-0.mp4").find(query)
    assert len(found.predictions) == 4
    assert (found.score, found.reason) == (0.7, "")


def test_crops_that_leave_the_image(tree, query):
    localizer = Scripted(5.0, 0, 0)
    searched = search(query, localizer, tree[1] / "clip-0.mp4")
    searched.find(replace(query, crop=Box(-5, -0.15, 20, 30)))
    assert localizer.asked[-1][0].box.xyxy == (0, 0, 20, 30)
    with pytest.raises(QueryError, match="needs 2 pixels either way"):
        searched.find(replace(query, crop=Box(200, 0, 220, 30)))
    with pytest.raises(VideoError, match="is not in"):
        searched.find(replace(query, crop_frame=1000))


@pytest.fixture(scope="module")
def egotracks(tmp_path_factory):
    return make_egotracks(tmp_path_factory.mktemp("egotracks"))


def egotracks_words(egotracks, tiny, out, protocol, *more):
    annotations, clips = egotracks
    return [
        *("egotracks", "--annotations", annotations, "--clips", clips, "--protocol", protocol),
        *("--model", tiny, "--out", out, *more),
    ]


@pytest.mark.parametrize("protocol", ["vct-vs", "vct-vc"])
def test_egotracks(egotracks, tiny, tmp_path, monkeypatch, loads, protocol):
    seen = count_encoded(monkeypatch)
    out = tmp_path / "out.jsonl"
    words = egotracks_words(egotracks, tiny, out, protocol, "--cache", tmp_path / "cache")
    shown = call(*words)
    assert loads == [tiny]
    assert "1 of 2 clips do not exist" in shown
    assert "mean of sequences 6" in shown
    # Crops at 38 and 50 share a grid; 75 has another. Queries and directions share what is encoded.
    assert sorted(seen) == sorted([*range(2, NUM_FRAMES, 6), *range(3, NUM_FRAMES, 6)])
    header, answers = read_own(out)
    assert header["config"]["protocol"] == protocol
    for query_set, crop_frame in CROP_FRAMES.items():
        answer = answers[QueryKey("e0", "#0", query_set)]
        frames = scored_frames(crop_frame, NUM_FRAMES)
        assert answer.track.frames.tolist() == frames.tolist()
        at_crop = int(np.flatnonzero(frames == crop_frame)[0])
        given = answer.track.boxes_xyxy[at_crop].tolist() == [10, -2, 26, 14]
        assert given == (protocol == "vct-vc")
        assert (answer.frame_scores[at_crop] == 1) == (protocol == "vct-vc")
        assert (np.delete(answer.frame_scores, at_crop) < 1).all()
    results = json.loads(out.with_suffix(".results.json").read_text())["results"]
    assert results["num_sequences"] == 6
    assert {"small (< 32² px)", "away < 10 s at a time", "sharpest third"} <= results["groups"].keys()


def test_egotracks_clips_may_have_been_made_smaller(egotracks, tiny, tmp_path):
    """Annotated at twice the size: the same images are seen, and boxes come back twice as large."""
    content = json.loads(egotracks[0].read_text())
    for clip in content["videos"][0]["clips"]:
        for query in clip["annotations"][0]["query_sets"].values():
            for box in (query["visual_crop"], *query["lt_track"]):
                box.update({side: 2 * box[side] for side in ("x", "y", "width", "height")})
                box.update(original_width=2 * fake_ego4d.WIDTH, original_height=2 * fake_ego4d.HEIGHT)
    path = tmp_path / "large.json"
    path.write_text(json.dumps(content))
    tracks = []
    for annotations, out in ((egotracks[0], tmp_path / "a.jsonl"), (path, tmp_path / "b.jsonl")):
        call(*egotracks_words((annotations, egotracks[1]), tiny, out, "vct-vc"))
        tracks.append(read_tracks(out))
    for key, answer in tracks[0].items():
        assert tracks[1][key].track.boxes_xyxy == pytest.approx(2 * answer.track.boxes_xyxy)
        assert tracks[1][key].crop_sharpness == answer.crop_sharpness


def test_egotracks_without_some_answers_is_scored_and_without_all_is_not(egotracks, tiny, tmp_path):
    content = json.loads(egotracks[0].read_text())
    sets = [clip["annotations"][0]["query_sets"] for clip in content["videos"][0]["clips"]]
    del sets[0]["1"]["lt_track"], sets[1]["1"]["lt_track"]
    path = tmp_path / "some.json"
    path.write_text(json.dumps(content))
    shown = call(*egotracks_words((path, egotracks[1]), tiny, tmp_path / "some.jsonl", "vct-vs"))
    assert "2 sequences are not annotated or have no frame to find" in shown
    for query in (*sets[0].values(), *sets[1].values()):
        query.pop("lt_track", None)
    path.write_text(json.dumps(content))
    shown = call(*egotracks_words((path, egotracks[1]), tiny, tmp_path / "none.jsonl", "vct-vs"))
    assert "no ground truth to score against" in shown


def test_egotracks_wants_exported_clips(egotracks, tiny, tmp_path):
    annotations, _ = egotracks
    render(tmp_path / "e0.mp4", 0)
    words = egotracks_words((annotations, tmp_path), tiny, tmp_path / "out.jsonl", "vct-vs")
    assert "has 5 frames a second, but EgoTracks numbers frames at 30" in call(*words)
    assert all(len(answer.track) == 0 for answer in read_tracks(tmp_path / "out.jsonl").values())
    render(tmp_path / "e1.mp4", 0)
    words = egotracks_words((annotations, tmp_path), tiny, tmp_path / "strict.jsonl", "vct-vs", "--strict")
    call(*words, fails=VideoError, says="has 5 frames a second, but EgoTracks numbers frames at 30")


def test_bad_records_are_listed_and_counted_and_stop_nothing(tree, tiny, tmp_path):
    content = json.loads(tree[0].read_text())
    sets = content["videos"][0]["clips"][0]["annotations"][1]["query_sets"]
    sets["1"]["visual_crop"] = None
    sets["2"]["response_track"].append(sets["2"]["response_track"][0])
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    out = tmp_path / "out.jsonl"
    shown = call(*words_for((path, tree[1]), tiny, out))
    answers = read_tracks(out)
    for query_set in ("1", "2"):
        key = QueryKey("clip-0", "annotation-0", query_set)
        assert f"Not answered: {path}: video video-0, {key}" in shown
        assert len(answers[key].track) == 0
        assert str(key) in answers[key].reason
    whole = [query for clip in read_vq2d(tree[0]) for query in clip.queries]
    results = json.loads(out.with_suffix(".results.json").read_text())["results"]
    assert results["own_score"]["num_queries"] == len(whole) == len(answers)
    strict = words_for((path, tree[1]), tiny, tmp_path / "strict.jsonl", "--strict")
    call(*strict, fails=DataError, says="Without --strict it counts as not answered")
    for clip in content["videos"][0]["clips"] + content["videos"][1]["clips"]:
        for annotation in clip["annotations"]:
            for query in annotation.get("query_sets", {}).values():
                query["visual_crop"] = None
    path.write_text(json.dumps(content))
    words = words_for((path, tree[1]), tiny, tmp_path / "none.jsonl")
    call(*words, fails=DataError, says="No query of the annotation file can be used")


def test_egotracks_clips_that_end_too_early(egotracks, tiny, tmp_path):
    content = json.loads(egotracks[0].read_text())
    query = content["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["1"]
    query["visual_crop"]["exported_clip_frame_number"] = NUM_FRAMES
    path = tmp_path / "late.json"
    path.write_text(json.dumps(content))
    out = tmp_path / "out.jsonl"
    call(*egotracks_words((path, egotracks[1]), tiny, out, "vct-vc"))
    late = read_tracks(out)[QueryKey("e0", "#0", "1")]
    assert late.reason == "The crop is at frame 144, but the clip has 144 frames."
    assert len(late.track) == 0


@pytest.fixture(scope="module")
def trek150(tmp_path_factory):
    return make_trek150(tmp_path_factory.mktemp("trek150"))


@pytest.mark.parametrize(("protocol", "runs"), [("ope", 1), ("mse", 3), ("hoi", 1)])
def test_trek150(trek150, tiny, tmp_path, loads, protocol, runs):
    out = tmp_path / "out.jsonl"
    shown = call(
        *("trek150", "--annotations", trek150, "--protocol", protocol, "--model", tiny, "--out", out)
    )
    assert loads == [tiny]
    assert f"TREK-150, {protocol.upper()}" in shown
    assert ("1 of 2 clips do not exist" in shown) == (protocol == "ope")
    answers = read_tracks(out)
    assert len(answers) == runs
    for key, answer in answers.items():
        start = {"": 0, "anchor-0": 0, "hoi-2-5-0": 2}.get(key.query_set, 4)
        x, y, width, height = TRUTH[start]
        boxes, _ = answer.track.at(np.array([start]))
        assert boxes[0].tolist() == [x, y, x + width, y + height]
        last = {"hoi-2-5-0": 5, "anchor-4-backwards": 4}.get(key.query_set, len(TRUTH) - 1)
        first = 0 if key.query_set == "anchor-4-backwards" else start
        assert answer.track.frames.tolist() == list(range(first, last + 1))
    assert "FM" in json.loads(out.with_suffix(".results.json").read_text())["results"]["attributes"]


def test_trek150_runs_that_cannot_start_or_end(tiny, tmp_path):
    root = make_trek150(tmp_path / "dataset")
    first = root / "P01-P01_01-1"
    sorted((first / "img").iterdir())[-1].unlink()
    (first / "groundtruth_rect.txt").write_text("\n".join(["-1,-1,-1,-1", *["4,10,16,16"] * 6]))
    (first / "anchors.txt").write_text("0,1\n4,0\n3,1\n")
    out = tmp_path / "out.jsonl"
    call("trek150", "--annotations", root, "--protocol", "mse", "--model", tiny, "--out", out)
    reasons = {key.query_set: answer.reason for key, answer in read_tracks(out).items()}
    assert reasons == {
        "anchor-0": "The object is not visible at frame 0, where the run starts.",
        "anchor-4": "Frame 6 is annotated, but the sequence has 6 images.",
        "anchor-3": "",
    }


def test_a_broken_sequence_does_not_stop_a_run(tiny, tmp_path):
    root = make_trek150(tmp_path / "dataset")
    torn = root / "P02-P02_02-2"
    (torn / "groundtruth_rect.txt").write_text("1,2,3\n")
    (torn / "img").mkdir()
    out = tmp_path / "out.jsonl"
    words = ("trek150", "--annotations", root, "--model", tiny, "--out", out)
    call(*words, "--strict", fails=DataError, says="line 1 has 3 values instead of 4")
    shown = call(*words)
    assert "Not answered: " in shown
    answers = {key.clip: answer for key, answer in read_tracks(out).items()}
    assert "line 1 has 3 values instead of 4" in answers[torn.name].reason
    assert len(answers["P01-P01_01-1"].track) == len(TRUTH)
    results = json.loads(out.with_suffix(".results.json").read_text())["results"]
    assert results["num_sequences"] == 2
    assert results["overall"]["recall"] <= 0.5  # the torn one counts as not answered


def test_trek150_wants_sequences(tiny, tmp_path):
    call("trek150", "--annotations", tmp_path, "--model", tiny, fails=DataError, says="no TREK-150 sequence")
    assert not Path("trek150.jsonl").exists()
