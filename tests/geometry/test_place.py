from dataclasses import replace

import numpy as np
import pytest

from egohieraloc.config import FusionConfig, PlaceConfig
from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.place import describe, last_appearance, place
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.types import Box, DepthMap, DepthUnit, FramePrediction, Localization3D, NotLocalized

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
FLAT = PlaceConfig(fusion=FusionConfig(thickness_share=0.0))
TARGET = np.array([0.2, 0.1, 4.0])


def pose_at(x: float) -> CameraPose:
    return CameraPose(np.column_stack([np.eye(3), [-x, 0, 0]]))


def walk(count: int = 10, unposed: tuple[int, ...] = (), unit: str = "m") -> Reconstruction:
    frames = tuple(PosedFrame(6 * i, i / 5, None if i in unposed else pose_at(0.2 * i)) for i in range(count))
    return Reconstruction(CAMERA, frames, unit)


def track(samples: range, target: np.ndarray = TARGET) -> list[FramePrediction]:
    found = []
    for i in samples:
        x, y = CAMERA.project(pose_at(0.2 * i).to_cam(target))[0]
        found.append(FramePrediction(6 * i, i, i / 5, 0.9, Box(x - 20, y - 20, x + 20, y + 20)))
    return found


def depth_maps(samples: range, value: float = 4.0, unit: DepthUnit = DepthUnit.METRIC) -> dict[int, DepthMap]:
    return {6 * i: DepthMap(np.full((12, 16), value, np.float32), unit) for i in samples}


def located(answer: object) -> Localization3D:
    assert isinstance(answer, Localization3D), answer
    return answer


def test_the_answer_is_seen_from_the_query_camera():
    answer = located(
        place(track(range(6)), walk(), query_time_s=1.8, depth=depth_maps(range(6)), config=FLAT)
    )
    np.testing.assert_allclose(answer.point_world, TARGET, atol=1e-6)
    np.testing.assert_allclose(answer.displacement, TARGET - [1.8, 0, 0], atol=1e-6)
    assert (answer.query_frame, answer.unit, answer.posed_frames, answer.num_frames) == (54, "m", 10, 10)
    assert [view.frame_index for view in answer.views] == [0, 6, 12, 18, 24, 30]
    assert answer.distance == pytest.approx(np.linalg.norm(answer.displacement))


def test_rays_alone_do_when_there_is_no_depth():
    answer = located(place(track(range(6)), walk(), query_time_s=0.0))
    np.testing.assert_allclose(answer.point_world, TARGET, atol=1e-6)


def test_views_without_pose_are_skipped_and_counted():
    answer = located(place(track(range(6)), walk(unposed=(1, 2, 9)), query_time_s=0.0))
    assert [view.frame_index for view in answer.views] == [0, 18, 24, 30]
    assert (answer.posed_frames, answer.num_frames) == (7, 10)
    np.testing.assert_allclose(answer.point_world, TARGET, atol=1e-6)


def test_a_query_frame_without_pose_takes_the_nearest_posed_moment():
    world = walk(40, unposed=tuple(range(10, 40)))
    answer = located(place(track(range(6)), world, query_time_s=7.8))
    assert answer.query_frame == 54  # 1.8 s
    assert answer.doubts == ("only 10 of the 40 frames since then have a camera pose",)
    assert located(place(track(range(6)), walk(), query_time_s=1.8)).doubts == ()


def test_without_borrowing_the_query_frame_needs_a_pose_of_its_own():
    alone = replace(FLAT, max_pose_gap_s=0.0)
    world = walk(20, unposed=tuple(range(10, 20)))
    assert isinstance(place(track(range(6)), world, query_time_s=2.0, config=alone), NotLocalized)
    shown = located(place(track(range(6)), world, query_time_s=1.85, config=alone))
    assert shown.query_frame == 54  # the frame that is shown at that time, not another one


def test_a_track_without_any_pose_borrows_one_nearby_in_time():
    world = walk(20, unposed=tuple(range(8, 20)))
    answer = located(place(track(range(9, 12)), world, query_time_s=0.0, depth=depth_maps(range(9, 12))))
    assert [view.frame_index for view in answer.views] == [54]
    assert answer.views[0].semantic == pytest.approx(0.45)
    assert np.linalg.norm(answer.point_world - TARGET) < 0.5
    far = place(track(range(18, 20)), world, query_time_s=0.0, depth=depth_maps(range(18, 20)))
    assert isinstance(far, NotLocalized)
    assert "no frame that shows the object" in far.reason


