"""Each way to metres leads from a path in its own units to the true one."""

import cv2
import numpy as np
import pytest

from egohieraloc.errors import GeometryError, QueryError
from egohieraloc.geometry.align import scaled
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, write_cameras
from egohieraloc.geometry.reference import (
    CameraHeight,
    KnownLength,
    KnownPositions,
    PosedImages,
    parse_known_length,
    point_at,
    read_known_positions,
    read_posed_images,
    to_metres,
)

CAMERA = Camera("SIMPLE_RADIAL", 640, 480, (500.0, 320.0, 240.0, 0.05))


def room() -> Reconstruction:
    """Ten cameras 1.6 m above a floor (y down), in metres; every fifth frame of a video, one without pose."""
    frames = []
    for i in range(10):
        yaw = np.radians(12.0 * i - 54)
        rotation = np.array([[np.cos(yaw), 0, -np.sin(yaw)], [0, 1, 0], [np.sin(yaw), 0, np.cos(yaw)]])
        center = np.array([0.2 * i, 0.0, 0.05 * i**2])
        pose = None if i == 7 else CameraPose.from_rotation(rotation, -rotation @ center)
        frames.append(PosedFrame(5 * i, float(i), pose))
    grid = np.linspace(-8, 8, 40)
    x, z = (v.ravel() for v in np.meshgrid(grid, grid))
    points = np.column_stack([x, np.full_like(x, 1.6), z])
    rows, seen, pixels = [], [], []
    for frame in frames:
        if frame.pose is not None:
            pixel = CAMERA.project(frame.pose.to_cam(points))
            inside = np.flatnonzero(((pixel > 0) & (pixel < (640, 480))).all(1))
            rows += inside.tolist()
            seen += [frame.index] * len(inside)
            pixels += pixel[inside].tolist()
    sparse = SparsePoints(points, np.array(seen), np.array(rows), np.array(pixels))
    return Reconstruction(CAMERA, tuple(frames), "m", sparse)


def shrunk() -> Reconstruction:
    found = scaled(room(), 0.37)
    return Reconstruction(found.camera, found.frames, "sfm", found.points)


