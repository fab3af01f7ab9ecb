import json
import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pycolmap
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose

CAMERAS = [
    Camera("PINHOLE", 640, 480, (500.0, 510.0, 322.0, 238.0)),
    Camera("SIMPLE_RADIAL", 640, 480, (500.0, 320.0, 240.0, 0.15)),
    Camera("SIMPLE_RADIAL", 640, 480, (500.0, 320.0, 240.0, -0.2)),
    Camera("SIMPLE_RADIAL_FISHEYE", 640, 480, (250.0, 320.0, 240.0, -0.05)),
    Camera("RADIAL_FISHEYE", 640, 480, (250.0, 315.0, 244.0, 0.04, -0.01)),
    Camera("SIMPLE_PINHOLE", 640, 480, (500.0, 322.0, 238.0)),
    Camera("RADIAL", 640, 480, (500.0, 321.0, 243.0, 0.12, -0.03)),
    Camera("OPENCV", 640, 480, (480.0, 490.0, 325.0, 236.0, 0.11, -0.04, 0.004, -0.006)),
    Camera("OPENCV_FISHEYE", 640, 480, (250.0, 255.0, 325.0, 236.0, 0.03, -0.012, 0.004, -0.001)),
    ARIA := Camera("RAD_TAN_THIN_PRISM_FISHEYE", 640, 480, (
        350.0, 350.0, 325.0, 236.0, 0.406, -0.49, 0.1746, 1.133, -1.7016, 0.6512,
        6.2e-4, 1.9e-4, -1.5e-3, 2.6e-4, -6.6e-4, 3.8e-5,
    )),
]  # fmt: skip
IDS = [f"{camera.model}{camera.params[-1]}" for camera in CAMERAS]


def image_grid(camera: Camera) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, camera.width, 9), np.linspace(0, camera.height, 7))
    return np.column_stack([x.ravel(), y.ravel()])


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_pixel_to_ray_to_pixel_is_exact(camera):
    pixels = image_grid(camera)
    rays = camera.rays(pixels)
    np.testing.assert_allclose(np.linalg.norm(rays, axis=1), 1)
    np.testing.assert_allclose(camera.project(rays * 3.7), pixels, atol=1e-8)


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_point_to_pixel_and_depth_to_point_is_exact(camera):
    points = np.random.default_rng(0).uniform((-0.5, -0.4, 1), (0.5, 0.4, 4), (50, 3))
    np.testing.assert_allclose(camera.back_project(camera.project(points), points[:, 2]), points, atol=1e-8)


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_same_pixels_as_colmap(camera):
    theirs = pycolmap.Camera(
        model=camera.model, width=camera.width, height=camera.height, params=list(camera.params)
    )
    points = np.random.default_rng(1).uniform((-0.6, -0.5, 1), (0.6, 0.5, 3), (40, 3))
    np.testing.assert_allclose(camera.project(points), theirs.img_from_cam(points), atol=1e-9)
    pixels = image_grid(camera)
    pixels = pixels[camera.rays(pixels)[:, 2] > 0.02]  # beyond 90 degrees theirs has no answer
    plane = theirs.cam_from_img(pixels)
    rays = camera.rays(pixels)
    np.testing.assert_allclose(rays[:, :2] / rays[:, 2:], plane, atol=1e-6)


def test_same_pixels_as_opencv():
    points = np.random.default_rng(4).uniform((-0.6, -0.5, 1), (0.6, 0.5, 3), (40, 3))
    for model, project in (("OPENCV", cv2.projectPoints), ("OPENCV_FISHEYE", cv2.fisheye.projectPoints)):
        camera = next(camera for camera in CAMERAS if camera.model == model)
        fx, fy, cx, cy, *terms = camera.params
        matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        theirs = project(points[:, None], np.zeros(3), np.zeros(3), matrix, np.array(terms))[0]
        np.testing.assert_allclose(camera.project(points), theirs[:, 0], atol=1e-6)


