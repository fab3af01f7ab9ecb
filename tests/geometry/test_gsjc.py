"""Laws of the fusion of views, in worlds whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from egohieraloc.config import FusionConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.gsjc import (
    ObjectView,
    baseline_factor,
    depth_factor,
    fuse,
    geometric_median,
    reprojection_factor,
    triangulate,
)

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
FISHEYE = Camera("RADIAL_FISHEYE", 640, 480, (260.0, 320.0, 240.0, 0.03, -0.01))
TARGET = np.array([0.3, -0.2, 3.0])
LITERAL = FusionConfig(literal=True)
MEAN = FusionConfig(triangulate=False)
SWITCHES = ("semantic_average", "semantic_threshold", "semantic_maximum", "depth", "reprojection", "baseline")
OFF = dict.fromkeys(SWITCHES, False)


def look_at(center: np.ndarray, target: np.ndarray) -> CameraPose:
    forward = (target - center) / np.linalg.norm(target - center)
    right = np.cross([0, 1.0, 0], forward)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    return CameraPose.from_rotation(rotation, -rotation @ center)


def make_views(
    count: int = 8, spread_deg: float = 40.0, camera: Camera = CAMERA, **values: float
) -> list[ObjectView]:
    """Cameras on an arc around the object, which they see exactly and off the centre of the image."""
    views = []
    for i, angle in enumerate(np.radians(np.linspace(-spread_deg / 2, spread_deg / 2, count))):
        center = TARGET - 3 * np.array([np.sin(angle), 1e-3 * spread_deg * (i % 3), np.cos(angle)])
        pose = look_at(center, TARGET + np.array([0.3, 0.1, 0]))
        in_camera = pose.to_cam(TARGET)
        fields = {"pixel_error": 4.0, "diagonal_px": 60.0, "semantic": 0.9, "depth_error": 0.1}
        fields |= {"depth_variance": 0.01} | values
        views.append(
            ObjectView(i, camera, pose, camera.project(in_camera)[0], depth=float(in_camera[2]), **fields)
        )
    return views


def weights(views: list[ObjectView], config: FusionConfig) -> np.ndarray:
    fused = fuse(views, config)
    assert fused is not None
    return np.array([view.weight for view in fused.views])


@pytest.mark.parametrize("camera", [CAMERA, FISHEYE], ids=["pinhole", "fisheye"])
@pytest.mark.parametrize("config", [FusionConfig(), MEAN, LITERAL], ids=["default", "mean", "literal"])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_exact_without_noise(camera, config, count):
    fused = fuse(make_views(count, camera=camera), config)
    np.testing.assert_allclose(fused.point_world, TARGET, atol=1e-7)
    assert len(fused.views) == count
    assert (np.linalg.eigvalsh(fused.covariance) > 0).all()
    for view in fused.views:
        np.testing.assert_allclose(view.point_world, TARGET, atol=1e-7)


def test_rays_alone_are_exact_without_noise():
    views = [replace(view, depth=None) for view in make_views()]
    fused = fuse(views)
    np.testing.assert_allclose(fused.point_world, TARGET, atol=1e-7)
    assert [view.depth for view in fused.views] == [1.0] * 8  # no depth: the factor is neutral
    np.testing.assert_allclose(fused.views[0].point_world, TARGET, atol=1e-7)


def test_rays_without_spread_and_without_depth_are_no_answer():
    parallel = [replace(view, depth=None) for view in make_views(spread_deg=0.3)]
    assert fuse(parallel) is None
    assert fuse(parallel[:1]) is None
    assert fuse([]) is None
    assert fuse(parallel, LITERAL) is None  # the paper's form needs depth


@pytest.mark.parametrize("camera", [CAMERA, FISHEYE], ids=["pinhole", "fisheye"])
def test_rays_that_would_meet_behind_the_cameras_are_no_answer(camera):
    pair = [replace(view, depth=None) for view in make_views(2, 40.0, camera=camera)]
    for shift, nearer in ((-100, True), (20, False), (200, None), (300, None)):
        shifts = np.array([[shift, 0], [-shift, 0]])
        answer = fuse([replace(view, pixel=view.pixel + s) for view, s in zip(pair, shifts, strict=True)])
        if nearer is None:
            assert answer is None  # the rays diverge
        else:
            assert (answer.point_world[2] < TARGET[2]) == nearer


def test_weighted_ray_triangulation():
    views = make_views(5)
    origins = np.array([view.pose.center_world for view in views])
    rays = np.array([view.ray_world for view in views])
    np.testing.assert_allclose(triangulate(origins, rays, np.ones(5)), TARGET, atol=1e-9)
    wrong = rays.copy()
    wrong[0] = rays[0] @ Rotation.from_euler("y", 5, degrees=True).as_matrix()
    trusted = triangulate(origins, wrong, np.array([1e-6, 1, 1, 1, 1]))
    assert (
        np.linalg.norm(trusted - TARGET)
        < 1e-4
        < np.linalg.norm(triangulate(origins, wrong, np.ones(5)) - TARGET)
    )
    assert triangulate(origins, np.tile(rays[:1], (5, 1)), np.ones(5)) is None


def test_every_factor_is_monotone():
    variances = np.linspace(0, 4, 9)
    assert (np.diff(depth_factor(variances, 1.0)) < 0).all()
    assert (np.diff(reprojection_factor(np.linspace(0, 90, 9), np.full(9, 10.0))) < 0).all()
    assert depth_factor(np.array([0.0, 1, 2]))[1] == pytest.approx(np.exp(-1))  # the median is sigma_0^2
    np.testing.assert_array_equal(depth_factor(np.array([0.0, 0, 1.0])), [1, 1, 0])  # sigma_0 = 0
    assert reprojection_factor(np.array([np.nan]), np.array([10.0])) == 0  # behind the camera


@pytest.mark.parametrize("config", [MEAN, LITERAL, FusionConfig()], ids=["mean", "literal", "default"])
@pytest.mark.parametrize(
    ("field", "values"), [("semantic", (0.2, 0.5, 0.9)), ("depth_variance", (0.5, 0.05, 0.001))]
)
def test_weight_is_monotone_in_what_a_view_brings(config, field, values):
    found = []
    for value in values:
        views = make_views()
        views[3] = replace(views[3], **{field: value})
        found.append(weights(views, config)[3])
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize("config", [MEAN, LITERAL, FusionConfig()], ids=["mean", "literal", "default"])
def test_weight_falls_as_a_view_disagrees(config):
    found = []
    for shift in (0.0, 15.0, 60.0):
        views = make_views()
        views[3] = replace(views[3], pixel=views[3].pixel + np.array([0, shift]))
        found.append(weights(views, config)[3])
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize("config", [FusionConfig(), MEAN], ids=["default", "mean"])
def test_a_bad_view_loses_its_weight(config):
    views = make_views(9)
    views[4] = replace(views[4], pixel=views[4].pixel + np.array([150, 80]), depth=views[4].depth * 1.8)
    fused = fuse(views, config)
    share = fused.views[4].weight / sum(view.weight for view in fused.views)
    assert share < 0.001
    np.testing.assert_allclose(fused.point_world, TARGET, atol=0.01)
    plain = np.mean([view.point_world for view in fused.views], axis=0)
    assert np.linalg.norm(plain - TARGET) > 10 * np.linalg.norm(fused.point_world - TARGET)


def test_a_bad_ray_without_any_depth_loses_its_weight():
    views = [replace(view, depth=None) for view in make_views(9)]
    views[4] = replace(views[4], pixel=views[4].pixel + np.array([150, 80]))
    np.testing.assert_allclose(fuse(views).point_world, TARGET, atol=0.01)


@pytest.mark.parametrize("config", [FusionConfig(), MEAN, LITERAL], ids=["default", "mean", "literal"])
def test_all_views_bad_give_the_plain_mean(config):
    generator = np.random.default_rng(0)
    views = [replace(v, semantic=1e-9, depth=v.depth + generator.normal()) for v in make_views(6)]
    fused = fuse(views, config)
    points = np.array([view.point_world for view in views])
    np.testing.assert_allclose(fused.point_world, points.mean(0), atol=1e-9)
    assert all(view.weight == pytest.approx(config.min_weight) for view in fused.views)


def test_equal_weights_give_the_mean_wherever_the_origin_is():
    """The appendix adds epsilon to the denominator, which would shrink the point towards the origin."""
    views = [replace(view, semantic=1e-9) for view in make_views(8)]
    np.testing.assert_allclose(fuse(views, LITERAL).point_world, TARGET, atol=1e-9)


@pytest.mark.parametrize("name", ["depth", "reprojection", "baseline"])
def test_a_factor_switched_off_is_one(name):
    views = make_views()
    views[2] = replace(views[2], depth_variance=0.3, pixel=views[2].pixel + 20)
    on, off = fuse(views), fuse(views, FusionConfig(**{name: False}))
    assert min(getattr(view, name) for view in on.views) < 1
    assert all(getattr(view, name) == 1 for view in off.views)
    assert all(
        view.weight
        == pytest.approx(max(view.semantic * view.depth * view.reprojection * view.baseline, 1e-6))
        for view in on.views
    )


def test_baseline_literal_rewards_the_wrong_ray_and_the_default_does_not():
    good = np.array(
        [Rotation.from_euler("y", a, degrees=True).apply([0, 0, 1]) for a in np.linspace(-4, 4, 9)]
    )
    wrong = Rotation.from_euler("x", 25, degrees=True).apply([0, 0, 1])
    rays = np.vstack([good, wrong])
    literal = baseline_factor(rays, literal=True, floor=0.01)
    fixed = baseline_factor(rays, literal=False, floor=0.01)
    assert literal[-1] / literal.sum() > 0.2
    assert fixed[-1] / fixed.sum() < 0.16
    assert fixed[-1] == fixed[0] == 1  # no more than the outermost of the good ones
    assert (literal > 0.05).all()  # the mean ray is shorter than one: no ray can reach the clamp
    np.testing.assert_array_equal(baseline_factor(rays[:1], literal=False, floor=0.01), [1.0])
    assert baseline_factor(rays[:1], literal=True, floor=0.01) == [0.01]


def test_robust_consensus():
    generator = np.random.default_rng(0)
    points = np.vstack([TARGET + generator.normal(0, 0.01, (12, 3)), generator.normal(20, 5, (8, 3))])
    assert np.linalg.norm(geometric_median(points) - TARGET) < 0.05
    assert np.linalg.norm(points.mean(0) - TARGET) > 5
    np.testing.assert_allclose(geometric_median(points[:1]), points[0])


def test_pose_direction():
    """G1: the paper applies T_i where its inverse is needed; with a pose far from the origin they differ."""
    view = make_views(1)[0]
    wrong = view.pose.rotation @ CAMERA.back_project(view.pixel, view.depth)[0] + view.pose.translation
    assert np.linalg.norm(wrong - TARGET) > 1
    np.testing.assert_allclose(view.point_world, TARGET, atol=1e-9)


def test_depth_counts_when_rays_do_not_spread_and_rays_when_they_do():
    """Depth 10 % too large: rays of one direction must follow it, rays from around must not."""
    narrow = [replace(v, depth=v.depth * 1.1, depth_error=0.05) for v in make_views(8, 1.0)]
    wide = [replace(v, depth=v.depth * 1.1, depth_error=0.3) for v in make_views(8, 90.0)]
    assert np.linalg.norm(fuse(narrow).point_world - TARGET) > 0.25
    assert np.linalg.norm(fuse(wide).point_world - TARGET) < 0.06
    assert np.linalg.norm(fuse(wide, MEAN).point_world - TARGET) > 0.2


def test_covariance_tells_the_size_and_the_direction_of_the_error():
    generator = np.random.default_rng(0)
    normalised = []
    for _ in range(150):
        common = generator.normal()  # one depth error for the whole track
        views = [
            replace(v, pixel=v.pixel + generator.normal(0, 4, 2), depth=v.depth + 0.1 * common)
            for v in make_views(8, 30.0)
        ]
        fused = fuse(views, FusionConfig(**OFF))
        error = fused.point_world - TARGET
        normalised.append(error @ np.linalg.solve(fused.covariance, error))
    assert 1.5 < np.mean(normalised) < 4.5  # 3 when it is exact
    narrow = fuse(make_views(8, 2.0))
    values, vectors = np.linalg.eigh(narrow.covariance)
    towards = make_views(8, 2.0)[4].ray_world
    assert abs(vectors[:, 2] @ towards) > 0.99
    assert values[2] > 4 * values[1]


def test_depths_that_scatter_inflate_the_covariance():
    """Two depths straight ahead, `scatter` errors before and behind the truth: a known variance in depth.

    Within their error it is that of one depth (depths of one track count as one measurement). Beyond, it
    follows what is seen, not what is claimed: scatter^2 / 6, so twice the scatter is four times as much.
    """
    pose = look_at(TARGET - [0, 0, 3.0], TARGET)
    view = replace(make_views(1)[0], pose=pose, pixel=np.array(CAMERA.principal_point), depth_error=0.02)
    for scatter, variance in ((1.0, 1.0), (6.0, 6.0), (12.0, 24.0)):
        fused = fuse([replace(view, depth=3 + sign * scatter * 0.02) for sign in (-1, 1)])
        assert fused.covariance[2, 2] == pytest.approx(variance * 0.02**2, rel=1e-6)


@pytest.mark.parametrize("claimed_px", [0.5, 2.0])
def test_rays_that_scatter_inflate_the_covariance(claimed_px):
    """Twice the scatter is four times the covariance, whatever error the centres claim."""
    shift = np.random.default_rng(0).normal(size=(12, 2))
    found = {}
    for scatter_px in (0.0, 4.0, 8.0):
        views = [
            replace(view, pixel=view.pixel + scatter_px * s, pixel_error=claimed_px, depth=None)
            for view, s in zip(make_views(12, 60.0), shift, strict=True)
        ]
        found[scatter_px] = np.trace(fuse(views, FusionConfig(**OFF)).covariance)
    assert found[4.0] > 1.5 * found[0.0]
    assert found[8.0] == pytest.approx(4 * found[4.0], rel=0.1)


def test_wide_views_are_worth_more_than_narrow_ones():
    assert np.trace(fuse(make_views(8, 60.0)).covariance) < np.trace(fuse(make_views(8, 5.0)).covariance)


def test_views_are_weighed_against_what_rays_and_depths_say_together():
    """All depths 15 % short: their own consensus is off, and good views must not pay for it."""
    views = [replace(v, depth=v.depth * 0.85, depth_error=0.4) for v in make_views(8, 90.0)]
    assert min(view.reprojection for view in fuse(views).views) > 0.9
    assert min(view.reprojection for view in fuse(views, MEAN).views) < 0.1


def test_rays_that_scatter_more_than_they_claim_count_less_than_depth():
    errors = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        views = [
            replace(v, pixel=v.pixel + generator.normal(0, 15, 2), pixel_error=1.0)
            for v in make_views(8, 15.0)
        ]
        errors.append(np.linalg.norm(fuse(views).point_world - TARGET))
    assert np.mean(errors) < 0.2  # 0.3 if the claimed error is used


def test_a_view_that_disagrees_counts_less_even_without_the_reprojection_factor():
    views = make_views(9)
    views[4] = replace(views[4], pixel=views[4].pixel + np.array([150, 80]))
    answer = fuse(views, FusionConfig(reprojection=False))
    assert np.linalg.norm(answer.point_world - TARGET) < 0.1  # 0.58 by plain least squares


def test_a_bad_depth_does_not_cost_a_view_its_ray():
    """Only the two outermost rays fix the distance; their own depth is useless, all others are 10 % off."""
    wide, narrow = make_views(2, 60.0), make_views(6, 2.0)
    views = [replace(view, depth_variance=10.0) for view in wide]
    views += [replace(view, depth=view.depth * 1.1, depth_error=0.3) for view in narrow]
    config = FusionConfig(baseline=False)
    assert np.linalg.norm(fuse(views, config).point_world - TARGET) < 0.06
    assert fuse(views, config).views[0].depth < 1e-9