def two_points_in_frame(index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows, pixels = room().observed_in(index)
    first, second = np.argmin(pixels[:, 0]), np.argmax(pixels[:, 0])
    xyz = room().points.xyz_world[rows]
    return pixels[first], pixels[second], xyz[first], xyz[second]


def references() -> list:
    first_px, second_px, first, second = two_points_in_frame(25)
    length = float(np.linalg.norm(first - second))
    centers = {index: pose.center_world for index, pose in room().poses.items()}
    return [
        KnownPositions({**centers, 999: np.zeros(3)}),
        KnownLength(5.1, tuple(first_px), tuple(second_px), length),
        CameraHeight(1.6),
    ]


@pytest.mark.parametrize("reference", references(), ids=["positions", "length", "height"])
def test_every_reference_gives_the_true_size(reference):
    metric = to_metres(shrunk(), reference)
    assert metric.unit == "m"
    distance = np.linalg.norm(metric.poses[45].center_world - metric.poses[0].center_world)
    wanted = np.linalg.norm(room().poses[45].center_world - room().poses[0].center_world)
    # The length is read at the depth of the points around a pixel, not of the pixel itself.
    assert distance == pytest.approx(wanted, rel=0.1 if isinstance(reference, KnownLength) else 1e-6)


def test_posed_images_have_done_their_part():
    found = shrunk()
    assert to_metres(found, PosedImages(())) is found


def test_a_pixel_is_placed_where_its_points_are():
    found = room()
    rows, pixels = found.observed_in(25)
    near = np.argmin(np.abs(pixels - (320, 400)).sum(1))
    point = point_at(found, 5.0, tuple(pixels[near]))
    assert np.linalg.norm(point - found.points.xyz_world[rows[near]]) < 0.3
    with pytest.raises(GeometryError, match="No point of the map lies near pixel 320,20 at 5 s"):
        point_at(found, 5.0, (320.0, 20.0))
    with pytest.raises(GeometryError, match="The frame at 7 s has no camera pose"):
        point_at(found, 7.0, (320.0, 400.0))
    empty = Reconstruction(CAMERA, (PosedFrame(0, 7.0, None),))
    with pytest.raises(GeometryError, match="Measure the known length in another frame"):
        point_at(empty, 7.0, (320.0, 400.0))


def test_a_known_length_is_six_numbers():
    assert parse_known_length("24,410,220,520.5,230,0.75") == KnownLength(24, (410, 220), (520.5, 230), 0.75)
    for text in ("24,410,220,520,230", "24,410,220,520,230,wide", ""):
        with pytest.raises(GeometryError, match="seconds,x1,y1,x2,y2,metres"):
            parse_known_length(text)


def test_positions_are_named_by_image_or_by_frame_number(tmp_path):
    path = tmp_path / "positions.txt"
    path.write_text("000120.jpg 1 2 3\n7 4 5 6\n")
    found = read_known_positions(path).center_by_frame
    assert {index: center.tolist() for index, center in found.items()} == {120: [1, 2, 3], 7: [4, 5, 6]}
    path.write_text("b.png 1 2 3\n")
    assert list(read_known_positions(path, ["a.png", "b.png"]).center_by_frame) == [1]
    with pytest.raises(GeometryError, match=r"names 'b.png'; wanted a frame number such as 120"):
        read_known_positions(path)
    path.write_text(f"{'9' * 5000} 1 2 3\n")
    with pytest.raises(GeometryError, match=r"wanted a frame number such as 120"):
        read_known_positions(path)
    path.write_text("1 1 2 3\n")
    with pytest.raises(GeometryError, match=r"names '1'; wanted an image such as a.png"):
        read_known_positions(path, ["a.png", "b.png"])


def test_a_folder_of_posed_images(tmp_path):
    write_cameras(tmp_path / "cameras.json", room())
    for index in (0, 5, 10, 15, 35):  # 35 has no pose
        cv2.imwrite(str(tmp_path / f"{index:06d}.png"), np.full((480, 640, 3), index, np.uint8))
    with pytest.raises(GeometryError, match=r"at least 5 images .* it has 4 with a pose, in the unit 'm'"):
        read_posed_images(tmp_path)
    cv2.imwrite(str(tmp_path / "20.jpg"), np.full((480, 640, 3), 20, np.uint8))
    anchors = read_posed_images(tmp_path).anchors
    assert [int(anchor.rgb[0, 0, 0]) for anchor in anchors] == [0, 5, 10, 15, 20]
    np.testing.assert_allclose(anchors[4].center_world, room().poses[20].center_world, atol=1e-12)
    write_cameras(tmp_path / "cameras.json", shrunk())
    with pytest.raises(GeometryError, match="in the unit 'sfm'"):
        read_posed_images(tmp_path)
    (tmp_path / "cameras.json").unlink()
    with pytest.raises(GeometryError, match="Cannot read camera poses"):
        read_posed_images(tmp_path)


def test_a_damaged_posed_image_is_named(tmp_path):
    write_cameras(tmp_path / "cameras.json", room())
    (tmp_path / "000000.png").write_bytes(b"no image")
    with pytest.raises(QueryError, match=r"000000\.png"):
        read_posed_images(tmp_path)


def test_a_folder_of_images_with_positions_alone(tmp_path):
    for index in range(5):
        cv2.imwrite(str(tmp_path / f"geo_{index}.jpg"), np.full((48, 64, 3), 40 * index, np.uint8))
    (tmp_path / "positions.txt").write_text("".join(f"geo_{i}.jpg {i} 0.5 {-i}\n" for i in range(5)))
    anchors = read_posed_images(tmp_path).anchors
    assert [anchor.center_world.tolist() for anchor in anchors] == [[i, 0.5, -i] for i in range(5)]
    assert {anchor.camera for anchor in anchors} == {None}
    assert int(anchors[3].rgb[0, 0, 0]) == 120
    (tmp_path / "positions.txt").write_text("geo_0.jpg 0 0 0\n")
    with pytest.raises(GeometryError, match="it has 1 with a pose"):
        read_posed_images(tmp_path)
