"""Whatever is sent, the answer is clear and the server stays well."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_localizer import write_clip
from fastapi.testclient import TestClient
from web_clients import ask, wait_for

from egohieraloc import images
from egohieraloc.images import write_image
from egohieraloc.progress import no_progress
from egohieraloc.web import media, videos
from egohieraloc.web.media import QuerySource


@pytest.fixture(autouse=True)
def _stays_well(client: TestClient, video_id: str) -> Any:
    """After each test nothing half-received is left and queries are still answered."""
    before = client.get("/videos").json()
    yield
    assert client.get("/videos").json() == before
    assert wait_for(client, ask(client, video_id)["id"], "done")["found"]


def refusal(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]


def send(client: TestClient, data: bytes, name: str = "walk.mp4") -> Any:
    return client.post("/videos", params={"name": name}, content=data)


def test_a_video_cut_in_the_middle(client: TestClient, clip: Path) -> None:
    data = clip.read_bytes()
    assert "cannot be read as a video" in refusal(send(client, data[: len(data) // 2]), 422)


def test_a_file_of_zero_bytes(client: TestClient) -> None:
    assert "0 bytes" in refusal(send(client, b""), 422)


def test_a_text_called_mp4(client: TestClient) -> None:
    assert "cannot be read as a video" in refusal(send(client, b"This is no video.\n" * 50), 422)


def test_an_image_called_mp4(client: TestClient, tmp_path: Path) -> None:
    write_image(tmp_path / "grey.png", np.full((32, 48, 3), 128, np.uint8))
    assert "this format are not taken" in refusal(send(client, (tmp_path / "grey.png").read_bytes()), 422)


def test_a_list_of_other_files_is_not_read(client: TestClient, clip: Path) -> None:
    words = refusal(send(client, f"ffconcat version 1.0\nfile {clip.name}\n".encode()), 422)
    assert "a list of other files" in words
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{clip}\n#EXT-X-ENDLIST\n"
    assert "a list of other files" in refusal(send(client, playlist.encode(), "list.m3u8"), 422)


def test_a_claim_of_four_gigabytes(client: TestClient) -> None:
    response = client.post("/videos", content=b"x", headers={"Content-Length": "4000000000"})
    assert refusal(response, 413) == "This is too large: at most 1 MB are taken."


def test_more_than_was_claimed(client: TestClient) -> None:
    response = client.post("/videos", content=iter([b"x" * 300_000] * 5))
    assert "at most 1 MB" in refusal(response, 413)


def test_a_claim_that_is_no_number(client: TestClient) -> None:
    assert "Content-Length" in refusal(client.post("/videos", headers={"Content-Length": "many"}), 400)


def test_a_query_that_is_too_large(client: TestClient, video_id: str) -> None:
    response = client.post(
        f"/videos/{video_id}/queries", files={"image": b"x"}, headers={"Content-Length": "99000000"}
    )
    assert "at most 32 MB" in refusal(response, 413)


def test_no_room_on_the_disk(client: TestClient, monkeypatch: pytest.MonkeyPatch, clip: Path) -> None:
    class Full:
        free = 10

    monkeypatch.setattr(videos.shutil, "disk_usage", lambda folder: Full)
    assert "not enough room" in refusal(send(client, clip.read_bytes()), 507)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("<img src=x onerror=alert(1)>.mp4", "<img src=x onerror=alert(1)>.mp4"),
        ("a\x00b\n.mp4", "ab.mp4"),
        ("/", "video"),
    ],
)
def test_names_are_only_shown(
    serve: Callable[..., Any], clip: Path, tmp_path: Path, name: str, shown: str
) -> None:
    with serve() as own:
        entry = send(own, clip.read_bytes(), name).json()
        assert entry["name"] == shown
    inside = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    folder = f"page/videos/{entry['id']}"
    assert inside == {f"{folder}/video", f"{folder}/video.json"}


@pytest.mark.parametrize(
    "path", ["/videos/{}", "/videos/{}/file", "/videos/{}/queries", "/queries/{}", "/static/{}"]
)
@pytest.mark.parametrize("name", ["0123456789abcdef", "%2e%2e", "..%2F..%2Fetc%2Fpasswd", "%00", "x" * 300])
def test_unknown_ids(client: TestClient, path: str, name: str) -> None:
    refusal(client.get(path.format(name)), 404)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"time_s": "1", "box": "500,500,20,20"}, "needs 2 pixels either way"),
        ({"time_s": "1", "box": "-50,-50,20,20"}, "needs 2 pixels either way"),
        ({"time_s": "1", "box": "10,10,1,30"}, "needs 2 pixels either way"),
        ({"time_s": "1", "box": "10,10,-5,30"}, "x1 <= x2"),
        ({"time_s": "1", "box": "10,10,nan,30"}, "finite"),
        ({"time_s": "1", "box": "10,10,30"}, "x,y,w,h"),
        ({"time_s": "1"}, "Say what to look for"),
        ({"box": "10,10,30,30"}, "Say what to look for"),
        ({}, "Say what to look for"),
        ({"time_s": "99", "box": "10,10,30,30"}, "must lie between 0 and 4.000 s"),
        ({"time_s": "-1", "box": "10,10,30,30"}, "time_s.0: Input should be greater than or equal to 0"),
        ({"time_s": "nan", "box": "10,10,30,30"}, "time_s.0: "),
        ({"time_s": "soon", "box": "10,10,30,30"}, "time_s.0: "),
        ({"time_s": ["1", "2"], "box": "10,10,30,30"}, "a box for each of the 2 views, images first, got 1"),
        ({"time_s": ["1"] * 17, "box": ["10,10,30,30"] * 17}, "at most 16 views"),
        ({"time_s": "1", "box": ""}, "Say what to look for"),
        ({"time_s": "1", "box": "10,10,30,30", "until_s": "-inf"}, "until_s: "),
        ({"time_s": "1", "box": "10,10,30,30", "in_3d": "maybe"}, "in_3d: "),
    ],
)
def test_queries_nobody_can_answer(
    client: TestClient, video_id: str, form: dict[str, Any], words: str
) -> None:
    error = refusal(client.post(f"/videos/{video_id}/queries", data=form), 422)
    assert words in error
    assert "/page/" not in error


def test_an_image_that_is_none(client: TestClient, video_id: str) -> None:
    response = client.post(f"/videos/{video_id}/queries", files={"image": ("crop.png", b"not an image")})
    assert (
        refusal(response, 422) == "The file is not an image that can be read. Give a PNG, JPEG or WebP file."
    )


@pytest.mark.parametrize("time_s", ["5", "-1", "nan", "inf", "x", ""])
def test_frames_of_no_time(client: TestClient, video_id: str, time_s: str) -> None:
    refusal(client.get(f"/videos/{video_id}/frame", params={"time_s": time_s}), 422)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8300"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "127.0.0.1:8300"}, 200),
        ({"Host": "[::1]:8300"}, 200),
        ({"Host": "192.168.1.7"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:9999"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:8300"}, 200),
    ],
)
def test_only_this_server_and_its_own_page(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.get("/about", headers=headers).status_code == status


def test_a_name_given_at_the_start_is_ours(serve: Callable[..., Any]) -> None:
    with serve(host="workshop.lan") as own:
        assert own.get("/about", headers={"Host": "workshop.lan:8300"}).status_code == 200


def test_every_answer_carries_the_safe_headers(client: TestClient) -> None:
    for path in ("/", "/about", "/nothing", "/static/page.js"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]


def test_a_video_that_ends_early_is_taken_with_a_warning(serve: Callable[..., Any], tmp_path: Path) -> None:
    data = write_clip(tmp_path / "fast.mp4", faststart=True).read_bytes()
    with serve() as own:
        entry = send(own, data[: int(len(data) * 0.8)]).json()
    assert entry["num_frames"] < 40
    assert entry["warning"].startswith("The file ends early")


def test_an_image_size_beyond_all_measure(
    monkeypatch: pytest.MonkeyPatch, clip: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(media, "MAX_PIXELS", 100)
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    with pytest.raises(Exception, match="160x120; at most"):
        media.inspect_video(None, no_progress, clip)
    write_image(tmp_path / "big.png", np.zeros((20, 20, 3), np.uint8))
    source = QuerySource(clip, tmp_path / "big.png", None, None)
    with pytest.raises(Exception, match="too many pixels"):
        media.prepare_query(None, no_progress, tmp_path, [source])


def test_the_type_check_survives_a_death(
    client: TestClient, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "inspect_video", die)
    assert "died (code 9)" in refusal(send(client, clip.read_bytes()), 422)


def die(tool: None, progress: Any, path: Path) -> None:
    os._exit(9)
