"""The bundled clip: what ships is there, small, and agrees with itself."""

from __future__ import annotations

import av
import cv2
import numpy as np
import pytest

from egohieraloc import demo
from egohieraloc.demo import DemoTruth


@pytest.fixture(scope="module")
def truth() -> DemoTruth:
    return demo.load_truth()


def project(truth: DemoTruth, frame: int) -> tuple[float, float, float]:
    """Pixel and depth of the target's middle."""
    pose = truth.cam_from_world[frame]
    x, y, z = pose[:, :3] @ truth.target_center_world + pose[:, 3]
    return truth.focal_px * x / z + truth.width / 2, truth.focal_px * y / z + truth.height / 2, z


def test_ships_everything_within_four_megabytes() -> None:
    names = {path.name for path in demo.FOLDER.iterdir() if path.is_file()}
    assert {"walk.mp4", "query.jpg", "truth.json", "ATTRIBUTION.md"} <= names
    assert sum(path.stat().st_size for path in demo.FOLDER.iterdir() if path.is_file()) <= 4_000_000
    assert "CC0" in (demo.FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")


def test_clip_is_what_the_truth_says(truth: DemoTruth) -> None:
    with av.open(str(demo.CLIP)) as file:
        stream = file.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height) == (truth.width, truth.height)
        times = [
            float(packet.pts * packet.time_base) for packet in file.demux(stream) if packet.pts is not None
        ]
    assert len(times) == len(truth.cam_from_world)
    np.testing.assert_allclose(sorted(times), np.arange(len(times)) / 15, atol=1e-3)
    assert 30 <= len(times) / 15 <= 45
    assert np.diff(truth.sample_frames).tolist() == [3] * (len(truth.sample_frames) - 1)
    assert len(truth.boxes) == len(truth.sample_frames) == len(truth.visible)


def test_poses_are_rigid_and_a_person_could_walk_them(truth: DemoTruth) -> None:
    rotations = truth.cam_from_world[:, :, :3]
    np.testing.assert_allclose(
        rotations @ rotations.transpose(0, 2, 1), np.eye(3)[None].repeat(len(rotations), 0), atol=1e-5
    )
    np.testing.assert_allclose(np.linalg.det(rotations), 1, atol=1e-5)
    centers = -np.einsum("nji,nj->ni", rotations, truth.cam_from_world[:, :, 3])
    assert np.all((centers[:, 2] > 1.4) & (centers[:, 2] < 1.75))
    assert np.linalg.norm(np.diff(centers, axis=0), axis=1).max() * 15 < 1.5  # m/s
    turns = np.einsum("nij,nij->n", rotations[1:], rotations[:-1])
    assert np.degrees(np.arccos(np.clip((turns - 1) / 2, -1, 1))).max() * 15 < 90  # degrees per second


def test_middle_lies_in_the_box_when_the_target_is_in_full_sight(truth: DemoTruth) -> None:
    checked = 0
    for frame, box, visible in zip(truth.sample_frames, truth.boxes, truth.visible, strict=True):
        if box is None or visible < 0.95:
            continue
        x, y, depth = project(truth, frame)
        assert box.x1 < x < box.x2
        assert box.y1 < y < box.y2
        side = truth.focal_px * truth.target_size_world.max() / depth
        assert 0.6 * side < max(box.width, box.height) < 1.6 * side  # tight
        checked += 1
    assert checked >= 15


def test_without_a_box_the_target_is_out_of_the_image_or_hidden(truth: DemoTruth) -> None:
    for box, visible in zip(truth.boxes, truth.visible, strict=True):
        assert (box is None) == (visible == 0)
        if box is not None:
            assert box == box.clipped(truth.width, truth.height)
            assert visible <= 1.02


def test_seen_left_seen_again_and_left_well_before_the_end(truth: DemoTruth) -> None:
    appearances = truth.appearances
    long = [(a, b) for a, b in appearances if b - a >= 9]
    assert len(long) >= 2
    assert appearances[0][0] > 0
    assert appearances[-1] == long[-1]
    assert (len(truth.boxes) - 1 - appearances[-1][1]) / truth.sample_fps >= 5
    gap_s = (long[-1][0] - long[-2][1]) / truth.sample_fps
    assert gap_s >= 5


def test_query_is_an_image_with_the_target_inside(truth: DemoTruth) -> None:
    image = cv2.imread(str(demo.QUERY))
    height, width = image.shape[:2]
    assert truth.query_box == truth.query_box.clipped(width, height)
    assert 0.05 < truth.query_box.area / (width * height) < 0.8
