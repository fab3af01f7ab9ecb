from dataclasses import replace

import numpy as np
import pytest

from egohieraloc.config import FusionConfig, PlaceConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.gsjc import weighted_median
from egohieraloc.geometry.lift import (
    ObjectPoints,
    lift,
    object_points,
    region_of,
    semantic_score,
)
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints
from egohieraloc.types import Box, DepthMap, DepthUnit, FramePrediction, MaskConfidence

CAMERA = Camera("PINHOLE", 64, 48, (50.0, 50.0, 32.0, 24.0))
POSE = CameraPose(np.eye(3, 4))
BOX = Box(16, 8, 32, 24)
LITERAL = PlaceConfig(fusion=FusionConfig(literal=True))
DEFAULT = PlaceConfig()


def prediction(**values: object) -> FramePrediction:
    return FramePrediction(
        **{"frame_index": 0, "sample": 0, "time_s": 0.0, "score": 0.8, "box": BOX} | values
    )


def masked(mask: np.ndarray, **values: object) -> FramePrediction:
    return prediction(mask=mask, mask_box=BOX, **values)


def test_weighted_median():
    values = np.array([5.0, 1, 3])
    assert weighted_median(values, np.ones(3)) == 3
    assert weighted_median(values, np.array([10.0, 1, 1])) == 5
    assert weighted_median(np.array([1.0, 2]), np.ones(2)) == 1.5
    assert weighted_median(np.array([7.0]), np.array([0.2])) == 7


def test_semantic_score_is_the_mean_of_three_statistics():
    """The mask begins at 0.3, apart from the threshold of P_thr: cut at 0.5 both would be one number."""
    mask = np.array([[True, True], [False, False]])
    probability = np.array([[0.9, 0.6], [0.45, 0.3]], np.float32)
    view = masked(mask, mask_prob=probability)
    assert semantic_score(view, FusionConfig()) == pytest.approx((0.65 + 0.75 + 0.9) / 3)
    at_half = FusionConfig(mask_threshold=0.5)
    assert semantic_score(view, at_half) == pytest.approx((0.75 + 0.75 + 0.9) / 3)
    only_max = FusionConfig(semantic_average=False, semantic_threshold=False)
    assert semantic_score(view, only_max) == pytest.approx(0.9)
    nothing = FusionConfig(semantic_average=False, semantic_threshold=False, semantic_maximum=False)
    assert semantic_score(view, nothing) == 1
    low = masked(mask, mask_prob=np.full((2, 2), 0.4, np.float32))
    assert semantic_score(low, FusionConfig()) == pytest.approx((0.4 + 0 + 0.4) / 3)
    assert semantic_score(prediction(), FusionConfig()) == pytest.approx(
        0.8
    )  # no pixels: the frame's own score
    assert semantic_score(masked(mask, mask_prob=probability / 10), FusionConfig()) == pytest.approx(0.8)
    kept = prediction(confidence=MaskConfidence(0.2, 0.4, 0.9))
    assert semantic_score(kept, FusionConfig()) == pytest.approx(0.5)
    assert semantic_score(kept, only_max) == 0.9


def test_mask_pixels_land_in_the_frame_without_their_rim():
    mask = np.zeros((8, 8), bool)
    mask[2:5, 3:6] = True
    whole = region_of(masked(mask), CAMERA, literal=True)
    assert whole.pixels.min(0) == pytest.approx([16 + 3.5 * 2, 8 + 2.5 * 2])
    assert len(whole.pixels) == 9
    core = region_of(masked(mask), CAMERA, literal=False)
    np.testing.assert_allclose(core.pixels, [[16 + 4.5 * 2, 8 + 3.5 * 2]])
    thin = np.zeros((8, 8), bool)
    thin[4, 2:6] = True
    assert len(region_of(masked(thin), CAMERA, literal=False).pixels) == 4  # nothing would be left


def test_without_mask_the_middle_of_the_box_counts():
    pixels = region_of(prediction(), CAMERA, literal=False).pixels
    assert pixels.min(0) == pytest.approx([20, 12], abs=0.5)
    assert pixels.max(0) == pytest.approx([28, 20], abs=0.5)
    assert pixels.mean(0) == pytest.approx(BOX.center)
    outside = region_of(prediction(box=Box(-20, 8, 10, 24)), CAMERA, literal=True).pixels
    assert outside[:, 0].min() > 0


