"""The walk: where the wearer's head is at every frame, and where it looks. NumPy only.

World: metres, x east, y north, z up. Camera: x right, y down, z forward.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FPS = 15
DURATION_S = 40.0
NUM_FRAMES = round(FPS * DURATION_S)
WIDTH, HEIGHT = 640, 480
FOCAL_PX = 440.0

# time in seconds, head (x, y), the point looked at (x, y, z)
KEYS = np.array(
    [
        (0.0, 5.5, 1.3, 6.0, 4.6, 1.1),
        (3.0, 5.2, 1.8, 4.6, 4.4, 0.9),
        (5.5, 4.8, 2.1, 3.0, 1.8, 0.7),
        (7.5, 4.4, 2.1, 3.5, 0.6, 0.6),
        (9.5, 3.8, 2.1, 2.4, 0.5, 0.6),
        (11.5, 2.9, 2.1, 0.8, 1.0, 0.8),
        (13.5, 2.1, 2.3, 0.3, 2.6, 0.9),
        (15.5, 1.7, 2.9, 0.7, 4.6, 1.0),
        (18.0, 1.6, 3.5, 1.4, 5.0, 0.95),
        (20.5, 2.1, 3.6, 2.9, 5.0, 0.95),
        (23.0, 2.6, 3.3, 4.1, 3.6, 0.75),
        (25.0, 2.7, 2.9, 4.3, 2.6, 0.7),
        (27.0, 2.8, 2.5, 3.9, 0.8, 0.6),
        (29.0, 3.0, 2.1, 3.6, 0.5, 0.6),
        (30.5, 3.2, 2.0, 3.9, 0.6, 0.6),
        (32.5, 3.7, 2.0, 5.8, 1.3, 0.9),
        (35.0, 4.4, 2.0, 6.2, 2.6, 1.0),
        (37.5, 4.8, 2.2, 6.1, 4.2, 1.1),
        (40.0, 4.9, 2.5, 5.4, 4.8, 1.0),
    ]
)
EYE_HEIGHT_M = 1.58
STEP_HZ = 1.7


def times_s() -> Floats:
    return np.arange(NUM_FRAMES) / FPS


def camera_matrix() -> Floats:
    """(3, 3), pixel centres at halves, so the optical axis meets the corner of the middle pixels."""
    return np.array([[FOCAL_PX, 0, WIDTH / 2], [0, FOCAL_PX, HEIGHT / 2], [0, 0, 1]])


def cam_from_world(time_s: Floats) -> Floats:
    """Poses (N, 3, 4) at the given times (N,)."""
    path = _smooth_path(time_s)
    speed = (
        np.linalg.norm(_smooth_path(time_s + 0.05)[:, :2] - _smooth_path(time_s - 0.05)[:, :2], axis=1) / 0.1
    )
    gait = np.clip(speed / 0.4, 0.15, 1.0)
    heading = path[:, 2:4] - path[:, :2]
    right = np.stack([heading[:, 1], -heading[:, 0]], 1) / np.linalg.norm(heading, axis=1, keepdims=True)
    phase = 2 * np.pi * STEP_HZ * time_s
    position = np.empty((len(time_s), 3))
    position[:, :2] = path[:, :2] + (0.014 * gait * np.sin(phase / 2))[:, None] * right
    position[:, 2] = EYE_HEIGHT_M + 0.016 * gait * np.cos(phase) + 0.01 * _wander(time_s, 1)
    forward = path[:, 2:5] - position
    yaw = np.arctan2(forward[:, 1], forward[:, 0]) + np.radians(0.9) * _wander(time_s, 2)
    pitch = np.arctan2(forward[:, 2], np.hypot(forward[:, 0], forward[:, 1]))
    pitch += np.radians(0.8) * _wander(time_s, 3) + np.radians(0.35) * gait * np.sin(phase + 0.6)
    roll = np.radians(1.2) * _wander(time_s, 4) + np.radians(0.5) * gait * np.sin(phase / 2)
    return look(position, yaw, pitch, roll)


def look(position: Floats, yaw: Floats, pitch: Floats, roll: Floats) -> Floats:
    """Poses (N, 3, 4) of heads at `position` (N, 3); yaw from east to north, pitch up, roll clockwise."""
    forward = np.stack([np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)], -1)
    level = np.stack([np.sin(yaw), -np.cos(yaw), np.zeros_like(yaw)], -1)
    below = np.cross(forward, level)
    cos, sin = np.cos(roll)[..., None], np.sin(roll)[..., None]
    rotation = np.stack([cos * level + sin * below, cos * below - sin * level, forward], -2)
    return np.concatenate([rotation, -rotation @ position[..., None]], -1)


def _smooth_path(time_s: Floats) -> Floats:
    """Natural cubic spline through KEYS, (N, 5)."""
    knots, values = KEYS[:, 0], KEYS[:, 1:]
    step = np.diff(knots)
    size = len(knots)
    system = np.eye(size)
    target = np.zeros_like(values)
    for i in range(1, size - 1):
        system[i, i - 1 : i + 2] = step[i - 1], 2 * (step[i - 1] + step[i]), step[i]
        target[i] = 6 * ((values[i + 1] - values[i]) / step[i] - (values[i] - values[i - 1]) / step[i - 1])
    curvature = np.linalg.solve(system, target)
    time_s = np.clip(time_s, knots[0], knots[-1])
    k = np.clip(np.searchsorted(knots, time_s, side="right") - 1, 0, size - 2)
    h, a, b = step[k][:, None], (knots[k + 1] - time_s)[:, None], (time_s - knots[k])[:, None]
    bend = (a**3 / h - a * h) * curvature[k] / 6 + (b**3 / h - b * h) * curvature[k + 1] / 6
    return a / h * values[k] + b / h * values[k + 1] + bend


def _wander(time_s: Floats, seed: int) -> Floats:
    """A slow aimless motion in about [-1, 1]: a head is never still."""
    rng = np.random.default_rng(seed)
    rates, phases = rng.uniform(0.15, 0.9, 4), rng.uniform(0, 2 * np.pi, 4)
    return np.sin(2 * np.pi * rates * time_s[:, None] + phases).mean(1) * 1.6