@pytest.mark.parametrize(
    ("predictions", "world", "words"),
    [
        ([], walk(), "not found"),
        (track(range(3)), walk(unposed=tuple(range(10))), "no frame up to the query time has a camera pose"),
        (track(range(1)), walk(), "distance cannot be told"),
    ],
)
def test_misses_are_values_with_a_reason(predictions, world, words):
    answer = place(predictions, world, query_time_s=0.0)
    assert isinstance(answer, NotLocalized)
    assert words in answer.reason
    assert answer.num_frames == 10


def test_only_the_last_appearance_counts():
    moved = TARGET + np.array([1.0, 0, 0])
    both = track(range(4)) + track(range(5, 10), moved)
    np.testing.assert_allclose(located(place(both, walk(), query_time_s=0.0)).point_world, moved, atol=1e-6)
    assert [p.sample for p in last_appearance(both[::-1])] == [5, 6, 7, 8, 9]
    assert len(last_appearance(both[:1])) == 1


def test_centres_the_lens_cannot_see_are_left_out():
    folding = Camera("SIMPLE_RADIAL", 640, 480, (300.0, 320.0, 240.0, -0.4))  # its rays end 183 px off
    world = Reconstruction(folding, walk().frames, "m")
    outside = FramePrediction(0, 0, 0.0, 0.9, Box(600, 0, 640, 40))
    answer = place([outside], world, query_time_s=0.0, depth=depth_maps(range(1)))
    assert isinstance(answer, NotLocalized)
    wide = Camera("SIMPLE_RADIAL_FISHEYE", 640, 480, (150.0, 320.0, 240.0, 0.0))
    aside = [replace(outside, frame_index=6 * i, sample=i) for i in range(2)]  # 113 degrees off the axis
    answer = place(
        aside, Reconstruction(wide, walk().frames, "m"), query_time_s=0.0, depth=depth_maps(range(2))
    )
    assert isinstance(answer, NotLocalized)
    assert "distance cannot be told" in answer.reason


def test_an_object_in_the_dark_corner_has_no_place():
    outside = [FramePrediction(6 * i, i, float(i), 0.9, Box(600, 0, 640, 40)) for i in range(2)]
    asked = {"query_time_s": 0.0, "depth": depth_maps(range(2))}
    assert isinstance(place(outside, walk(), **asked), Localization3D)
    dark = replace(walk(), camera=replace(CAMERA, valid_radius_px=300.0))
    answer = place(outside, dark, **asked)
    assert isinstance(answer, NotLocalized)
    assert "only at the rim of the image" in answer.reason


def test_units_must_agree():
    predictions = track(range(3))
    with pytest.raises(GeometryError, match="scale_by_depth"):
        place(predictions, walk(unit="sfm"), query_time_s=0.0, depth=depth_maps(range(3)))
    with pytest.raises(GeometryError, match="fit_to_points"):
        place(predictions, walk(), query_time_s=0.0, depth=depth_maps(range(3), unit=DepthUnit.RELATIVE))
    answer = place(
        predictions, walk(unit="sfm"), query_time_s=0.0, depth=depth_maps(range(3), unit=DepthUnit.SFM)
    )
    assert located(answer).unit == "sfm"


def test_settings_reach_the_fusion():
    config = PlaceConfig(fusion=FusionConfig(literal=True))
    answer = place(track(range(6)), walk(), query_time_s=0.0, depth=depth_maps(range(6), 5.0), config=config)
    assert located(answer).point_world[2] == pytest.approx(
        5.0, abs=1e-3
    )  # the paper's form follows the depth


@pytest.mark.parametrize(
    ("displacement", "words"),
    [
        ((0, 0, 2), "2.0 m (± 2.8 m), in front of you"),
        ((-1.2, 0.8, 1.1), "1.8 m (± 2.8 m), to your left and below"),
        ((1, 0, 0.05), "1.0 m (± 2.8 m), to your right"),
        ((0.1, -0.9, 1.7), "1.9 m (± 2.8 m), in front of you and above"),
        ((0, 0.1, -3), "3.0 m (± 2.8 m), behind you"),
        ((1, 1, -1), "1.7 m (± 2.8 m), behind you, to your right and below"),
        ((0, 1, 0), "1.0 m (± 2.8 m), below"),
    ],
)
def test_plain_words(displacement, words):
    answer = Localization3D(np.zeros(3), np.array(displacement, float), np.eye(3), "m", 1, 1, 0)
    assert describe(answer) == words
    far, where = words.split(" m (± 2.8 m), ")
    told = f"{where}, {far} units away (± 2.8 units; no scale is known)"
    assert describe(replace(answer, unit="sfm")) == told


def test_distance_from_a_single_view_with_depth():
    answer = located(
        place(track(range(1)), walk(), query_time_s=0.0, depth=depth_maps(range(1)), config=FLAT)
    )
    np.testing.assert_allclose(answer.point_world, TARGET, atol=1e-6)
    assert answer.covariance[2, 2] > answer.covariance[0, 0]
