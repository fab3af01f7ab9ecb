"""When a place in space may be wrong: the object moved against the scene, or views do not fix its distance.

The scene is taken to stand still. An object in a hand does not: its rays meet nowhere, or where it never was.
N is the number of views.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from egohieraloc.clock import clock
from egohieraloc.geometry.check import leaps, weak_links
from egohieraloc.geometry.gsjc import FusedPoint, ObjectView
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import DEVIATIONS_95, Floats, ViewEvidence

# Of a box's diagonal: how far the point's image may lie from the box's centre, in the median of the views.
# Centres of boxes on resting objects are off by a tenth of it.
MAX_MISS = 0.35
MAX_FOCAL = 1.2  # in image widths, a field of 45 degrees: what turns more than it moves may measure any
MIN_POSED = 0.5  # of the frames between the object and the query time
MIN_PARALLAX_DEG = 2.0  # between the cameras that see the object: below it distances are guesses
MAX_UNCERTAINTY = 0.5  # of the distance from where it was seen
_UNIFORM = 12**-0.5  # standard deviation of a value anywhere between 0 and 1


def latest(views: Sequence[ObjectView]) -> Sequence[ObjectView]:
    """The last third of the views, three at least: an object that was put down stays there to the end."""
    return views[-max(3, len(views) // 3) :]


def rests_at(point_world: Floats, views: Sequence[ObjectView]) -> bool:
    """Whether a point that stands still explains where most of the views see the object."""
    misses = [
        float(np.linalg.norm(view.camera.project(view.pose.to_cam(point_world))[0] - view.pixel))
        / view.diagonal_px
        for view in views
    ]
    return float(np.median(np.where(np.isfinite(misses), misses, np.inf))) <= MAX_MISS


def between_camera_and_scene(view: ObjectView, reconstruction: Reconstruction) -> FusedPoint | None:
    """An object that moves, from one view: anywhere between the camera and the scene behind it; None where
    nothing is known of the scene in that frame."""
    rows, pixels = reconstruction.observed_in(view.frame_index)
    if not len(rows):
        return None
    near = np.linalg.norm(pixels - view.pixel, axis=1) <= view.diagonal_px
    depths = view.pose.to_cam(reconstruction.points.xyz_world[rows[near] if near.any() else rows])[:, 2]
    behind = float(np.median(depths))
    ray = view.camera.rays(view.pixel)[0]
    if not behind > 0 or not ray[2] > 0:
        return None
    reach = behind / float(ray[2])  # along the ray
    point = view.pose.center_world + view.ray_world * reach / 2
    across = view.pixel_error / view.camera.focal[0] * reach
    outer = np.outer(view.ray_world, view.ray_world)
    covariance = (_UNIFORM * reach) ** 2 * outer + across**2 * (np.eye(3) - outer)
    evidence = ViewEvidence(view.frame_index, point, view.semantic, 1.0, 1.0, 1.0, view.semantic)
    return FusedPoint(point, covariance, (evidence,))


def doubts_of(
    fused: FusedPoint, views: Sequence[ObjectView], reconstruction: Reconstruction, query_time_s: float
) -> tuple[str, ...]:
    """Why the point may be off by more than its covariance says, or why that is large."""
    centers = np.array([view.pose.center_world for view in views])
    distance = float(np.median(np.linalg.norm(fused.point_world - centers, axis=1)))
    radius = DEVIATIONS_95 * float(np.sqrt(np.linalg.eigvalsh(fused.covariance)[-1]))
    time_s = {frame.index: frame.time_s for frame in reconstruction.frames}
    seen_s = [time_s[view.frame_index] for view in views if view.frame_index in time_s]
    first_s, last_s = min([query_time_s, *seen_s]), max([query_time_s, *seen_s])
    found = []
    between = [frame.pose is not None for frame in reconstruction.frames if first_s <= frame.time_s <= last_s]
    if sum(between) < MIN_POSED * len(between):
        found.append(f"only {sum(between)} of the {len(between)} frames since then have a camera pose")
    lens = reconstruction.camera
    if len(reconstruction.points.xyz_world) and lens.focal[0] / lens.width > MAX_FOCAL:
        field_deg = 2 * np.degrees(np.arctan(lens.width / 2 / lens.focal[0]))
        found.append(f"the lens was measured as {field_deg:.0f} degrees wide, less than any worn camera has")
    crossed = [clock(at_s) for at_s in leaps(reconstruction) if first_s < at_s <= last_s]
    if crossed:
        found.append(f"the camera path leaps at {', '.join(crossed[:3])}")
    weak = [clock(at_s) for at_s in weak_links(reconstruction) if first_s < at_s <= last_s]
    if weak:
        found.append(f"the camera path hangs by few points at {', '.join(weak[:3])}")
    if reconstruction.unit == "sfm" and parallax_deg(fused.point_world, centers) < MIN_PARALLAX_DEG:
        found.append("you hardly moved while it was in sight, so its distance is a guess")
    elif radius > MAX_UNCERTAINTY * distance:
        found.append("the views hardly fix its distance")
    return tuple(found)


def parallax_deg(point_world: Floats, centers_world: Floats) -> float:
    """The largest angle between two of the cameras (N, 3), seen from a point."""
    rays = centers_world - point_world
    rays = rays / np.maximum(np.linalg.norm(rays, axis=1, keepdims=True), 1e-12)
    return float(np.degrees(np.arccos(np.clip((rays @ rays.T).min(), -1, 1))))