def test_depth_of_the_object_not_of_the_rim():
    """An object at 2 before a wall at 9, its mask one cell too wide: the mean mixes, the median does not."""
    depth = np.full((48, 64), 9.0, np.float32)
    depth[10:22, 18:30] = 2.0
    depth_map = DepthMap(depth, DepthUnit.METRIC)
    view = masked(np.ones((8, 8), bool), mask_prob=np.ones((8, 8), np.float32))
    fixed = lift(view, CAMERA, POSE, DEFAULT, depth_map=depth_map)
    literal = lift(view, CAMERA, POSE, LITERAL, depth_map=depth_map)
    assert fixed.depth == pytest.approx(2 + 0.2 * 16 * 2 / 50)  # and the centre a little behind the side seen
    assert fixed.depth_variance == 0
    assert literal.depth == pytest.approx((36 * 2 + 28 * 9) / 64)
    assert literal.depth_variance == pytest.approx(36 / 64 * 28 / 64 * 49)
    np.testing.assert_allclose(fixed.pixel, BOX.center)
    flat = PlaceConfig(fusion=FusionConfig(thickness_share=0.0))
    plane = lift(view, CAMERA, POSE, flat, depth_map=depth_map)
    assert plane.depth == 2
    assert plane.depth_error == pytest.approx(np.hypot(0.05 * 2, 0.3 * 16 * 2 / 50))
    np.testing.assert_allclose(plane.point_world, [(24 - 32) / 50 * 2, (16 - 24) / 50 * 2, 2])


def test_errors_of_a_view_are_known_in_full():
    """A quarter of the depths at 1.9, a half at 2, a quarter at 2.1: the median is 2, the MAD 0.05."""
    depth = np.full((48, 64), 2.0, np.float32)
    depth[::2, ::2], depth[1::2, 1::2] = 1.9, 2.1
    deviation = 1.4826 * 0.05
    size = 16 * 2 / 50
    view = lift(prediction(), CAMERA, POSE, DEFAULT, depth_map=DepthMap(depth, DepthUnit.SFM))
    assert view.depth == pytest.approx(2 + 0.2 * size)
    assert view.depth_variance == pytest.approx((deviation / 2) ** 2, rel=1e-5)
    wanted = np.linalg.norm([deviation / 2, 0.05 * 2, 0.3 * size])
    assert view.depth_error == pytest.approx(wanted, rel=1e-5)
    assert view.diagonal_px == pytest.approx(16 * np.sqrt(2))
    assert view.pixel_error == pytest.approx(np.hypot(1, 0.08 * 16 * np.sqrt(2)))
    unsteady = CameraPose(POSE.cam_from_world, turn_error_rad=0.02)
    blurred = lift(prediction(), CAMERA, unsteady, DEFAULT)
    assert blurred.pixel_error == pytest.approx(np.hypot(view.pixel_error, 0.02 * CAMERA.focal[0]))
    assert (view.semantic, view.frame_index) == (pytest.approx(0.8), 0)


def test_spread_is_the_standard_deviation_of_the_depth():
    """Normal noise of 0.1 around 2: both forms find it, and the paper's adds 5 % of the depth."""
    noise = np.random.default_rng(0).normal(2, 0.1, (480, 640)).astype(np.float32)
    large = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
    whole = prediction(box=Box(2, 2, 638, 478), mask=np.ones((238, 318), bool))
    found, literal = (
        lift(whole, large, POSE, config, depth_map=DepthMap(noise, DepthUnit.SFM))
        for config in (DEFAULT, LITERAL)
    )
    assert found.depth_variance == pytest.approx((0.1 / 2) ** 2, rel=0.02)
    assert literal.depth_variance == pytest.approx(0.1**2, rel=0.02)
    assert literal.depth_error == pytest.approx(np.hypot(0.1, 0.05 * 2), rel=0.02)


def test_confidence_weighs_the_depth():
    depth = np.full((48, 64), 2.0, np.float32)
    depth[:, 24:] = 4.0
    probability = np.tile(np.repeat([0.9, 0.3], 4).astype(np.float32), (8, 1))
    view = masked(np.ones((8, 8), bool), mask_prob=probability)
    literal = lift(view, CAMERA, POSE, LITERAL, depth_map=DepthMap(depth, DepthUnit.SFM))
    assert literal.depth == pytest.approx((0.9 * 2 + 0.3 * 4) / 1.2)
    assert lift(view, CAMERA, POSE, DEFAULT, depth_map=DepthMap(depth, DepthUnit.SFM)).depth == pytest.approx(
        2 * (1 + 0.2 * 16 / 50)
    )


def test_variance_is_relative_so_that_far_objects_are_not_punished():
    generator = np.random.default_rng(0)
    noise = generator.normal(1, 0.05, (48, 64)).astype(np.float32)
    near = lift(prediction(), CAMERA, POSE, DEFAULT, depth_map=DepthMap(noise, DepthUnit.SFM))
    far = lift(prediction(), CAMERA, POSE, DEFAULT, depth_map=DepthMap(8 * noise, DepthUnit.SFM))
    assert far.depth_variance == pytest.approx(near.depth_variance, rel=1e-4)


