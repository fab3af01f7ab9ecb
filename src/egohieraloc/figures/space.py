"""Figures in 3D: the VQ3D scene and the lifting from 2D to 3D (the paper's figures vq3dvisualize and vis3d).

Methods answer with a point alone, so the box drawn at it has the size and rotation of the ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.ego4d_3d import Box3D, world_from_annotation
from egohieraloc.errors import DataError
from egohieraloc.figures import style
from egohieraloc.figures.rows import query_image
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.query import Query
from egohieraloc.report.scene import leveling, uncertainty_axes
from egohieraloc.result import Result
from egohieraloc.types import Floats, FramePrediction, Localization3D, ResponseTrack
from egohieraloc.video.reader import Video

EDGES = ((0, 1), (0, 2), (0, 4), (1, 3), (1, 5), (2, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7), (6, 7))
QUERY_SHARE = 0.3  # of a view's width


@dataclass(frozen=True, eq=False)
class PlaceComparison:
    """One VQ3D query: the ground-truth box, several answers and, if known, the camera path and the query."""

    title: str
    truth: Box3D | None
    points_world: tuple[tuple[str, Floats | None], ...]  # by method; None: no answer
    cam_from_world: Floats  # (N, 3, 4) of the clip's posed frames; N may be 0
    query: Query | None = None
    unit: str = "m"


@dataclass(frozen=True, eq=False)
class Projection:
    """An orthographic projection of the scene onto the page: its right and up directions in the world."""

    page_from_world: Floats  # (2, 3)

    @classmethod
    def over(cls, cam_from_world: Floats, *, elevation_deg: float, azimuth_deg: float) -> Projection:
        """From a direction above the ground plane, which is found from the camera path."""
        azimuth, height = np.radians(azimuth_deg), np.radians(elevation_deg)
        right = np.array([-np.sin(azimuth), np.cos(azimuth), 0])
        up = np.array([-np.cos(azimuth) * np.sin(height), -np.sin(azimuth) * np.sin(height), np.cos(height)])
        return cls(np.stack([right, up]) @ leveling(cam_from_world))

    def __call__(self, points_world: Floats) -> Floats:
        """Points (N, 3) on the page (N, 2)."""
        return np.atleast_2d(points_world) @ self.page_from_world.T


def oblique(scene: PlaceComparison, *, azimuth_deg: float = -62) -> Projection:
    return Projection.over(scene.cam_from_world, elevation_deg=32, azimuth_deg=azimuth_deg)


def from_above(scene: PlaceComparison) -> Projection:
    return Projection.over(scene.cam_from_world, elevation_deg=90, azimuth_deg=-90)


def draw_scenes(
    path: str | Path, scenes: Sequence[PlaceComparison], *, width_in: float = style.PAGE_IN
) -> None:
    """Each row: the query, the scene seen from the side, and from above."""
    if not scenes:
        raise DataError("There is nothing to draw: no query was chosen.")
    with_query = any(scene.query is not None for scene in scenes)
    widths = [*([QUERY_SHARE] if with_query else []), 1.0, 1.0]
    view_in = width_in / sum(widths)
    heights_in = [
        view_in * max(_aspect(scene, view(scene)) for view in (oblique, from_above)) for scene in scenes
    ]
    with style.figure(path, width_in, sum(heights_in) + 0.3 * len(scenes) + 0.2) as drawn:
        names = [name for name, _ in scenes[0].points_world]
        style.legend(drawn, names, truth=any(scene.truth is not None for scene in scenes))
        grid = drawn.subplots(
            len(scenes), len(widths), width_ratios=widths, height_ratios=heights_in, squeeze=False
        )
        for scene, line in zip(scenes, grid, strict=True):
            if with_query:
                _bare(line[0])
                if scene.query is not None:
                    style.show_image(line[0], query_image(scene.query), title=scene.title)
            for axes, view, label in ((line[-2], oblique, ""), (line[-1], from_above, "from above, ")):
                _show_scene(axes, scene, view(scene), label)


def draw_lift(
    path: str | Path,
    answers: Sequence[tuple[str, Result]],
    truth: Box3D | None = None,
    *,
    frames: int = 4,
    width_in: float = style.PAGE_IN,
) -> None:
    """Above, frames of the first method with its boxes; below, its path and rays and every fused point."""
    name, first = answers[0]
    place, cameras, track = first.place, first.cameras, first.track
    if not (isinstance(place, Localization3D) and isinstance(track, ResponseTrack)) or cameras is None:
        raise DataError(f"'{name}' has no 3D place. Make it with `egohieraloc locate ... --3d --out DIR`.")
    used = {view.frame_index for view in place.views}
    shown = [p for p in track.predictions if p.frame_index in used]
    shown = [shown[i] for i in style.evenly(np.arange(len(shown)), frames)]
    video = Video.reopen(first.video.source)
    poses = np.array([pose.cam_from_world for pose in cameras.poses.values()]).reshape(-1, 3, 4)
    places = [(n, r.place.point_world if isinstance(r.place, Localization3D) else None) for n, r in answers]
    scene = PlaceComparison("", truth, tuple(places), poses, unit=place.unit)
    project = oblique(scene, azimuth_deg=_beside(cameras, place, poses))
    images_in = width_in / len(shown) * video.info.height / video.info.width + 0.2
    scene_in = min(0.5, _aspect(scene, project)) * width_in + 0.2
    with style.figure(path, width_in, images_in + scene_in + 0.2) as drawn:
        style.legend(drawn, [name for name, _ in answers], truth=truth is not None)
        grid = drawn.add_gridspec(2, len(shown), height_ratios=[images_in, scene_in])
        for column, prediction in enumerate(shown):
            _show_prediction(drawn.add_subplot(grid[0, column]), video, prediction)
        below = drawn.add_subplot(grid[1, :])
        _show_scene(below, scene, project)
        _show_views(below, cameras, place, {p.frame_index for p in shown}, project)


def corners_world(box: Box3D) -> Floats:
    """The eight corners (8, 3). The rotation is about the axes of the annotation file, x first."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    x, y, z = (_rotation(axis, angle) for axis, angle in enumerate(box.rotation_xyz_rad))
    return box.center_world + world_from_annotation(signs * box.size / 2 @ (x @ y @ z).T)


