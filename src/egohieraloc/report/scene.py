"""The 3D view of report and page: camera path, what each view says, the fused point and its uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from egohieraloc.geometry.place import describe
from egohieraloc.result import Result
from egohieraloc.types import Floats, Localization3D, NotLocalized, ViewEvidence

MOST_POINTS = 4000


@dataclass(frozen=True, eq=False)
class SceneData:
    """What is known in 3D. `cam_from_world` has one (3, 4) pose per posed frame, in order of time."""

    place: Localization3D | NotLocalized
    frame_indices: tuple[int, ...] = ()
    cam_from_world: tuple[Floats, ...] = ()
    words: str = ""  # such as "1.8 m, to your left and below"
    map_points_world: Floats | None = None  # (N, 3) of the reconstruction, shown as dust
    true_point_world: Floats | None = None  # where it is known

    def __post_init__(self) -> None:
        if len(self.frame_indices) != len(self.cam_from_world):
            raise ValueError(
                f"Each posed frame needs a pose, got {len(self.frame_indices)} frames "
                f"and {len(self.cam_from_world)} poses"
            )


def scene_of(result: Result, true_point_world: Floats | None = None) -> SceneData | None:
    """What an answer knows in 3D; None when nobody asked for it."""
    if result.place is None:
        return None
    words = describe(result.place) if isinstance(result.place, Localization3D) else ""
    cameras = result.cameras
    poses = cameras.poses if cameras else {}
    return SceneData(
        result.place,
        tuple(poses),
        tuple(pose.cam_from_world for pose in poses.values()),
        words,
        cameras.points.xyz_world if cameras else None,
        true_point_world,
    )


def scene_payload(scene: SceneData) -> dict[str, Any]:
    """The scene as JSON values, turned so that z is up and moved so that the middle is the origin."""
    place = scene.place
    if isinstance(place, NotLocalized):
        shared = {"found": False, "reason": place.reason, "unit": "", "words": ""}
    else:
        shared = {"found": True, "reason": None, "unit": place.unit, "words": scene.words}
    poses = np.array(scene.cam_from_world, np.float64).reshape(-1, 3, 4)
    centers = -np.einsum("nji,nj->ni", poses[:, :, :3], poses[:, :, 3])
    level_from_world = leveling(poses)
    origin = centers.mean(0) if len(centers) else np.zeros(3)

    def level(points: Floats) -> list[Any]:
        return np.round((np.asarray(points) - origin) @ level_from_world.T, 4).tolist()

    payload = shared | {
        "posed": place.posed_frames,
        "frames": place.num_frames,
        "path": level(centers),
        "pathFrames": list(scene.frame_indices),
        "forward": np.round(poses[:, 2, :3] @ level_from_world.T, 4).tolist(),
        "dust": level(_thin(scene.map_points_world)) if scene.map_points_world is not None else [],
        "truth": level(scene.true_point_world) if scene.true_point_world is not None else None,
        "views": [],
    }
    if isinstance(place, NotLocalized):
        return payload
    index_of_frame = {frame: i for i, frame in enumerate(scene.frame_indices)}
    return payload | {
        "point": level(place.point_world),
        "axes": np.round(uncertainty_axes(place.covariance) @ level_from_world.T, 5).tolist(),
        "distance": round(place.distance, 4),
        "displacement": np.round(place.displacement, 4).tolist(),
        "asked": index_of_frame.get(place.query_frame),
        "views": [
            _view(v) | {"point": level(v.point_world), "camera": index_of_frame.get(v.frame_index)}
            for v in place.views
        ],
    }


def _view(view: ViewEvidence) -> dict[str, Any]:
    factors = {
        name: round(getattr(view, name), 4)
        for name in ("weight", "semantic", "depth", "reprojection", "baseline")
    }
    return {"frame": view.frame_index} | factors


def leveling(poses: Floats) -> Floats:
    """Rotation (3, 3) that takes the mean "up" of the heads to z; reconstructions do not know where up is."""
    if len(poses) == 0:
        return np.eye(3)
    up = -poses[:, 1, :3].mean(0)
    length = np.linalg.norm(up)
    if length < 1e-6:
        return np.eye(3)
    up = up / length
    ahead = poses[0, 2, :3] - up * (up @ poses[0, 2, :3])
    if np.linalg.norm(ahead) < 1e-6:
        ahead = np.cross(up, np.eye(3)[np.argmin(np.abs(up))])
    ahead = ahead / np.linalg.norm(ahead)
    return np.stack([np.cross(ahead, up), ahead, up])


def uncertainty_axes(covariance: Floats) -> Floats:
    """The three half-axes (3, 3), one per row, of the ellipsoid of two standard deviations."""
    variances, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    return 2 * np.sqrt(np.clip(variances, 0, None))[:, None] * directions.T


def _thin(points: Floats) -> Floats:
    """At most MOST_POINTS of them, evenly taken, without the far outliers every reconstruction has."""
    if len(points) == 0:
        return np.asarray(points, np.float64).reshape(0, 3)
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    near = points[distance <= 4 * np.median(distance) + 1e-12]
    return near[:: max(1, -(-len(near) // MOST_POINTS))]