def test_centroid_of_a_mask_or_centre_of_a_box():
    mask = np.zeros((8, 8), bool)
    mask[:, :4] = True
    assert lift(masked(mask), CAMERA, POSE, DEFAULT).pixel[0] < 21
    assert lift(masked(mask), CAMERA, POSE, LITERAL).pixel[0] == 24
    assert lift(prediction(), CAMERA, POSE, DEFAULT).pixel == pytest.approx([24, 16])


def test_an_object_cut_by_the_border_has_an_uncertain_centre():
    inside, cut = prediction(), prediction(box=Box(0, 8, 16, 24))
    assert lift(cut, CAMERA, POSE, DEFAULT).pixel_error == 3 * lift(inside, CAMERA, POSE, DEFAULT).pixel_error
    for box in (Box(48, 8, 64, 24), Box(16, 0, 32, 16), Box(16, 32, 32, 48)):
        assert lift(prediction(box=box), CAMERA, POSE, DEFAULT).pixel_error > 5
    for box in (Box(2, 8, 18, 24), Box(46, 8, 62, 24), Box(16, 2, 32, 18), Box(16, 30, 32, 46)):
        assert lift(prediction(box=box), CAMERA, POSE, DEFAULT).pixel_error < 3  # near the border, not cut


def test_depth_from_points_when_there_is_no_map():
    points = ObjectPoints(np.array([[0, 0, 2.0], [0, 0, 2.2], [0, 0, 2.1], [0, 0, -1]]), np.ones(4))
    assert lift(prediction(), CAMERA, POSE, DEFAULT, points=points).depth == pytest.approx(2.1)
    on_mask = lift(masked(np.ones((8, 8), bool)), CAMERA, POSE, DEFAULT, points=points)
    assert on_mask.depth == pytest.approx(2.1 * (1 + 0.2 * 16 / 50))  # they lie on the side one sees
    near = ObjectPoints(points.xyz_world / 10, points.weight)  # depth has no least value but zero
    assert lift(prediction(), CAMERA, POSE, DEFAULT, points=near).depth == pytest.approx(0.21)
    three = ObjectPoints(points.xyz_world[:3], points.weight[:3])
    assert lift(prediction(), CAMERA, POSE, DEFAULT, points=three).depth == pytest.approx(2.1)
    few = ObjectPoints(points.xyz_world[:2], points.weight[:2])
    assert lift(prediction(), CAMERA, POSE, DEFAULT, points=few).depth is None
    unknown = DepthMap(np.zeros((4, 4), np.float32), DepthUnit.SFM)
    assert lift(prediction(), CAMERA, POSE, DEFAULT, depth_map=unknown, points=points).depth == pytest.approx(
        2.1
    )
    assert lift(prediction(), CAMERA, POSE, DEFAULT, depth_map=unknown).depth is None


def test_points_on_the_object_are_those_that_stay_in_its_box():
    """Point 0 stays in the box, 1 leaves it in two of three frames, 2 is never in it, 3 is never seen."""
    pixel = {0: [(24, 16)] * 3, 1: [(30, 20), (40, 20), (50, 20)], 2: [(5, 5)] * 3}
    rows = [(frame, point, *pixel[point][frame]) for point in pixel for frame in range(3)]
    table = np.array(rows, float)
    sparse = SparsePoints(np.eye(4, 3), table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])
    frames = tuple(PosedFrame(i, i / 5, POSE) for i in range(3))
    world = Reconstruction(CAMERA, frames, "sfm", sparse)
    track = [prediction(frame_index=i, sample=i) for i in range(3)]
    halves = object_points(track[:2], world, DEFAULT)
    assert len(halves.weight) == 2  # point 1 is inside in one of two frames: half of them suffice
    found = object_points(track, world, DEFAULT)
    np.testing.assert_array_equal(found.xyz_world, [[1, 0, 0]])
    assert found.weight == pytest.approx([3.0])  # at the centre, three times
    hole = np.ones((8, 8), bool)
    hole[3:5, 3:5] = False
    assert (
        len(object_points([masked(hole)], world, DEFAULT).weight) == 1
    )  # point 1 in frame 0; 0 is in the hole
    once = object_points([prediction()], world, DEFAULT)
    assert once.weight == pytest.approx([1, np.exp(-2 * (0.75**2 + 0.5**2))])  # less towards the rim
    wide = object_points([prediction()], world, PlaceConfig(region_margin=1.0))
    assert len(wide.weight) == 3


def test_dark_corners_have_no_depth():
    """Of a box that reaches beyond the valid radius only the pixels within count."""
    limited = replace(CAMERA, valid_radius_px=20.0)
    values = np.full((48, 64), 2.0, np.float32)
    values[:, 51:] = 9.0  # the radius ends at x = 52 in the middle row
    at_the_rim = prediction(box=Box(44, 23, 60, 25))
    whole, seen = (
        lift(at_the_rim, camera, POSE, LITERAL, depth_map=DepthMap(values, DepthUnit.METRIC))
        for camera in (CAMERA, limited)
    )
    assert whole.depth > 5
    assert seen.depth < 4