def _rotation(axis: int, angle_rad: float) -> Floats:
    a, b = [i for i in range(3) if i != axis]
    sine = np.sin(angle_rad) * (-1 if axis == 1 else 1)
    matrix = np.eye(3)
    matrix[a, a] = matrix[b, b] = np.cos(angle_rad)
    matrix[a, b], matrix[b, a] = -sine, sine
    return matrix


def _centers(poses: Floats) -> Floats:
    centers: Floats = -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])
    return centers


def _outline(scene: PlaceComparison) -> Floats:
    """Every point (N, 3) that must be in the figure."""
    points = [_centers(scene.cam_from_world)]
    points += [point[None] for _, point in scene.points_world if point is not None]
    if scene.truth is not None:
        points.append(corners_world(scene.truth))
    found = np.concatenate(points)
    if len(found) == 0:
        raise DataError("There is nothing to draw in 3D: no ground truth, no answer and no camera path.")
    return found


def _floor(scene: PlaceComparison) -> tuple[Floats, float]:
    """Lines (L, 2, 3) of a grid under everything, and its step: 1, 2 or 5 times a power of ten."""
    level = leveling(scene.cam_from_world)
    points = _outline(scene) @ level.T
    low, high = points.min(0), points.max(0)
    reach = float((high - low).max()) or 1.0
    power = 10.0 ** np.floor(np.log10(reach / 3))
    step = float(power * max(f for f in (1, 2, 5) if f * power <= reach / 3 * (1 + 1e-9)))
    x1, y1 = np.floor(low[:2] / step) * step
    x2, y2 = np.ceil(high[:2] / step) * step
    z = low[2] - 0.03 * reach
    across = [[[x, y1, z], [x, y2, z]] for x in np.arange(x1, x2 + step / 2, step)]
    along = [[[x1, y, z], [x2, y, z]] for y in np.arange(y1, y2 + step / 2, step)]
    return np.array(across + along) @ level, step


def _aspect(scene: PlaceComparison, project: Projection) -> float:
    """Height over width of what is shown."""
    page = project(np.concatenate([_outline(scene), _floor(scene)[0].reshape(-1, 3)]))
    width, height = np.ptp(page, axis=0)
    return float(height / max(width, 1e-9))