def test_same_pixels_as_project_aria():
    calibration = pytest.importorskip("projectaria_tools.core.calibration")
    params = [ARIA.params[0], ARIA.params[2] - 0.5, ARIA.params[3] - 0.5, *ARIA.params[4:]]
    theirs = calibration.CameraProjection(calibration.CameraModelType.FISHEYE624, np.array(params))
    points = np.random.default_rng(5).uniform((-1.5, -1.5, 1), (1.5, 1.5, 2), (200, 3))
    expected = np.array([theirs.project(point) for point in points]) + 0.5  # their pixel centres are integers
    np.testing.assert_allclose(ARIA.project(points), expected, atol=1e-6)
    rays = np.array([theirs.unproject(pixel - 0.5) for pixel in expected])
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    np.testing.assert_allclose(ARIA.rays(expected), rays, atol=1e-6 / ARIA.focal[0])


@settings(max_examples=100, deadline=None)
@given(
    camera=st.sampled_from(CAMERAS), share=st.tuples(st.floats(0.02, 0.98), st.floats(0.02, 0.98)),
    strength=st.floats(-1.5, 1.5),
)  # fmt: skip
def test_every_lens_weaker_or_stronger_is_its_own_inverse(camera, share, strength):
    focals = camera._focals
    params = camera.params[: focals + 2] + tuple(strength * v for v in camera.params[focals + 2 :])
    lens = Camera(camera.model, camera.width, camera.height, params)
    pixel = np.array([[share[0] * lens.width, share[1] * lens.height]])
    ray = lens.rays(pixel)
    if np.isfinite(ray).all():
        np.testing.assert_allclose(np.linalg.norm(ray), 1)
        np.testing.assert_allclose(lens.project(2.5 * ray), pixel, atol=1e-6)


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_the_lens_of_a_turned_image_sees_the_turned_world(camera):
    points = np.random.default_rng(6).uniform((-0.6, -0.5, 1), (0.6, 0.5, 3), (40, 3))
    turned = camera.turned(1)
    assert (turned.width, turned.height) == (camera.height, camera.width)
    x, y = camera.project(points).T
    seen = turned.project(np.column_stack([-points[:, 1], points[:, 0], points[:, 2]]))  # np.rot90(image, -1)
    np.testing.assert_allclose(seen, np.column_stack([camera.height - y, x]), atol=1e-9)
    np.testing.assert_allclose(camera.turned(4).params, camera.params)
    np.testing.assert_allclose(turned.turned(3).params, camera.params, atol=1e-12)


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_the_lens_of_a_larger_image_sees_the_same(camera):
    points = np.random.default_rng(7).uniform((-0.6, -0.5, 1), (0.6, 0.5, 3), (40, 3))
    larger = camera.resized(2 * camera.width, 2 * camera.height)
    np.testing.assert_allclose(larger.project(points), 2 * camera.project(points), atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(k=st.floats(-0.3, 0.3), focal=st.floats(150, 900), x=st.floats(-1, 1), y=st.floats(-1, 1))
def test_every_pixel_that_has_a_ray_returns(k, focal, x, y):
    for model in ("SIMPLE_RADIAL", "SIMPLE_RADIAL_FISHEYE"):
        camera = Camera(model, 640, 480, (focal, 320.0, 240.0, k))
        pixel = np.array([[320 + 320 * x, 240 + 240 * y]])
        ray = camera.rays(pixel)
        if np.isfinite(ray).all():
            np.testing.assert_allclose(camera.project(ray), pixel, atol=1e-5)


def test_no_image_is_nan_not_a_wrong_pixel():
    pinhole, folding = CAMERAS[0], CAMERAS[2]
    assert np.isnan(pinhole.project([[0.1, 0.1, -1.0], [0.1, 0.1, 0.0]])).all()
    assert np.isnan(folding.project([[5.0, 0.0, 1.0]])).all()  # the polynomial folds back at r = 1.29
    assert np.isnan(folding.rays([[5000.0, 240.0]])).all()
    fisheye = Camera("SIMPLE_RADIAL_FISHEYE", 640, 480, (100.0, 320.0, 240.0, 0.0))
    assert np.isnan(fisheye.project([[0.0, 0.0, -1.0]])).all()
    sideways = fisheye.project([[1.0, 0.0, -0.2]])
    assert sideways[0, 0] > 470  # a fisheye sees beyond 90 degrees
    assert np.isnan(fisheye.back_project(sideways, 1.0)).all()


@pytest.mark.parametrize("camera", CAMERAS, ids=IDS)
def test_beyond_the_valid_radius_there_is_no_ray(camera):
    """Dark corners: the polynomial goes on there, the lens does not."""
    limited = replace(camera, valid_radius_px=200.0)
    pixels = image_grid(camera)
    inside = np.hypot(*(pixels - camera.principal_point).T) <= 200
    assert 0 < inside.sum() < len(inside)
    assert np.isfinite(camera.rays(pixels)).all()
    np.testing.assert_array_equal(np.isfinite(limited.rays(pixels)).all(1), inside)
    np.testing.assert_array_equal(limited.rays(pixels)[inside], camera.rays(pixels)[inside])
    np.testing.assert_array_equal(np.isfinite(limited.project(camera.rays(pixels))).all(1), inside)
    assert np.isnan(limited.back_project(pixels, np.ones(len(pixels)))[~inside]).all()
    assert limited.turned(1).valid_radius_px == 200
    doubled = limited.resized(2 * camera.width, 2 * camera.height)
    np.testing.assert_array_equal(np.isfinite(doubled.rays(2 * pixels)).all(1), inside)


def test_optical_axis_is_the_principal_point():
    for camera in CAMERAS:
        np.testing.assert_allclose(camera.project([[0, 0, 2.0]])[0], camera.principal_point)
        np.testing.assert_allclose(camera.rays([camera.principal_point])[0], [0, 0, 1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("FOV", 64, 48, (1.0,)), "PINHOLE"),
        (("PINHOLE", 64, 48, (1.0, 2.0)), "fx, fy, cx, cy"),
        (("PINHOLE", 64, 48, (1.0, float("nan"), 0.0, 0.0)), "finite"),
        (("PINHOLE", 64, 48, (-1.0, 1.0, 0.0, 0.0)), "positive focal"),
        (("PINHOLE", 0, 48, (1.0, 1.0, 0.0, 0.0)), "positive focal"),
        (("PINHOLE", 64, 48, (1.0, 1.0, 0.0, 0.0), 0.0), "valid radius"),
    ],
)
def test_bad_cameras_say_what_is_wanted(arguments, words):
    with pytest.raises(GeometryError, match=words):
        Camera(*arguments)


