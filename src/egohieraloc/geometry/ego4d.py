"""Ego4D VQ3D: the official camera poses and intrinsics in, one query's part of a submission out.

Their poses are world-to-camera in the frame of the scan, one for each 5 fps frame of a clip. The official
baseline multiplies by them the wrong way round; here they are `cam_from_world` like all others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.errors import DataError, GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.types import Localization3D, NotLocalized

CLIP_FPS = 5.0


def read_clip_poses(path: str | Path, clip_uid: str, camera: Camera) -> Reconstruction:
    """The poses of one clip from `{clip_uid: {"good_poses": [...], "camera_poses": [3x4, ...]}}`, in metres.

    Frame numbers are those of the 5 fps clip. A pose that is not marked good, or is no pose, is left out.
    """
    clips = _read(path)
    try:
        clip = clips[clip_uid]
        good, matrices = clip["good_poses"], clip["camera_poses"]
        rows = [
            PosedFrame(i, i / CLIP_FPS, _pose(matrix) if valid else None)
            for i, (valid, matrix) in enumerate(zip(good, matrices, strict=True))
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} has no poses for clip {clip_uid}: {type(error).__name__} {error}. Wanted "
            '{clip_uid: {"good_poses": [bool per frame], "camera_poses": [3x4 per frame]}}.'
        ) from error
    return Reconstruction(camera, tuple(rows), "m")


def read_scan_camera(path: str | Path, scan_uid: str, *, width: int, height: int) -> Camera:
    """The fisheye camera of a scan's videos from scan_to_intrinsics.json, for one picture size."""
    scans = _read(path)
    try:
        value = scans[scan_uid][str((str(width), str(height)))]
        params = tuple(float(value[name]) for name in ("f", "cx", "cy", "k1", "k2"))
    except (KeyError, TypeError, ValueError) as error:
        known = {uid: list(sizes) for uid, sizes in scans.items()} if isinstance(scans, dict) else scans
        raise DataError(
            f"{path} has no intrinsics for scan {scan_uid!r} at {width}x{height}; it knows {known}."
        ) from error
    return Camera("RADIAL_FISHEYE", width, height, params)


def submission_entry(answer: Localization3D | NotLocalized, poses: Reconstruction) -> dict[str, Any]:
    """One query's part of a submission: the place in the scan and in the query camera, and its pose."""
    if isinstance(answer, NotLocalized):
        return {"pred_3d_vec_world": None, "pred_3d_vec_query_frame": None, "query_frame_pose": None}
    pose = np.eye(4)
    pose[:3] = poses.poses[answer.asked_frame].cam_from_world
    return {
        "pred_3d_vec_world": answer.point_world.tolist(),
        "pred_3d_vec_query_frame": answer.displacement.tolist(),
        "query_frame_pose": pose.tolist(),
    }


def _pose(matrix: Any) -> CameraPose | None:
    try:
        return CameraPose(np.asarray(matrix, np.float64)[:3])
    except GeometryError:
        return None


def _read(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}.") from error
