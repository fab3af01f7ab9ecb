"""The server over HTTP, as another program uses it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from fake_localizer import FPS, FRAMES, HEIGHT, WIDTH, FakeLocalizer, write_clip
from fastapi.testclient import TestClient
from web_clients import BASE_URL, ask, upload, wait_for

from egohieraloc.images import read_image, write_image
from egohieraloc.result import Result
from egohieraloc.result_schema import schema
from egohieraloc.web.app import create_app


def test_a_video_is_opened_and_listed(client: TestClient, clip: Path) -> None:
    entry = upload(client, clip)
    wanted = {"name": "walk.mp4", "width": WIDTH, "height": HEIGHT, "fps": FPS, "num_frames": FRAMES}
    assert wanted.items() <= entry.items()
    assert (entry["media_type"], entry["duration_s"], entry["warning"]) == ("video/mp4", 4.0, None)
    assert client.get(f"/videos/{entry['id']}").json() == entry
    assert entry == client.get("/videos").json()[0]


def test_the_file_comes_whole_and_by_ranges(client: TestClient, video_id: str, clip: Path) -> None:
    whole = client.get(f"/videos/{video_id}/file")
    assert whole.content == clip.read_bytes()
    assert whole.headers["content-type"] == "video/mp4"
    part = client.get(f"/videos/{video_id}/file", headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, clip.read_bytes()[100:200])
    assert client.get(f"/videos/{video_id}/file", headers={"Range": "bytes=99999999-"}).status_code == 416


def test_frames_by_time(client: TestClient, video_id: str) -> None:
    def left_edge(time_s: float) -> int:
        response = client.get(f"/videos/{video_id}/frame", params={"time_s": time_s})
        assert response.headers["content-type"] == "image/jpeg"
        bgr = cv2.imdecode(np.frombuffer(response.content, np.uint8), cv2.IMREAD_COLOR)
        return int(np.flatnonzero(bgr[50, :, 2] > 160)[0])

    assert left_edge(0) == pytest.approx(10, abs=2)
    assert left_edge(2.0) == pytest.approx(50, abs=2)
    assert left_edge(2.09) == pytest.approx(50, abs=2)


def test_a_query_by_time_and_box(client: TestClient, video_id: str) -> None:
    asked = ask(client, video_id)
    assert asked["status"] == "waiting"
    assert asked["box"] == [30, 30, 70, 70]
    done = wait_for(client, asked["id"], "done")
    answer = done["answer"]
    assert (done["found"], done["span_s"], answer["score"]) == (True, [2.0, 3.0], 0.87)
    assert [view["sample"] for view in answer["track"]] == list(range(10, 16))
    assert answer["track"][0]["box"] == [50, 30, 90, 70]
    assert answer["track"][0]["mask"] == {"box": [50, 30, 90, 70], "size": [4, 4], "counts": [0, 16]}
    assert len(answer["curve"]["time_s"]) == 20
    assert answer["intervals"] == [[3, 5], [10, 15]]
    assert [(a["score"], len(a["track"])) for a in answer["alternatives"]] == [(0.6, 3)]
    assert answer["place"] is None
    assert answer["video"]["path"] == "walk.mp4"  # the name it was sent with, not where the server keeps it
    assert done["id"] in [query["id"] for query in client.get(f"/videos/{video_id}/queries").json()]


def test_the_query_is_the_frame_of_that_time(serve: Callable[..., Any], clip: Path, tmp_path: Path) -> None:
    with serve() as client:
        asked = ask(client, upload(client, clip)["id"])
        folder = tmp_path / "page" / "queries" / asked["id"]
        image = read_image(folder / "image.png")
        assert image.shape == (HEIGHT, WIDTH, 3)
        assert np.flatnonzero(image[50, :, 0] > 160)[0] == pytest.approx(30, abs=2)
        assert asked["seen_at_s"] == pytest.approx(1.0)
        thumbnail = client.get(f"/queries/{asked['id']}/thumbnail")
        bgr = cv2.imdecode(np.frombuffer(thumbnail.content, np.uint8), cv2.IMREAD_COLOR)
        assert bgr.shape == (40, 40, 3)
        assert bgr[20, 20, 2] > 180


def test_several_views_of_one_object(serve: Callable[..., Any], clip: Path, tmp_path: Path) -> None:
    """Images first, then moments of the video; all of them are in the answer."""
    write_image(tmp_path / "crop.png", np.full((24, 32, 3), (220, 30, 30), np.uint8))
    with serve() as client:
        video_id, crop = upload(client, clip)["id"], (tmp_path / "crop.png").read_bytes()
        asked = client.post(
            f"/videos/{video_id}/queries",
            data={"time_s": ["1.0", "2.0"], "box": ["", "4,4,10,10", "30,30,40,40", "50,30,40,40"]},
            files=[("image", ("one.png", crop)), ("image", ("two.png", crop))],
        ).json()
        assert asked["box"] == [0, 0, 32, 24]
        assert [(view["box"], view["seen_at_s"]) for view in asked["others"]] == [
            ([4, 4, 14, 14], None),
            ([30, 30, 70, 70], 1.0),
            ([50, 30, 90, 70], 2.0),
        ]
        assert wait_for(client, asked["id"], "done")["found"]
        kept = Result.load(tmp_path / "page" / "queries" / asked["id"] / "answer").query
    assert [view.image.shape for view in kept.views] == [(24, 32, 3)] * 2 + [(HEIGHT, WIDTH, 3)] * 2
    assert [view.box.xyxy for view in kept.views[1:]] == [tuple(v["box"]) for v in asked["others"]]


@pytest.mark.parametrize(("form", "box"), [({}, [0, 0, 32, 24]), ({"box": "4,4,10,10"}, [4, 4, 14, 14])])
def test_a_query_by_image(
    client: TestClient, video_id: str, tmp_path: Path, form: dict[str, str], box: list[float]
) -> None:
    write_image(tmp_path / "crop.png", np.full((24, 32, 3), 200, np.uint8))
    files = {"image": ("../../evil.png", (tmp_path / "crop.png").read_bytes())}
    response = client.post(f"/videos/{video_id}/queries", data=form, files=files)
    assert response.status_code == 201, response.text
    assert response.json()["box"] == box
    assert wait_for(client, response.json()["id"], "done")["found"]


def test_until_reaches_the_localizer(client: TestClient, video_id: str) -> None:
    asked = ask(client, video_id, until_s="3.2")
    assert wait_for(client, asked["id"], "done")["answer"]["curve"]["time_s"][-1] == pytest.approx(3.0)


def test_events_tell_progress_time_left_and_the_end(serve: Callable[..., Any], clip: Path) -> None:
    with serve(step_s=0.1) as client:
        asked = ask(client, upload(client, clip)["id"])
        response = client.get(f"/queries/{asked['id']}/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [block.split("\n") for block in response.text.strip().split("\n\n")]
        names = [lines[0].removeprefix("event: ") for lines in events]
        values = [json.loads(lines[1].removeprefix("data: ")) for lines in events]
        assert names == ["progress"] * (len(names) - 1) + ["end"]
        assert values[-1]["status"] == "done"
        running = [value["progress"] for value in values if value["progress"]]
        assert {p["stage"] for p in running} <= {"encode", "decode"}
        encoding = [p for p in running if p["stage"] == "encode"]
        assert [p["done"] for p in encoding] == sorted({p["done"] for p in encoding})
        later = [p for p in encoding if p["done"] > 4]
        assert later
        for p in later:  # no step takes less than 0.1 s
            assert p["left_s"] >= 0.099 * (20 - p["done"])
        assert client.get(f"/queries/{asked['id']}/events").text.startswith("event: end\n")


def test_a_query_in_3d_names_its_stage_and_brings_place_and_scene(
    serve: Callable[..., Any], clip: Path, switches: Path
) -> None:
    (switches / "hold").write_text("poses: matching")
    with serve() as client:
        video_id = upload(client, clip)["id"]
        asked = ask(client, video_id, in_3d="true")
        assert asked["in_3d"] is True
        wait_for(client, asked["id"], "running", stage="poses: matching")
        assert client.get(f"/queries/{asked['id']}/scene").status_code == 404
        assert client.delete(f"/queries/{asked['id']}").json()["status"] == "cancelled"
        (switches / "hold").unlink()
        done = wait_for(client, ask(client, video_id, in_3d="true")["id"], "done")
        assert done["answer"]["place"]["displacement"] == [-0.6, 0.7, 2.0]
        scene = client.get(f"/queries/{done['id']}/scene").json()
        words = "it is 2.2 m (± 0.6 m), in front of you, to your left and below."
        assert scene["words"] == f"From the camera at the query time {words}"
        assert scene["path_frames"] == done["answer"]["curve"]["frame"] == list(range(0, 40, 2))
        assert len(scene["views"]) == 6
        flat = wait_for(client, ask(client, video_id, in_3d="false")["id"], "done")
        assert (flat["in_3d"], flat["answer"]["place"]) == (False, None)
        assert client.get(f"/queries/{flat['id']}/scene").status_code == 404
        (switches / "hold").write_text("poses: matching")  # nothing is matched a second time
        wait_for(client, ask(client, video_id, in_3d="true")["id"], "done")


def test_why_there_is_no_place_is_told_without_paths(
    serve: Callable[..., Any], clip: Path, switches: Path, tmp_path: Path
) -> None:
    (switches / "lost").touch()
    with serve() as client:
        done = wait_for(client, ask(client, upload(client, clip)["id"], in_3d="1")["id"], "done")
        scene = client.get(f"/queries/{done['id']}/scene").json()
    place = done["answer"]["place"]
    assert (place["found"], scene["place"], scene["posed_frames"], scene["num_frames"]) == (
        False,
        None,
        0,
        20,
    )
    assert place["reason"] == "its last words are in the file"
    assert scene["words"] == "No place in space: its last words are in the file."
    assert str(tmp_path) not in str(done)
    assert str(tmp_path) not in str(scene)


def test_the_folder_of_an_answer_is_what_result_saves(
    serve: Callable[..., Any], clip: Path, tmp_path: Path
) -> None:
    with serve() as client:
        video_id = upload(client, clip)["id"]
        done = wait_for(client, ask(client, video_id, in_3d="true", until_s="3.6")["id"], "done")
    saved = Result.load(tmp_path / "page" / "queries" / done["id"] / "answer")
    assert saved.video.source.path == str(tmp_path / "page" / "videos" / video_id / "video")
    document = saved.to_dict()
    document["video"]["path"] = "walk.mp4"
    assert done["answer"] == document
    assert saved.query.seen_at_s == pytest.approx(1.0)
    assert done["created_at"] == pytest.approx(time.time(), abs=300)


def test_no_path_leaves_a_folder_of_any_name(clip: Path, tmp_path: Path) -> None:
    """JSON escapes quotes and letters beyond ASCII."""
    folder, switches = tmp_path / 'Küche "1"', tmp_path
    (switches / "lost").touch()
    app = create_app(folder, partial(FakeLocalizer, switches))
    with TestClient(app, base_url=BASE_URL) as client:
        done = wait_for(client, ask(client, upload(client, clip)["id"], in_3d="1")["id"], "done")
    assert done["answer"]["place"]["reason"] == "its last words are in the file"
    assert tmp_path.name not in str(done)


def test_nothing_found_is_an_answer(serve: Callable[..., Any], clip: Path, switches: Path) -> None:
    (switches / "miss").touch()
    with serve() as client:
        done = wait_for(client, ask(client, upload(client, clip)["id"])["id"], "done")
    assert (done["found"], done["message"], done["span_s"]) == (False, "Nothing looks like it.", None)
    assert len(done["answer"]["alternatives"]) == 1


def test_removing_a_video_takes_its_queries_along(
    serve: Callable[..., Any], clip: Path, tmp_path: Path, switches: Path
) -> None:
    (switches / "hold").touch()
    with serve() as client:
        video_id, kept = upload(client, clip)["id"], upload(client, clip)["id"]
        running, waiting = ask(client, video_id)["id"], ask(client, video_id)["id"]
        wait_for(client, running, "running")
        assert client.delete(f"/videos/{video_id}").status_code == 204
        for path in (f"/videos/{video_id}", f"/queries/{running}", f"/queries/{waiting}"):
            assert client.get(path).status_code == 404
        assert [video["id"] for video in client.get("/videos").json()] == [kept]
        (switches / "hold").unlink()
        assert wait_for(client, ask(client, kept)["id"], "done")["found"]
    assert not list((tmp_path / "page" / "queries").glob(f"*{running}*"))


@pytest.mark.parametrize(
    ("codec", "name", "media_type"), [("vp9", "a.webm", "video/webm"), ("mpeg4", "a.avi", "video/x-msvideo")]
)
def test_other_formats(client: TestClient, tmp_path: Path, codec: str, name: str, media_type: str) -> None:
    entry = upload(client, write_clip(tmp_path / name, codec=codec))
    assert entry["media_type"] == media_type
    assert client.get(f"/videos/{entry['id']}/frame?time_s=1").status_code == 200


def test_openapi_describes_the_routes(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    paths = described["paths"]
    parts = described["components"]["schemas"]
    assert set(parts["ResultDocument"]["properties"]) == set(schema()["properties"])
    assert {
        "/videos",
        "/videos/{video_id}/queries",
        "/queries/{query_id}",
        "/queries/{query_id}/events",
        "/queries/{query_id}/scene",
    } <= set(paths)
    assert "/videos/local" not in paths
    assert client.get("/about").json()["max_video_bytes"] == 1_000_000
