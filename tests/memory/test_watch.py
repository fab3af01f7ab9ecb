"""A camera that remembers: segments, events, retention, reconnecting, and what a killed one leaves."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from recordings import image, red_square, write_recording

from egohieraloc import Localizer, Memory
from egohieraloc.errors import ConfigError, OutputError, VideoError
from egohieraloc.memory import camera as camera_module
from egohieraloc.memory import webhook as webhook_module
from egohieraloc.memory.camera import Camera, CameraFrame
from egohieraloc.memory.recorder import Segment, segment_name
from egohieraloc.memory.wall_clock import time_in_name
from egohieraloc.memory.watch import WatchOptions, watch
from egohieraloc.memory.webhook import Webhook
from egohieraloc.video.reader import Video

START = datetime(2026, 3, 12, 10, 15, 30, 250_000, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path, localizer: Localizer) -> Memory:
    return Memory.open(tmp_path / "memory", localizer=localizer)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven seconds."""
    return write_recording(tmp_path_factory.mktemp("walk") / "2026-03-12T10:15:30Z.mp4", seconds=7)


def watched(memory: Memory, source: Path, **changes: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    options = WatchOptions(**({"name": "hall", "segment_s": 3.0} | changes))
    watch(memory, Camera(str(source)), options, events.append, threading.Event())
    return events


def named(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def test_a_segment_keeps_the_times_of_its_frames(tmp_path: Path) -> None:
    times = [START + timedelta(seconds=s) for s in (0, 0.21, 0.4, 1.0)]
    frames = [CameraFrame(time, image(0, 5 * i)[:63, :95]) for i, time in enumerate(times)]
    segment = Segment(tmp_path, frames[0], 5.0)
    for frame in frames[1:]:
        assert segment.fits(frame, 10.0)
        segment.add(frame)
    assert not segment.fits(CameraFrame(START + timedelta(seconds=10), frames[0].rgb), 10.0)
    assert not segment.fits(CameraFrame(times[1], image(0, 0)), 10.0)  # another size
    assert list(tmp_path.glob("*.mp4")) == []
    path = segment.close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert time_in_name(path.stem) == START
    video = Video.open(path)
    np.testing.assert_allclose(video.times_s, [0, 0.21, 0.4, 1.0], atol=1e-6)
    assert np.abs(video.frame(3).rgb.astype(int) - frames[3].rgb[:62, :94]).mean() < 8


def test_a_file_is_watched_in_segments(memory: Memory, walk: Path) -> None:
    memory.objects.save("square", red_square())
    events = watched(memory, walk)
    entries = memory.list()
    assert [round(e.duration_s, 1) for e in entries] == [3.0, 3.0, 1.0]
    began = datetime(2026, 3, 12, 10, 15, 30, tzinfo=UTC)
    assert [e.start.time for e in entries] == [began + timedelta(seconds=s) for s in (0, 3, 6)]
    assert {e.camera for e in entries} == {"hall"}
    assert [e["path"] for e in named(events, "segment")] == [str(e.path) for e in entries]
    seen = named(events, "seen")
    assert {e["object"] for e in seen} == {"square"}
    assert seen[-1]["video"] == entries[-1].id
    rows = memory.catalogue.rows("SELECT * FROM sightings ORDER BY id")  # as it is told, so it is kept
    assert [(row["video_id"], row["question_id"], row["sure"]) for row in rows] == [
        (event["video"], None, 1) for event in seen
    ]
    (saved,) = memory.objects
    last = datetime.fromisoformat(seen[-1]["until"])
    assert abs(saved.last_seen - last) < timedelta(milliseconds=1)
    answer = memory.ask("square")
    assert answer.sightings[0].seen_until.isoformat() == seen[-1]["until"]
    assert json.loads(json.dumps(events)) == events


def test_old_recordings_go(memory: Memory, walk: Path) -> None:
    watched(memory, walk, segment_s=1.0, keep_days=2.5 / 86400)
    entries = memory.list()
    assert [e.start.time.second for e in entries] == [34, 35, 36]
    recordings = memory.folder / "recordings" / "hall"
    assert sorted(recordings.glob("*.mp4")) == [e.path for e in entries]
    events = watched(memory, walk, segment_s=1.0, keep_gb=(entries[-1].path.stat().st_size + 1) / 1e9)
    assert named(events, "damaged") == []
    assert len(memory.list()) == 1
    assert memory.catalogue.check() == []


@pytest.mark.parametrize("wrong", [-1.0, 0.0, math.nan])
@pytest.mark.parametrize("option", ["segment_s", "fps", "keep_days", "keep_gb"])
def test_options_that_would_keep_nothing(option: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        WatchOptions(**{option: wrong})


def test_what_is_kept_for_ever(memory: Memory, walk: Path) -> None:
    for options in ({"keep_days": math.inf, "keep_gb": math.inf}, {"keep_days": 1e12}):
        watched(memory, walk, **options)
        assert len(memory.list()) == 3


def test_a_recording_that_is_removed_before_it_is_read(
    memory: Memory, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damage: as when retention removes what is just recorded anew."""
    add = Memory.add
    removed: list[Path] = []

    def remove_first(memory: Memory, path: Path, *, camera: str) -> Any:
        if not removed:
            removed.append(path)
            path.unlink()
        return add(memory, path, camera=camera)

    monkeypatch.setattr(Memory, "add", remove_first)
    events = watched(memory, walk)
    assert [event["event"] for event in events] == ["segment", "segment"]


def test_a_recording_that_is_removed_while_objects_are_looked_for_in_it(
    memory: Memory, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        memory.objects.save(name, red_square())
    ask = Localizer.ask

    def remove(localizer: Localizer, *question: Any) -> Any:
        for entry in memory.list()[:1] if not removed else []:
            removed.append(entry.path)
            memory.remove(entry)
            raise VideoError("gone")
        return ask(localizer, *question)

    removed: list[Path] = []
    monkeypatch.setattr(Localizer, "ask", remove)
    events = watched(memory, walk)
    assert len(removed) == 1
    assert len(named(events, "segment")) == 3
    assert {event["object"] for event in named(events, "seen")} == {"a", "b"}


def test_darkness_is_kept_too(memory: Memory, tmp_path: Path) -> None:
    """Segments that show the same are still two: each has its own time."""
    for second in (0, 1):
        frame = CameraFrame(START + timedelta(seconds=second), np.zeros((64, 96, 3), np.uint8))
        memory.add(Segment(tmp_path, frame, 5.0).close(), camera="hall")
    assert len(memory.list()) == 2


def test_what_a_killed_watcher_left(memory: Memory, walk: Path) -> None:
    folder = memory.folder / "recordings" / "hall"
    path = Segment(folder, CameraFrame(START, image(1, 1)), 5.0).close()
    (folder / f"{segment_name(START + timedelta(days=1))}.unfinished").write_bytes(b"half")
    (folder / segment_name(START - timedelta(days=1))).write_bytes(b"damaged")
    events = watched(memory, walk)
    assert named(events, "damaged")[0]["path"] == str(folder / segment_name(START - timedelta(days=1)))
    assert path in [e.path for e in memory.list()]
    assert all(p.suffix in (".mp4", "") for p in folder.iterdir())
    assert len(list(folder.glob("*.mp4"))) == len(memory.list()) == 4


def test_a_recording_that_takes_the_place_of_another(memory: Memory, walk: Path) -> None:
    """As when a file is watched again whose watching was stopped within a segment."""
    began = datetime(2026, 3, 12, 10, 15, 30, tzinfo=UTC)
    short = Segment(memory.folder / "recordings" / "hall", CameraFrame(began, image(1, 1)), 5.0).close()
    memory.add(short, camera="hall")
    watched(memory, walk)
    entries = memory.list()
    assert [round(e.duration_s, 1) for e in entries] == [3.0, 3.0, 1.0]
    assert all(e.exists for e in entries)


def test_a_segment_that_cannot_be_kept_ends_watching(
    memory: Memory, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more segments are recorded than may wait; the next watcher takes them."""
    errors: list[str] = []

    def full(memory: Memory, path: Path, *, camera: str) -> None:
        until = time.monotonic() + 60
        while len(list(path.parent.glob("*.mp4"))) < 4:  # one in the queue too many
            assert time.monotonic() < until
            time.sleep(0.01)
        raise OutputError("No space left on device")

    def watching() -> None:
        try:
            watched(memory, walk, segment_s=1.0)
        except OutputError as error:
            errors.append(str(error))

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "add", full)
        thread = threading.Thread(target=watching, daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert errors == ["No space left on device"]
    watched(memory, walk, segment_s=1.0)
    assert sum(entry.info.num_frames for entry in memory.list()) == 35


def test_an_object_that_is_forgotten_meanwhile_stops_nothing(
    memory: Memory, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        memory.objects.save(name, red_square())
    ask = Localizer.ask

    def forget(localizer: Localizer, *question: Any) -> Any:
        for name in ("a", "b"):  # the one that is looked for and the next one
            if name in memory.objects:
                memory.objects.remove(name)
        return ask(localizer, *question)

    monkeypatch.setattr(Localizer, "ask", forget)
    events = watched(memory, walk)
    assert {e["object"] for e in named(events, "seen")} == {"c"}
    assert len(named(events, "segment")) == 3


def test_two_watchers_of_one_camera(memory: Memory, walk: Path) -> None:
    events: list[dict[str, Any]] = []

    def report(event: dict[str, Any]) -> None:
        if not events:
            with pytest.raises(ConfigError, match="'hall' is being watched already"):
                watched(memory, walk)
        events.append(event)

    watch(memory, Camera(str(walk)), WatchOptions(name="hall"), report, threading.Event())
    assert events


class FlakyCamera:
    """Fails twice, gives five frames, ends, gives five more, then is stopped."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop, self.opened = stop, 0

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.opened += 1
        if self.opened <= 2:
            raise av.error.ConnectionRefusedError(111, "Connection refused", "rtsp://user:secret@hall/1")
        yield self

    def decode(self, video: int) -> Iterator[av.VideoFrame]:
        for number in range(5):
            time.sleep(0.003)
            yield av.VideoFrame.from_ndarray(image(self.opened, number), format="rgb24")
        if self.opened == 4:
            self.stop.set()


def test_a_camera_that_goes_away_is_waited_for(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    flaky = FlakyCamera(stop)
    monkeypatch.setattr(Camera, "_opened", lambda camera: flaky.open())
    monkeypatch.setattr(camera_module, "FIRST_PAUSE_S", 0.01)
    events: list[dict[str, Any]] = []
    camera = Camera("rtsp://user:secret@hall.local:554/stream/1")
    watch(memory, camera, WatchOptions(fps=1000.0), events.append, stop)
    assert [e["event"] for e in events if e["event"] != "segment"][:5] == [
        "disconnected", "disconnected", "connected", "disconnected", "connected",
    ]  # fmt: skip
    assert events[0]["camera"] == "hall_local_stream_1"
    assert "secret" not in json.dumps(events)
    assert sum(e.info.num_frames for e in memory.list()) == 10


def test_what_was_recorded_can_be_asked_while_the_camera_is_away(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment in work is not kept back until the camera is there again."""
    stop = threading.Event()
    flaky = FlakyCamera(stop)
    flaky.opened = 2  # it answers at once
    monkeypatch.setattr(Camera, "_opened", lambda camera: flaky.open())
    events: list[str] = []

    def report(event: dict[str, Any]) -> None:
        events.append(event["event"])
        if event["event"] == "segment" and "disconnected" in events:
            stop.set()

    started = time.monotonic()
    monkeypatch.setattr(camera_module, "FIRST_PAUSE_S", 60.0)
    watch(memory, Camera("rtsp://hall/1"), WatchOptions(fps=1000.0), report, stop)
    assert time.monotonic() - started < 50
    assert sorted(events) == ["connected", "disconnected", "segment"]


def test_a_fast_camera_is_read_at_the_rate_and_a_missing_one_asked_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty frames a second for two seconds, then nobody answers eight times; then it is there again."""
    now, pauses, opened = [START], [], []

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return now[0]

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            if len(pauses) == 10:
                self.set()
            return self.is_set()

    class Fast:
        def decode(self, video: int) -> Iterator[av.VideoFrame]:
            for number in range(60):
                now[0] += timedelta(seconds=1 / 30)
                yield av.VideoFrame.from_ndarray(image(0, number), format="rgb24")

    @contextmanager
    def open_it(camera: Camera) -> Iterator[Fast]:
        opened.append(camera)
        if 2 <= len(opened) <= 9:
            raise OSError(111, "Connection refused")
        yield Fast()

    monkeypatch.setattr(camera_module, "datetime", Clock)
    monkeypatch.setattr(Camera, "_opened", open_it)
    times = [frame.time for frame in Camera("rtsp://hall/1").frames(5.0, Waiting(), lambda *_: None)]
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(times) == 20
    assert gaps == pytest.approx([0.2] * 19, abs=1e-3)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 1]


def test_a_stream_over_the_network(memory: Memory, walk: Path) -> None:
    """MPEG-TS over TCP, sent twice: the camera connects again."""
    stop, events = threading.Event(), []
    sent = walk.with_suffix(".ts")
    with av.open(str(walk)) as source, av.open(str(sent), "w", format="mpegts") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)

    def serve() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.sendall(sent.read_bytes())

    def report(event: dict[str, Any]) -> None:
        events.append(event["event"])
        if events.count("disconnected") == 2:
            stop.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        camera = Camera(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        watch(memory, camera, WatchOptions(name="hall", fps=1000.0), report, stop)
    assert [kind for kind in events if kind != "segment"] == ["connected", "disconnected"] * 2
    entries = memory.list()
    assert len(entries) == events.count("segment") == 2
    assert all(0 < entry.info.num_frames <= 70 for entry in entries)
    shown = Video.open(entries[0].path).frame(0).rgb
    assert np.abs(shown.astype(int) - image(0, 0)).mean() < 8


def test_what_is_no_camera(memory: Memory) -> None:
    with pytest.raises(VideoError, match="nowhere is neither a file nor a camera"):
        watched(memory, Path("nowhere"))


def test_a_webhook_gets_events_in_order_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append(body)
            self.send_response(500 if body["number"] == 1 else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    monkeypatch.setattr(webhook_module, "PAUSE_S", 0.01)
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed: list[dict[str, Any]] = []
    with Webhook(f"http://127.0.0.1:{server.server_port}/hook", failed.append) as hook:
        for number in range(3):
            hook.send({"number": number})
    server.shutdown()
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        Webhook(f"http://127.0.0.1:{other.getsockname()[1]}", failed.append) as hook,
    ):
        hook.send({"number": 3})
        other.settimeout(10)
        for _ in range(webhook_module.TRIES):
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"no answer in HTTP\r\n\r\n")
    with Webhook("http://hall.local/with space", failed.append) as hook:
        hook.send({"number": 4})
    assert [e["number"] for e in received] == [0, 1, 1, 1, 2]
    assert [e["lost"] for e in failed] == [{"number": n} for n in (1, 3, 4)]
    with pytest.raises(ConfigError, match="A webhook is an address"):
        Webhook("ftp://elsewhere", failed.append)
