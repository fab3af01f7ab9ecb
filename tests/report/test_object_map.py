"""The map of objects: one world, the last known places, and a page that shows them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.errors import DataError
from egohieraloc.geometry.camera import CameraPose
from egohieraloc.report.map_page import map_scene, write_map_page
from egohieraloc.report.object_map import object_map
from egohieraloc.types import NotFound, NotLocalized
from made_up import HOSTILE, cameras, place, result


def moved(by: float):
    return replace(result(), place=replace(place(), point_world=place().point_world + by))


def shifted_world():
    frames = tuple(
        replace(frame, pose=CameraPose.from_rotation(frame.pose.rotation, frame.pose.translation + 1))
        for frame in cameras().frames
    )
    return replace(result(), cameras=cameras(frames=frames))


def test_objects_of_one_video_share_a_map():
    lost = replace(result(), track=NotFound("never seen"), place=None)
    dark = replace(result(), place=NotLocalized("too dark"))
    mapped = object_map({"keys": result(), "bag": moved(0.5), "hat": lost, "shoe": dark})
    assert [each.name for each in mapped.objects] == ["keys", "bag"]
    np.testing.assert_allclose(mapped.objects[1].point_world - mapped.objects[0].point_world, 0.5)
    assert mapped.objects[0].last_seen_s == pytest.approx(2.0)
    assert mapped.objects[0].confidence == pytest.approx(0.87)
    assert dict(mapped.without_place) == {"hat": "not found", "shoe": "too dark"}


def test_worlds_are_not_mixed():
    for other in (
        shifted_world(),
        replace(result(), cameras=cameras(unit="sfm")),
        replace(
            result(), video=replace(result().video, source=replace(result().video.source, path="/b.mp4"))
        ),
    ):
        with pytest.raises(DataError, match="different camera paths"):
            object_map({"keys": result(), "bag": other})
    with pytest.raises(DataError, match="no map"):
        object_map({"keys": replace(result(), place=NotLocalized("too dark"))})


def test_the_scene_is_level_and_around_the_path():
    scene = map_scene(object_map({"keys": result(), "bag": moved(0.5)}))
    keys, bag = scene.objects
    np.testing.assert_allclose(np.subtract(bag.point, keys.point)[2], 0.5, atol=1e-5)  # z stays up
    np.testing.assert_allclose(np.mean(scene.path, axis=0), 0, atol=1e-5)
    assert keys.point[2] == pytest.approx(0.9 - 1.6, abs=1e-5)
    assert keys.deviation == pytest.approx(np.linalg.norm(keys.axes, axis=1).max(), abs=1e-4)


def test_the_page_shows_every_object(browser, tmp_path):
    write_map_page(tmp_path / "map.html", object_map({HOSTILE: result(), "bag": moved(0.5)}))
    trouble = []
    page = browser.new_context(offline=True, viewport={"width": 1200, "height": 800}).new_page()
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto((tmp_path / "map.html").as_uri())
    page.wait_for_timeout(150)
    assert page.inner_text("h1") == "2 objects on the map"
    rows = page.locator("#objects tr").all_inner_texts()
    assert rows[0].startswith(HOSTILE)
    assert "0:02.0" in rows[1]
    drawn = page.evaluate(
        "() => { const c = document.getElementById('scene');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 0; i < d.length; i += 4)"
        "  n += d[i] === 0xb4 && d[i + 1] === 0x53 && d[i + 2] === 9; return n; }"
    )
    assert drawn > 30  # the second object's own colour
    assert not trouble
    page.context.close()


def test_the_command_draws_a_map(tmp_path):
    result().save(tmp_path / "keys")
    moved(0.5).save(tmp_path / "bag")
    words = ["map", str(tmp_path / "keys"), str(tmp_path / "bag"), "--out", str(tmp_path / "map")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "bag: 1.00, 2.50, 1.40 m" in done.output
    assert sorted(path.name for path in (tmp_path / "map").iterdir()) == ["map.html", "map.json", "map.ply"]
    stored = json.loads((tmp_path / "map" / "map.json").read_text())
    assert [each["name"] for each in stored["objects"]] == ["keys", "bag"]
    assert CliRunner().invoke(app, [*words, "--name", "one"]).exit_code != 0
