"""A textured room with boxes in it, rendered by ray casting: images with exact poses and depth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.types import Box, Frame

CAMERA = Camera("PINHOLE", 320, 240, (280.0, 280.0, 160.0, 120.0))
ROOM = (np.array([-2.5, -1.4, -2.5]), np.array([2.5, 1.2, 2.5]))  # y is down
BOXES = [  # lower and upper corners
    (np.array([-0.7, 0.3, 0.9]), np.array([-0.35, 0.7, 1.25])),  # the object
    (np.array([-1.0, 0.7, 0.8]), np.array([-0.1, 1.2, 1.6])),
    (np.array([0.5, 0.5, 0.9]), np.array([1.3, 1.2, 1.5])),
    (np.array([1.4, -0.3, 1.9]), np.array([2.3, 1.2, 2.5])),
    (np.array([-2.4, 0.0, -0.5]), np.array([-1.6, 1.2, 0.6])),
]
TEXELS_PER_UNIT = 90


@dataclass(frozen=True, eq=False)
class Shot:
    frame: Frame
    pose: CameraPose
    depth: np.ndarray  # (H, W) along z
    label: np.ndarray  # (H, W) which box the pixel shows, counted from 1; 0 for the room


def walk(
    count: int, *, camera: Camera = CAMERA, turn_deg: float = 50.0, turns: tuple[float, float] = (0.0, 1.0)
) -> list[Shot]:
    """A sideways walk that looks around, then comes back at another height; or a part of it."""
    textures = _textures()
    shots = []
    for i, t in enumerate(np.linspace(*turns, count)):
        phase = 2 * np.pi * t
        center = np.array([-1.0 * np.cos(phase), 0.25 * np.sin(phase) - 0.2, -1.2 + 0.4 * np.sin(phase)])
        yaw, pitch = np.radians(turn_deg / 2) * np.sin(phase + 0.6), np.radians(8) * np.cos(phase)
        forward = np.array([np.sin(yaw) * np.cos(pitch), np.sin(pitch) + 0.1, np.cos(yaw) * np.cos(pitch)])
        shots.append(_shot(i, camera, _pose(center, forward), textures))
    return shots


def ring(count: int, *, turns: float) -> list[Shot]:
    """A walk in a circle that looks outwards; with more than one turn it returns to where it began."""
    textures = _textures()
    shots = []
    for i, angle in enumerate(np.linspace(0, 2 * np.pi * turns, count)):
        sine, cosine = np.sin(angle), np.cos(angle)
        center = np.array([0.9 * sine, 0.1 * np.sin(2 * angle) - 0.2, 0.9 * cosine])
        shots.append(_shot(i, CAMERA, _pose(center, np.array([sine, 0.15, cosine])), textures))
    return shots


def object_center(number: int = 1) -> np.ndarray:
    return (BOXES[number - 1][0] + BOXES[number - 1][1]) / 2


def object_box(shot: Shot, number: int = 1) -> Box | None:
    rows, columns = np.nonzero(shot.label == number)
    if len(rows) < 60:
        return None
    return Box(float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1))


def _pose(center: np.ndarray, forward: np.ndarray) -> CameraPose:
    forward = forward / np.linalg.norm(forward)
    right = np.cross([0, 1.0, 0], forward)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    return CameraPose.from_rotation(rotation, -rotation @ center)


@cache
def _textures() -> np.ndarray:
    """One noise image for each face of the room and its boxes (N, S, S), smooth enough not to alias."""
    generator = np.random.default_rng(7)
    size = 512
    faces = []
    for _ in range(6 * (len(BOXES) + 1)):
        noise = sum(
            cv2.resize(
                generator.normal(size=(size // s, size // s)), (size, size), interpolation=cv2.INTER_CUBIC
            )
            * weight
            for s, weight in ((4, 1.0), (8, 1.2), (16, 1.0), (64, 0.8))
        )
        faces.append(np.clip(128 + 45 * noise, 0, 255))
    return np.array(faces)


def _shot(index: int, camera: Camera, pose: CameraPose, textures: np.ndarray) -> Shot:
    x, y = np.meshgrid(np.arange(camera.width) + 0.5, np.arange(camera.height) + 0.5)
    rays = camera.rays(np.column_stack([x.ravel(), y.ravel()]))
    direction = pose.rays_world(rays)
    center = pose.center_world
    far = _slab(center, direction, *ROOM)[1]
    distance, label = far, np.zeros(len(far), int)
    for k, corners in enumerate(BOXES, 1):
        near, exit_ = _slab(center, direction, *corners)
        hit = (near > 0) & (near < exit_) & (near < distance)
        distance, label = np.where(hit, near, distance), np.where(hit, k, label)
    points = center + direction * distance[:, None]
    grey = _shade(points, label, textures).reshape(camera.height, camera.width).astype(np.uint8)
    shape = (camera.height, camera.width)
    frame = Frame(index, index / 5, np.repeat(grey[:, :, None], 3, axis=2))
    return Shot(frame, pose, (distance * rays[:, 2]).reshape(shape), label.reshape(shape))


def _slab(
    center: np.ndarray, direction: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distances at which rays enter and leave an axis-aligned box."""
    with np.errstate(divide="ignore"):
        a, b = (low - center) / direction, (high - center) / direction
    return np.minimum(a, b).max(1), np.maximum(a, b).min(1)


def _shade(points: np.ndarray, label: np.ndarray, textures: np.ndarray) -> np.ndarray:
    lows = np.array([ROOM[0], *(low for low, _ in BOXES)])[label]
    highs = np.array([ROOM[1], *(high for _, high in BOXES)])[label]
    face = np.abs(np.concatenate([points - lows, points - highs], axis=1)).argmin(1)
    axes = np.array([[1, 2], [0, 2], [0, 1]])[face % 3]
    uv = np.take_along_axis(points - lows, axes, axis=1) * TEXELS_PER_UNIT
    layer = label * 6 + face
    whole = np.floor(uv).astype(int)
    part = uv - whole
    size = textures.shape[1]
    value = np.zeros(len(points))
    for dx in (0, 1):
        for dy in (0, 1):
            weight = np.abs(1 - dx - part[:, 0]) * np.abs(1 - dy - part[:, 1])
            value += weight * textures[layer, (whole[:, 0] + dx) % size, (whole[:, 1] + dy) % size]
    return value
