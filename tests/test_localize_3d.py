"""From a track to a place: what the Localizer does with poses, depth and references. The track is told."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import pytest

from egohieraloc import Box, Localizer, LocalizerConfig, Query, demo
from egohieraloc import localize as module
from egohieraloc.cli.demo import DEMO_SETTINGS, compare_place
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.geometry.reference import KnownPositions, PosedImages
from egohieraloc.geometry.sfm_process import Anchor, reconstruct
from egohieraloc.localize import SpaceSources
from egohieraloc.poses import camera_poses
from egohieraloc.result import Result
from egohieraloc.settings import override
from egohieraloc.types import (
    DepthMap,
    DepthUnit,
    FramePrediction,
    Localization3D,
    NotFound,
    NotLocalized,
    ResponseTrack,
    ScoreCurve,
)
from egohieraloc.video.reader import Video

CAMERA = Camera("PINHOLE", 64, 48, (60.0, 60.0, 32.0, 24.0))
TARGET = np.array([0.3, 0.1, 3.0])
QUERY = Query.from_image(np.zeros((9, 9, 3), np.uint8))


def path(scale: float = 1.0, unit: str = "sfm") -> Reconstruction:
    """Ten cameras side by side, and points on a wall three metres away."""
    centers = scale * np.array([[0.1 * i, 0.02 * i**2, 0.0] for i in range(10)])
    frames = tuple(
        PosedFrame(i, i / 5, CameraPose.from_rotation(np.eye(3), -c)) for i, c in enumerate(centers)
    )
    x, y = np.meshgrid(np.linspace(-0.8, 1.0, 8), np.linspace(-0.6, 0.9, 8))
    points = scale * np.column_stack([x.ravel(), y.ravel(), np.full(64, 3.0)])
    seen = [CAMERA.project(frame.pose.to_cam(points)) for frame in frames]
    rows = [(frame.index, j) for frame in frames for j in range(64)]
    frame, point = np.array(rows).T
    return Reconstruction(CAMERA, frames, unit, SparsePoints(points, frame, point, np.concatenate(seen)))


def predictions(samples: Sequence[int]) -> tuple[FramePrediction, ...]:
    poses, found = path().poses, []
    for i in samples:
        x, y = CAMERA.project(poses[i].to_cam(TARGET))[0]
        found.append(FramePrediction(i, i, i / 5, 0.9, Box(x - 3, y - 3, x + 3, y + 3)))
    return tuple(found)


class Told(Localizer):
    """Knows the track already."""

    def __init__(self, track: ResponseTrack | NotFound, cache) -> None:
        self.track_, self.cache = track, cache
        self.config = override(LocalizerConfig(), ["place.fusion.thickness_share=0"])

    def _seen_last(self, query, video, until_s, progress):
        sampled = video.sampled()
        time_s = sampled.time_s
        return Result(query, sampled, self.track_, ScoreCurve(time_s, time_s, time_s, 0.5))


@pytest.fixture
def video(tmp_path) -> Video:
    folder = tmp_path / "clip"
    folder.mkdir()
    for i in range(10):
        cv2.imwrite(str(folder / f"{i}.png"), np.zeros((48, 64, 3), np.uint8))
    return Video.open(folder)


@pytest.fixture
def told(tmp_path) -> Told:
    return Told(ResponseTrack(predictions(range(2, 7)), 0.9), tmp_path)


def wall(unit: DepthUnit, value: float):
    asked: list[int] = []

    def maps(indices: Sequence[int]) -> dict[int, DepthMap]:
        asked.extend(indices)
        return {i: DepthMap(np.full((12, 16), value, np.float32), unit) for i in indices}

    return maps, asked


def test_poses_alone_give_a_place_in_their_own_unit(told, video):
    result = told.locate(QUERY, video, in_3d=True, space=SpaceSources(cameras=path(0.5)))
    assert isinstance(result.place, Localization3D)
    assert result.place.unit == "sfm"
    np.testing.assert_allclose(result.place.point_world, 0.5 * TARGET, atol=0.02)


def test_metric_depth_of_the_frames_that_show_it_makes_the_path_metric(told, video):
    maps, asked = wall(DepthUnit.METRIC, 3.0)
    result = told.locate(QUERY, video, in_3d=True, space=SpaceSources(cameras=path(0.5), depth=maps))
    assert asked == [2, 3, 4, 5, 6]
    assert (result.place.unit, result.cameras.unit) == ("m", "m")
    np.testing.assert_allclose(result.place.point_world, TARGET, atol=0.02)
    assert result.place.query_frame == 9


def test_a_reference_makes_the_path_metric(told, video):
    truth = {i: pose.center_world for i, pose in path().poses.items()}
    result = told.locate(
        QUERY, video, in_3d=True, space=SpaceSources(cameras=path(0.5), reference=KnownPositions(truth))
    )
    assert result.cameras.unit == "m"
    np.testing.assert_allclose(result.place.point_world, TARGET, atol=0.02)


def test_depth_is_not_asked_for_when_nothing_was_found(tmp_path, video):
    maps, asked = wall(DepthUnit.METRIC, 3.0)
    result = Told(NotFound("gone"), tmp_path).locate(
        QUERY, video, in_3d=True, space=SpaceSources(cameras=path(), depth=maps)
    )
    assert isinstance(result.place, NotLocalized)
    assert asked == []


def test_an_answer_is_placed_later_from_what_it_says_itself(told, video, tmp_path):
    """As after a live session, or from a saved answer."""
    result = Result.load(told.locate(QUERY, video).save(tmp_path / "answer"))
    assert result.place is None
    placed = told.place(result, SpaceSources(cameras=path(unit="m")))
    np.testing.assert_allclose(placed.place.point_world, TARGET, atol=0.02)
    assert [name for name, _ in placed.timings_s][-1] == "place in space"


def test_posed_images_go_into_the_map(told, video, monkeypatch):
    anchors = tuple(Anchor(np.full((4, 4, 3), i, np.uint8), CAMERA, np.zeros(3)) for i in range(5))
    heard = []

    def made(*arguments, anchors, progress):
        heard.append(anchors)
        return path(unit="m")

    monkeypatch.setattr(module, "camera_poses", made)
    told.locate(QUERY, video, in_3d=True, space=SpaceSources(reference=PosedImages(anchors)))
    told.locate(QUERY, video, in_3d=True)
    assert heard == [anchors, ()]


def test_the_video_is_opened_once(told, video, monkeypatch):
    result, opened, reopen = told.locate(QUERY, video), [], Video.reopen
    monkeypatch.setattr(Video, "reopen", lambda source: opened.append(source) or reopen(source))
    monkeypatch.setattr(module, "camera_poses", lambda *_, **__: path(unit="m"))
    told.place(result)
    assert len(opened) == 1


def test_other_anchors_other_samples_and_other_settings_are_other_poses(told, video, monkeypatch, tmp_path):
    keys = []
    monkeypatch.setattr("egohieraloc.poses.reconstruct", lambda frames, path, **k: keys.append(path))
    encoded, few = np.arange(10), np.arange(5)
    anchor = Anchor(np.zeros((4, 4, 3), np.uint8), CAMERA, np.zeros(3))
    moved = Anchor(anchor.rgb, CAMERA, np.ones(3))
    sfm = told.config.sfm
    other = override(LocalizerConfig(), ["sfm.overlap=3"]).sfm
    for samples, config, anchors in (
        (encoded, sfm, ()),
        (few, sfm, ()),
        (encoded, other, ()),
        (encoded, sfm, (anchor,)),
        (encoded, sfm, (moved,)),
    ):
        for _ in range(2):
            camera_poses(video, samples, tmp_path, config, anchors=anchors)
    assert keys[::2] == keys[1::2]
    assert len(set(keys)) == 5


@pytest.mark.slow
def test_the_demo_walk_is_posed_and_its_object_is_placed(tmp_path):
    """Must show: 95 % posed, place within 3 % of its distance, direction within 2 degrees."""
    truth = demo.load_truth()
    config = override(LocalizerConfig(), DEMO_SETTINGS).sfm
    found = reconstruct(Video.open(demo.CLIP).samples(5), tmp_path / "demo.npz", config=config)
    assert isinstance(found, Reconstruction), found
    assert found.num_posed >= 0.95 * len(truth.sample_frames)
    first, last = truth.appearances[-1]
    track = [
        FramePrediction(truth.sample_frames[k], k, k / truth.sample_fps, 1.0, truth.boxes[k])
        for k in range(first, last + 1)
    ]
    answer = place(track, found, query_time_s=found.frames[-1].time_s)
    assert isinstance(answer, Localization3D), answer
    off = compare_place(answer, found, truth)
    assert off.error_m < 0.03 * off.distance_m, off
    assert off.angle_deg < 2, off