def _beside(cameras: Reconstruction, place: Localization3D, poses: Floats) -> float:
    """The azimuth that shows the rays from the side, not end on."""
    starts = np.mean([cameras.poses[view.frame_index].center_world for view in place.views], axis=0)
    east, north, _ = leveling(poses) @ (place.point_world - starts)
    return float(np.degrees(np.arctan2(north, east))) + 90


def _bare(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _show_prediction(axes: Any, video: Video, prediction: FramePrediction) -> None:
    style.show_image(axes, video.frame(prediction.frame_index).rgb, below=f"{prediction.time_s:.1f} s")
    axes.set(xlim=(0, video.info.width), ylim=(video.info.height, 0))
    style.show_box(axes, prediction.box.xyxy, style.colour(0))


def _show_scene(axes: Any, scene: PlaceComparison, project: Projection, label: str = "") -> None:
    """The floor, the camera path with its shadow, and a box (or, without ground truth, a dot) per answer."""
    _bare(axes)
    lines, step = _floor(scene)
    for line in lines:
        axes.plot(*project(line).T, color="#dde1e5", linewidth=0.5, zorder=0)
    unit = "m" if scene.unit == "m" else "units"
    axes.set_xlabel(f"{label}grid {step:g} {unit}", color=style.QUIET, labelpad=2)
    path = _centers(scene.cam_from_world)
    if len(path):
        axes.plot(*project(_dropped(path, scene, lines)).T, color="#c9ced4", linewidth=0.7, zorder=1)
        axes.plot(*project(path).T, color=style.QUIET, linewidth=1.0, zorder=2)
        axes.plot(*project(path[-1]).T, "o", color=style.QUIET, markersize=3, zorder=2)
    answered = [(i, point) for i, (_, point) in enumerate(scene.points_world) if point is not None]
    if scene.truth is not None:
        _show_box(axes, scene.truth, scene.truth.center_world, project, style.TRUTH, "-")
    for i, point in answered:
        if scene.truth is None:
            axes.plot(*project(point).T, "o", color=style.colour(i), markersize=4, zorder=5)
        else:
            _show_box(axes, scene.truth, point, project, style.colour(i), style.dashes(i))
    axes.set_aspect("equal")
    axes.margins(0.02)


def _dropped(points_world: Floats, scene: PlaceComparison, floor: Floats) -> Floats:
    """Straight down onto the floor."""
    up = leveling(scene.cam_from_world)[2]
    return points_world - np.outer((points_world - floor[0, 0]) @ up, up)


def _show_box(axes: Any, box: Box3D, center_world: Floats, project: Projection, edge: str, dash: Any) -> None:
    corners = project(corners_world(box) - box.center_world + center_world)
    for a, b in EDGES:
        axes.plot(*corners[[a, b]].T, color=edge, linestyle=dash, linewidth=1.0, zorder=4)


def _show_views(
    axes: Any, cameras: Reconstruction, place: Localization3D, shown: set[int], project: Projection
) -> None:
    """Each view's ray, stronger where it weighs more, and the ellipsoid of two standard deviations."""
    largest = max((view.weight for view in place.views), default=0.0) or 1.0
    for view in place.views:
        start, end = project(cameras.poses[view.frame_index].center_world), project(view.point_world)
        alpha = 0.15 + 0.6 * view.weight / largest
        axes.plot(
            *np.concatenate([start, end]).T, color=style.colour(0), alpha=alpha, linewidth=0.6, zorder=3
        )
        if view.frame_index in shown:
            axes.plot(*start.T, "o", color="#000000", markersize=2.5, zorder=6)
    half_axes, turn = uncertainty_axes(place.covariance), np.linspace(0, 2 * np.pi, 60)[:, None]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        ring = place.point_world + np.cos(turn) * half_axes[a] + np.sin(turn) * half_axes[b]
        axes.plot(*project(ring).T, color=style.colour(0), linewidth=0.6, zorder=5)
    axes.plot(
        *project(place.point_world).T,
        "o",
        color=style.colour(0),
        markeredgecolor="#000000",
        markersize=3.5,
        zorder=6,
    )
