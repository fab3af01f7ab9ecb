"""Runs: one opening per clip, kill and resume, several processes, and what goes wrong."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import fake_ego4d
import numpy as np
import pytest
from fake_ego4d import ABOUT, ColourFinder, make_tree, wait_for_lines

from egohieraloc.data.base import QueryKey
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import DataError, EgoHieraLocError, MissingExtraError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.predictions import PlaceAnswer, read_tracks
from egohieraloc.evaluation.runner import Execution, no_answer, run_benchmark, run_info, write_results


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    annotations, clips = make_tree(tmp_path_factory.mktemp("ego4d"))
    return annotations, list(read_vq2d(annotations)), clips


@pytest.fixture(scope="module")
def whole(tree, tmp_path_factory):
    """The file of an uninterrupted run."""
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    run_benchmark(tree[1], ColourFinder(tree[2], path.with_suffix(".opened")), path, about=ABOUT)
    return path


def test_every_query_is_answered_with_one_opening_per_clip(tree, whole):
    answers = read_tracks(whole)
    assert list(answers) == [q.key for clip in tree[1] for q in clip.queries]
    assert whole.with_suffix(".opened").read_text().split() == ["clip-0", "clip-1", "clip-2"]
    assert not whole.with_name("whole.jsonl.unfinished").exists()
    lost = answers[QueryKey("video-1#0", "annotation-lost", "1")]
    assert len(lost.track) == 0
    assert "no video" in lost.reason


def test_the_file_scores_as_it_should(tree, whole):
    found = vq2d.report_vq2d([q for clip in tree[1] for q in clip.queries], read_tracks(whole))
    # Nine of ten queries are found; the tenth has no clip.
    assert found.own_score.num_queries == 10
    assert found.own_score.success == 90
    assert found.own_score.recovery == 90
    assert {name for name, _ in found.groups} >= {"sharpest third", "small (< 32² px)"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_and_ends_with_the_same_file(tree, whole, tmp_path, workers):
    annotations, clips, folder = tree
    out = tmp_path / "run.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, fake_ego4d.__file__, annotations, folder, out, str(workers), "0.4"]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    log = out.with_name("run.jsonl.unfinished")
    wait_for_lines(log, 4)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = log.read_text().count("\n") - 1
    assert 0 < before < 10
    assert not out.exists()
    # As if the machine had stopped in the middle of a line.
    with log.open("a") as file:
        file.write('{"clip": "clip-2", "annot')
    finder = ColourFinder(folder, tmp_path / "opened")
    with pytest.raises(DataError, match=r"exists already\. Resume"):
        run_benchmark(clips, finder, out, about=ABOUT)
    run_benchmark(clips, finder, out, about=ABOUT, execution=Execution(resume=True))
    assert out.read_bytes() == whole.read_bytes()
    assert not log.exists()


def test_a_finished_run_has_nothing_left_to_do(tree, whole, tmp_path):
    out = tmp_path / "run.jsonl"
    out.write_bytes(whole.read_bytes())
    finder = ColourFinder(tree[2], tmp_path / "opened")
    run_benchmark(tree[1], finder, out, about=ABOUT, execution=Execution(resume=True))
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "opened").exists()
    with pytest.raises(DataError, match="exists already"):
        run_benchmark(tree[1], finder, out, about=ABOUT)


def test_progress_counts_answers_those_of_an_earlier_run_too(tree, whole, tmp_path):
    out, seen = tmp_path / "run.jsonl", []
    lines = whole.read_text().splitlines(keepends=True)
    out.with_name("run.jsonl.unfinished").write_text("".join(lines[:5]))
    finder = ColourFinder(tree[2], tmp_path / "opened")
    execution = Execution(resume=True)
    run_benchmark(
        tree[1], finder, out, about=ABOUT, execution=execution, progress=lambda *step: seen.append(step)
    )
    assert seen[0] == ("vq2d", 4, 10)
    assert seen[-1] == ("vq2d", 10, 10)
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


def test_workers_give_the_same_file(tree, whole, tmp_path):
    out = tmp_path / "run.jsonl"
    run_benchmark(
        tree[1], ColourFinder(tree[2], tmp_path / "opened"), out, about=ABOUT, execution=Execution(workers=2)
    )
    assert out.read_bytes() == whole.read_bytes()
    assert sorted((tmp_path / "opened").read_text().split()) == ["clip-0", "clip-1", "clip-2"]


def test_another_runs_file_is_not_continued(tree, tmp_path):
    out = tmp_path / "run.jsonl"
    finder = ColourFinder(tree[2], tmp_path / "opened", breaks_at="clip-1")
    with pytest.raises(RuntimeError, match="the finder broke"):
        run_benchmark(tree[1], finder, out, about=ABOUT)
    with pytest.raises(DataError, match="written by another run: seed differ"):
        run_benchmark(tree[1], finder, out, about={**ABOUT, "seed": 1}, execution=Execution(resume=True))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_the_system_stops_the_run_and_keeps_what_is_done(tree, tmp_path, workers):
    out = tmp_path / "run.jsonl"
    finder = ColourFinder(tree[2], tmp_path / "opened", breaks_at="clip-2")
    with pytest.raises(RuntimeError, match="the finder broke"):
        run_benchmark(tree[1], finder, out, about=ABOUT, execution=Execution(workers=workers))
    assert out.with_name("run.jsonl.unfinished").read_text().count("\n") > 2
    assert not out.exists()


class Dies:
    def __call__(self, clip):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_named(tree, tmp_path):
    with pytest.raises(EgoHieraLocError, match=r"worker at clip clip-. died"):
        run_benchmark(tree[1], Dies(), tmp_path / "run.jsonl", about=ABOUT, execution=Execution(workers=2))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_run_stops_without_a_word_from_its_workers(tree, tmp_path, workers):
    out = tmp_path / "run.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, fake_ego4d.__file__, tree[0], tree[2], out, str(workers), "0.4"]
    process = subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where it is ignored
    )
    log = out.with_name("run.jsonl.unfinished")
    wait_for_lines(log, 3)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert not out.exists()


def test_an_error_comes_from_a_worker_with_its_place(tree, tmp_path):
    finder = ColourFinder(tree[2], tmp_path / "opened", breaks_at="clip-0")
    with pytest.raises(RuntimeError, match="the finder broke") as caught:
        run_benchmark(tree[1], finder, tmp_path / "run.jsonl", about=ABOUT, execution=Execution(workers=2))
    assert "In the worker at clip clip-0" in caught.value.__notes__[0]
    assert "fake_ego4d.py" in caught.value.__notes__[0]
    missing = pickle.loads(pickle.dumps(MissingExtraError("ray", "scale")))
    assert str(missing) == str(MissingExtraError("ray", "scale"))


class SaysNothing:
    def __init__(self, clip):
        self.queries = clip.queries

    def __enter__(self):
        return lambda query: no_answer("vq2d", QueryKey("other", "a", query.key.query_set), "lost")

    def __exit__(self, *_):
        pass


def test_every_query_must_be_answered(tree, tmp_path):
    with pytest.raises(DataError, match="9 queries were not answered, the first is clip clip-0"):
        run_benchmark(tree[1], SaysNothing, tmp_path / "run.jsonl", about=ABOUT)


def test_results_say_what_was_run(tmp_path):
    about = run_info("vq2d", config={"a": 1}, seed=3)
    assert about["versions"]["numpy"] == np.__version__
    write_results(tmp_path / "results.json", about, {"success": 1.0})
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["results"] == {"success": 1.0}
    assert (written["seed"], written["config"], written["benchmark"]) == (3, {"a": 1}, "vq2d")
    assert isinstance(no_answer("vq3d", QueryKey("c", "a", "1"), "why"), PlaceAnswer)


def test_without_ray_the_extra_is_named(tree, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"egohieraloc\[scale\]"):
        run_benchmark(
            tree[1],
            ColourFinder(tree[2], tmp_path / "o"),
            tmp_path / "r.jsonl",
            about=ABOUT,
            execution=Execution(ray_address="local"),
        )


@pytest.mark.parametrize(("gpus", "share"), [({"CPU": 8.0, "GPU": 2.0}, 0.25), ({"CPU": 8.0}, 0)])
def test_on_ray_each_clip_asks_for_a_share_of_a_gpu(tree, tmp_path, monkeypatch, gpus, share):
    """A stand-in for Ray that runs a task when its answers are fetched."""
    wanted = []

    class Task:
        def __init__(self, function):
            self.remote = function

        def options(self, **options):
            wanted.append(options["num_gpus"])
            return self

    stand_in = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: gpus,
        remote=Task,
        put=lambda value: value,
        wait=lambda running, num_returns: (running[:1], running[1:]),
        get=lambda answer: answer,
        exceptions=SimpleNamespace(WorkerCrashedError=ChildProcessError),
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    found = run_benchmark(
        tree[1],
        ColourFinder(tree[2], tmp_path / "o"),
        tmp_path / "r.jsonl",
        about=ABOUT,
        execution=Execution(ray_address="auto"),
    )
    assert wanted == [share]
    assert len(found) == 10


@pytest.mark.slow
def test_ray_gives_the_same_file_though_a_worker_is_killed(tree, whole, tmp_path):
    ray = pytest.importorskip("ray")
    out = tmp_path / "run.jsonl"
    here = str(Path(fake_ego4d.__file__).parent)
    ray.init(
        num_cpus=2,
        log_to_driver=False,
        include_dashboard=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, *sys.path])}},
    )
    try:
        run_benchmark(
            tree[1],
            KilledOnce(ColourFinder(tree[2], tmp_path / "opened"), tmp_path / "killed"),
            out,
            about=ABOUT,
            execution=Execution(ray_address="auto"),
        )
        with pytest.raises(EgoHieraLocError, match=r"worker at clip clip-. died"):
            run_benchmark(
                tree[1], Dies(), tmp_path / "dead.jsonl", about=ABOUT, execution=Execution(ray_address="auto")
            )
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists()
    assert out.read_bytes() == whole.read_bytes()
    assert (tmp_path / "opened").read_text().split().count("clip-1") == 2


class KilledOnce:
    """The worker that first works at the second clip is killed when it has answered one query of it."""

    def __init__(self, finder, note):
        self.finder, self.note = finder, note

    @contextmanager
    def __call__(self, clip):
        with self.finder(clip) as ask:
            yield lambda query: self.answer(ask, query)

    def answer(self, ask, query):
        if query.key.clip == "clip-1" and query.key.query_set == "2" and not self.note.exists():
            self.note.touch()
            time.sleep(0.5)  # the first answer is on its way
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(query)
