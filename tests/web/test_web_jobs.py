"""Queries in the queue: many at once, cancelled, surviving a crash and a restart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from web_clients import ask, upload, wait_for

from egohieraloc.errors import OutputError
from egohieraloc.web import jobs, process, queries
from egohieraloc.web.jobs import _Running
from egohieraloc.web.library import Library, UnknownIdError
from egohieraloc.web.process import OwnProcess, ProcessDiedError, StoppedError
from egohieraloc.web.values import QueryEntry

Serve = Callable[..., Any]


def test_twenty_queries_at_once(serve: Serve, clip: Path) -> None:
    with serve() as client:
        video_id = upload(client, clip)["id"]
        with ThreadPoolExecutor(20) as pool:
            asked = list(pool.map(lambda _: ask(client, video_id), range(20)))
        assert len({query["id"] for query in asked}) == 20
        for query in asked:
            assert wait_for(client, query["id"], "done")["found"]


def test_a_second_query_finds_the_features(serve: Serve, clip: Path) -> None:
    with serve(step_s=0.1) as client:
        video_id = upload(client, clip)["id"]
        first, second = ask(client, video_id), ask(client, video_id)
        assert wait_for(client, second["id"], "done", "waiting")["status"] == "waiting"
        wait_for(client, first["id"], "done")
        events = client.get(f"/queries/{second['id']}/events").text
        assert '"status":"done"' in events
        assert '"stage":"encode"' not in events


def test_different_videos_run_side_by_side(serve: Serve, clip: Path, switches: Path) -> None:
    (switches / "hold").touch()
    with serve() as client:
        asked = [ask(client, upload(client, clip)["id"]) for _ in range(2)]
        for query in asked:
            wait_for(client, query["id"], "running")
        (switches / "hold").unlink()
        for query in asked:
            wait_for(client, query["id"], "done")


def test_cancel_running_and_waiting(serve: Serve, clip: Path, switches: Path) -> None:
    (switches / "hold").touch()
    with serve(workers=1) as client:
        video_id = upload(client, clip)["id"]
        running, waiting = ask(client, video_id), ask(client, video_id)
        wait_for(client, running["id"], "running")
        assert client.delete(f"/queries/{waiting['id']}").json()["status"] == "cancelled"
        assert client.delete(f"/queries/{running['id']}").json()["status"] == "cancelled"
        (switches / "hold").unlink()
        done = ask(client, video_id)
        wait_for(client, done["id"], "done")
        assert client.delete(f"/queries/{done['id']}").json()["status"] == "done"
        assert client.get(f"/queries/{running['id']}").json()["status"] == "cancelled"


def test_an_answer_that_cannot_be_written_stops_nothing(
    serve: Serve,
    clip: Path,
    switches: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def full(library: Library, entry: QueryEntry, answer: object = None) -> None:
        raise OutputError("No space left on device")

    (switches / "hold").touch()
    with serve(workers=1) as client:
        video_id = upload(client, clip)["id"]
        lost = ask(client, video_id)["id"]
        wait_for(client, lost, "running")
        with monkeypatch.context() as patch:
            patch.setattr(Library, "finish", full)
            (switches / "hold").unlink()
            wait_for(client, lost, "waiting")
        assert "No space left on device" in capfd.readouterr().err
        assert wait_for(client, ask(client, video_id)["id"], "done")["found"]
        assert client.delete(f"/queries/{lost}").json()["status"] == "cancelled"


def test_a_folder_that_cannot_be_made_stops_nothing(
    serve: Serve,
    clip: Path,
    switches: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def full(library: Library) -> None:
        raise OSError("No space left on device")

    (switches / "hold").touch()
    with serve(workers=1) as client:
        video_id = upload(client, clip)["id"]
        first, lost = ask(client, video_id)["id"], ask(client, video_id)["id"]
        wait_for(client, first, "running")
        with monkeypatch.context() as patch:
            patch.setattr(Library, "incoming", full)
            (switches / "hold").unlink()
            wait_for(client, first, "done")
            until = time.monotonic() + 60
            while "No space left on device" not in capfd.readouterr().err:
                assert time.monotonic() < until
                time.sleep(0.02)
        assert client.get(f"/queries/{lost}").json()["status"] == "waiting"
        assert wait_for(client, ask(client, video_id)["id"], "done")["found"]


def test_a_query_is_renamed_while_its_answer_is_stored(
    serve: Serve, clip: Path, switches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Library.finish

    def answered_meanwhile(library: Library, entry: QueryEntry, answer: Path | None = None) -> None:
        if not entry.finished:  # the renaming has read the query, and has not written it
            (switches / "hold").unlink()
            until = time.monotonic() + 2
            while time.monotonic() < until and not library.query(entry.id).finished:
                time.sleep(0.02)
        finish(library, entry, answer)

    (switches / "hold").touch()
    with serve() as client:
        query_id = ask(client, upload(client, clip)["id"])["id"]
        wait_for(client, query_id, "running")
        monkeypatch.setattr(Library, "finish", answered_meanwhile)
        assert client.patch(f"/queries/{query_id}", data={"name": "keys"}).status_code == 200
        kept = wait_for(client, query_id, "done", "waiting")
        assert (kept["status"], kept["name"]) == ("done", "keys")


def test_what_nobody_expected_is_told_and_stops_nothing(
    serve: Serve, clip: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = OwnProcess.run

    def broken_run(own: OwnProcess, task: Any, *arguments: Any, **more: Any) -> Any:
        if task is jobs.answer_query:
            raise ZeroDivisionError("by zero")
        return run(own, task, *arguments, **more)

    with serve(workers=1) as client:
        video_id = upload(client, clip)["id"]
        with monkeypatch.context() as patch:
            patch.setattr(OwnProcess, "run", broken_run)
            failed = wait_for(client, ask(client, video_id)["id"], "failed")
        assert failed["message"] == jobs.BROKEN
        assert "by zero" in capfd.readouterr().err
        assert wait_for(client, ask(client, video_id)["id"], "done")["found"]


def test_an_answer_replaces_what_a_stopped_server_left(
    serve: Serve, clip: Path, switches: Path, tmp_path: Path
) -> None:
    (switches / "hold").touch()
    with serve() as client:
        query_id = ask(client, upload(client, clip)["id"])["id"]
        left = tmp_path / "page" / "queries" / query_id / "answer" / "left"
        left.parent.mkdir()
        left.touch()
        (switches / "hold").unlink()
        assert wait_for(client, query_id, "done")["answer"]["found"]
    assert not left.exists()
    assert not list((tmp_path / "page" / "incoming").iterdir())


def test_a_damaged_answer_is_none(serve: Serve, clip: Path, tmp_path: Path) -> None:
    with serve() as client:
        done = wait_for(client, ask(client, upload(client, clip)["id"], in_3d="1")["id"], "done")
        path = tmp_path / "page" / "queries" / done["id"] / "answer" / "result.json"
        for text in ("{", path.read_text().replace('"version": 1', '"version": 0')):
            path.write_text(text)
            assert client.get(f"/queries/{done['id']}").json()["answer"] is None
            assert client.get(f"/queries/{done['id']}/scene").status_code == 404


def test_a_restart_keeps_results_and_goes_on(
    serve: Serve, clip: Path, switches: Path, tmp_path: Path
) -> None:
    with serve() as client:
        video_id = upload(client, clip)["id"]
        done = wait_for(client, ask(client, video_id)["id"], "done")
        (switches / "hold").touch()
        running, waiting, cancelled = (ask(client, video_id)["id"] for _ in range(3))
        client.delete(f"/queries/{cancelled}")
        wait_for(client, running, "running")
        (tmp_path / "page" / "incoming" / "left").mkdir()
    (switches / "hold").unlink()
    with serve() as client:
        assert client.get(f"/queries/{done['id']}").json() == done
        assert [video["id"] for video in client.get("/videos").json()] == [video_id]
        for query_id in (running, waiting):
            assert wait_for(client, query_id, "done")["found"]
        assert client.get(f"/queries/{cancelled}").json()["status"] == "cancelled"
        assert not list((tmp_path / "page" / "incoming").iterdir())


def test_a_process_that_dies_takes_only_its_query_along(serve: Serve, clip: Path, switches: Path) -> None:
    (switches / "die").touch()
    with serve() as client:
        video_id = upload(client, clip)["id"]
        failed = wait_for(client, ask(client, video_id)["id"], "failed")
        assert "died (code 3)" in failed["message"]
        (switches / "die").unlink()
        assert wait_for(client, ask(client, video_id)["id"], "done")["found"]


def test_a_mistake_is_told_without_paths(serve: Serve, clip: Path, switches: Path) -> None:
    (switches / "fail").touch()
    with serve() as client:
        failed = wait_for(client, ask(client, upload(client, clip)["id"])["id"], "failed")
    assert failed["message"] == "There is something wrong with the file."


def test_the_queue_has_an_end(
    serve: Serve, clip: Path, switches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_WAITING", 2)
    (switches / "hold").touch()
    with serve() as client:
        video_id = upload(client, clip)["id"]
        wait_for(client, ask(client, video_id)["id"], "running")
        ask(client, video_id)
        ask(client, video_id)
        refused = client.post(f"/videos/{video_id}/queries", data={"time_s": "1", "box": "9,9,9,9"})
        assert (refused.status_code, refused.json()["error"][:20]) == (429, "2 queries are waitin")


def test_damaged_entries_are_passed_over(serve: Serve, clip: Path, tmp_path: Path) -> None:
    with serve() as client:
        video_id, kept = upload(client, clip)["id"], upload(client, clip)["id"]
        query_id = wait_for(client, ask(client, kept)["id"], "done")["id"]
    (tmp_path / "page" / "videos" / video_id / "video.json").write_text('{"id": ')
    (tmp_path / "page" / "queries" / query_id / "query.json").write_text("")
    with serve() as client:
        assert [video["id"] for video in client.get("/videos").json()] == [kept]
        assert client.get(f"/videos/{video_id}").status_code == 404
        assert client.get(f"/videos/{kept}/queries").json() == []
        assert wait_for(client, ask(client, kept)["id"], "done")["found"]


def test_events_keep_the_line_open_and_end_with_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "EVENT_SILENCE_S", -1.0)
    monkeypatch.setattr(queries, "EVENT_PAUSE_S", 0.0)
    entry = QueryEntry(id="0" * 16, video_id="1" * 16, created_at=0)
    looks = iter([entry, entry, UnknownIdError("removed")])

    def look() -> QueryEntry:
        found = next(looks)
        if isinstance(found, UnknownIdError):
            raise found
        return found

    async def collect() -> list[str]:
        return [text async for text in queries._events(look)]

    first, second = asyncio.run(collect())
    assert first.startswith("event: progress\ndata: {")
    assert '"id":"0000' in first
    assert second == ": still here\n\n"


def test_time_left_follows_the_rate_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    running = _Running("video")
    left = []
    for stage, done in (("encode", 40), ("encode", 60), ("look", 1)):
        running.report(stage, done, 100)
        assert running.progress is not None
        left.append(running.progress.left_s)
    assert left == [None, pytest.approx(4.0), None]  # 20 took 2 s, 40 are left; a new stage knows nothing yet


def stubborn(tool: None, progress: Any) -> None:
    time.sleep(60)


def parent(tool: None, progress: Any, told: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    told.write_text(str(child.pid))
    child.wait()


def broken(tool: None, progress: Any) -> None:
    raise ZeroDivisionError("by zero")


def test_a_task_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STOPPING_S", 0.2)
    own = OwnProcess()
    try:
        with pytest.raises(Exception, match="took longer than"):
            own.run(stubborn, limit_s=0.5)
        stop = threading.Event()
        stop.set()
        with pytest.raises(StoppedError):
            own.run(stubborn, stop=stop)
        with pytest.raises(Exception, match="ZeroDivisionError: by zero"):
            own.run(broken)
    finally:
        own.close()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_what_a_task_has_started_ends_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "STOPPING_S", 0.0)
    own, stop, told = OwnProcess(), threading.Event(), tmp_path / "pid"
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(own.run, parent, told, stop=stop)
        while not (told.exists() and told.read_text()):
            time.sleep(0.01)
        stop.set()
        with pytest.raises(StoppedError):
            working.result(timeout=60)
    own.close()
    state = Path(f"/proc/{told.read_text()}/stat")
    until = time.monotonic() + 120
    while state.exists() and ") Z " not in state.read_text():  # a zombie waits for its new parent only
        assert time.monotonic() < until
        time.sleep(0.02)


def test_death_between_tasks_is_noticed() -> None:
    own = OwnProcess()
    try:
        with pytest.raises(ProcessDiedError, match="code 5"):
            own.run(_exit)
        assert own.run(_number) == os.getpid()
    finally:
        own.close()


def test_closing_ends_the_work_and_nothing_starts_again() -> None:
    own = OwnProcess()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(own.run, stubborn)
        while own._process is None:
            time.sleep(0.01)
        own.close()
        with pytest.raises(ProcessDiedError):
            working.result(timeout=60)
    with pytest.raises(StoppedError, match="closing"):
        own.run(_number)


def _exit(tool: None, progress: Any) -> None:
    os._exit(5)


def _number(tool: None, progress: Any) -> int:
    return os.getppid()
