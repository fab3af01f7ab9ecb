"""What `locate --3d` hands to the localizer, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from egohieraloc.cli import app, common
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, write_cameras
from egohieraloc.geometry.reference import CameraHeight, KnownLength, KnownPositions, PosedImages
from egohieraloc.localize import SpaceSources
from egohieraloc.models.depth import DepthNetwork
from egohieraloc.types import DepthMap, DepthUnit


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    folder = tmp_path / "clip"
    folder.mkdir()
    for i in range(6):
        cv2.imwrite(str(folder / f"shot{i}.png"), np.full((48, 64, 3), 40 * i, np.uint8))
    camera = Camera("PINHOLE", 64, 48, (60.0, 60.0, 32.0, 24.0))
    frames = tuple(PosedFrame(i, i / 5, CameraPose(np.eye(3, 4))) for i in range(6))
    write_cameras(tmp_path / "cameras.json", Reconstruction(camera, frames, "m"))
    return folder


@pytest.fixture
def asked(monkeypatch) -> SimpleNamespace:
    """Stands in for the localizer and keeps what it was asked."""
    seen = SimpleNamespace()

    def answer(query, video, **options):
        vars(seen).update(options, video=video)
        return SimpleNamespace(summary="Last seen.", found=True)

    monkeypatch.setattr(common, "build_localizer", lambda *_, **__: SimpleNamespace(locate=answer))
    return seen


def run(clip: Path, *words: object, in_3d: bool = True):
    mode = ["--3d"] if in_3d else []
    command = ["locate", str(clip), "--at", "0.2", "--box", "5,5,20,20", *mode, *map(str, words)]
    return CliRunner().invoke(app, command)


def test_nothing_is_made_up(clip, asked):
    assert run(clip).exit_code == 0
    assert (asked.in_3d, asked.space) == (True, SpaceSources())


def test_each_reference_arrives(clip, asked, tmp_path):
    (tmp_path / "positions.txt").write_text("shot3.png 1 2 3\n")
    run(clip, "--positions", tmp_path / "positions.txt")
    assert isinstance(asked.space.reference, KnownPositions)
    assert list(asked.space.reference.center_by_frame) == [3]
    run(clip, "--known-length", "0.4,10,10,30,10,0.5")
    assert asked.space.reference == KnownLength(0.4, (10, 10), (30, 10), 0.5)
    run(clip, "--camera-height", "1.6")
    assert asked.space.reference == CameraHeight(1.6)
    renders = tmp_path / "renders"
    renders.mkdir()
    (tmp_path / "cameras.json").rename(renders / "cameras.json")
    for i in range(5):
        cv2.imwrite(str(renders / f"{i}.png"), np.zeros((48, 64, 3), np.uint8))
    run(clip, "--posed-images", renders)
    assert isinstance(asked.space.reference, PosedImages)
    assert len(asked.space.reference.anchors) == 5
    done = run(clip, "--posed-images", renders, "--cameras", renders / "cameras.json")
    assert done.exit_code == 2
    assert "brings none" in done.output


def test_poses_and_depth_arrive(clip, asked, tmp_path):
    maps = tmp_path / "maps"
    maps.mkdir()
    cv2.imwrite(str(maps / "2.png"), np.full((6, 8), 1500, np.uint16))
    run(clip, "--cameras", tmp_path / "cameras.json", "--depth", maps)
    assert asked.space.cameras.num_posed == 6
    found = asked.space.depth([1, 2])
    assert list(found) == [2]
    np.testing.assert_allclose(found[2].values, 1.5)


def test_a_depth_network_sees_the_frames_that_are_asked_for(clip, asked, monkeypatch):
    def load(name, *, device):
        assert (name, device) == ("some/model", "cpu")
        relative = DepthMap(np.ones((6, 8), np.float32), DepthUnit.RELATIVE)
        return SimpleNamespace(predict=lambda frames: ((frame.index, relative) for frame in frames))

    monkeypatch.setattr(DepthNetwork, "from_pretrained", load)
    run(clip, "--depth-model", "some/model")
    assert list(asked.space.depth([4, 1])) == [1, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--camera-height", "1.6", "--known-length", "0,1,1,2,2,1"), "Give one of --positions"),
        (("--depth", ".", "--depth-model", "x"), "not both"),
    ],
)
def test_contradictions_are_refused(clip, asked, words, message):
    done = run(clip, *words)
    assert done.exit_code == 2
    assert message in done.output


def test_options_of_3d_without_3d_are_refused(clip, asked):
    done = run(clip, "--camera-height", "1.6", in_3d=False)
    assert done.exit_code == 2
    assert "need --3d" in done.output
    assert run(clip, in_3d=False).exit_code == 0


def test_mistakes_in_a_reference_are_told_before_anything_is_computed(clip, asked):
    done = run(clip, "--known-length", "far")
    assert isinstance(done.exception, GeometryError)
    assert not vars(asked)