def test_pose_moves_points_both_ways_and_knows_its_centre():
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    pose = CameraPose.from_rotation(rotation, [1.0, -2.0, 0.5])
    points = np.random.default_rng(3).normal(size=(6, 3))
    np.testing.assert_allclose(pose.to_world(pose.to_cam(points)), points, atol=1e-12)
    np.testing.assert_allclose(pose.to_cam(pose.center_world), 0, atol=1e-12)
    np.testing.assert_allclose(
        pose.rays_world([0.0, 0.0, 1.0]), pose.to_world([0, 0, 1.0]) - pose.center_world, atol=1e-12
    )
    assert pose.to_cam([0.0, 0.0, 0.0]) == pytest.approx([1.0, -2.0, 0.5])  # cam_from_world, not its inverse


@pytest.mark.parametrize(
    "matrix", [np.eye(4), np.full((3, 4), np.nan), np.diag([1.0, 1, -1, 0])[:3], 2 * np.eye(3, 4)]
)
def test_bad_poses_are_refused(matrix):
    with pytest.raises(GeometryError):
        CameraPose(matrix)


@pytest.mark.skipif("EGOHIERALOC_DATA" not in os.environ, reason="needs EGOHIERALOC_DATA")
def test_published_predictions_use_the_same_direction():
    """In the accepted EgoLoc file the vector in the query camera is pose @ world, not its inverse."""
    path = Path(os.environ["EGOHIERALOC_DATA"]) / "fixtures" / "vq3d_val_published_predictions.json"
    videos = json.loads(path.read_text())["videos"]
    annotations = [a for video in videos for clip in video["clips"] for a in clip["annotations"]]
    checked = 0
    for query in (query for annotation in annotations for query in annotation.get("query_sets", {}).values()):
        if query.get("query_frame_pose") and query.get("mp_pred_3d_vec_query_frame"):
            pose = CameraPose(np.array(query["query_frame_pose"])[:3])
            seen = pose.to_cam(query["mp_pred_3d_vec_world"])
            np.testing.assert_allclose(seen, query["mp_pred_3d_vec_query_frame"], atol=1e-6)
            checked += 1
    assert checked > 100
