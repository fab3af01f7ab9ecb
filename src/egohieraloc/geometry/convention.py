"""Whether given camera poses can be right, by what the frames show.

A point seen in two frames must lie, in the second, on the line that its ray in the first and the two poses
allow. Files do not say whether a matrix is world-from-camera or the inverse, nor which way the camera's axes
point; only one of the four readings agrees with the images. N is the number of matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import GeometryError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.given import OURS, Convention, FrameTable, GivenCameras, fitted_to, matched
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.types import Floats, Frame, Rgb

MIN_MATCHES = 60  # over all pairs; with fewer nothing can be said
AGREES_DEG = 1.0
ACCEPTED_SHARE = 0.7  # of the matches agree with poses that are right: some matches are wrong
BETTER = 1.3  # times the share of the stated convention: then another one is meant
REFUSED_SHARE = 0.35  # what poses of another video reach by chance is below
PAIRS, APART_S = 5, 0.5
RATIO = 0.75  # of the distances to the best and to the second best descriptor
CONVENTIONS = [
    Convention(axes, direction)
    for direction in ("world from camera", "camera from world")
    for axes in ("OpenCV", "OpenGL")
]
_MATCH_SIDE_PX = 640
_DEPTHS = 48  # samples along the line, from infinity to as near as the cameras are apart
_QUARTER = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Matches:
    """The same points in two frames: pixels (N, 2) of each."""

    first: int
    second: int
    first_px: Floats
    second_px: Floats


@dataclass(frozen=True)
class Reading:
    """One way to read the matrices of a file, and by how many quarter turns the images were turned since."""

    convention: Convention
    turns: int = 0

    def __str__(self) -> str:
        turned = f", images turned by {90 * self.turns} degrees" if self.turns else ""
        return f"{self.convention}{turned}"


def match_frames(pairs: Iterable[tuple[Frame, Frame]]) -> list[Matches]:
    """Matches between the two frames of each pair, by SIFT."""
    detector, matcher = cv2.SIFT.create(1500), cv2.BFMatcher(cv2.NORM_L2)
    found: list[Matches] = []
    for first, second in pairs:
        first_px, first_features = _features(detector, first.rgb)
        second_px, second_features = _features(detector, second.rgb)
        if min(len(first_px), len(second_px)) < 2:
            continue
        nearest = matcher.knnMatch(first_features, second_features, k=2)
        good = [best for best, other in nearest if best.distance < RATIO * other.distance]
        first_rows, second_rows = [m.queryIdx for m in good], [m.trainIdx for m in good]
        found.append(Matches(first.index, second.index, first_px[first_rows], second_px[second_rows]))
    return found


def _features(detector: cv2.SIFT, rgb: Rgb) -> tuple[Floats, NDArray[np.float32]]:
    """Pixels (N, 2) and descriptors (N, 128)."""
    scale = min(1.0, _MATCH_SIDE_PX / max(rgb.shape[:2]))
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else grey
    keypoints, descriptors = detector.detectAndCompute(small, None)
    pixels = np.array([point.pt for point in keypoints], np.float64).reshape(-1, 2)
    # OpenCV's pixel centres are integers.
    return (pixels + 0.5) / scale, descriptors if len(pixels) else np.empty((0, 128), np.float32)


def agreement(matches: Iterable[Matches], camera: Camera, poses: Mapping[int, CameraPose]) -> float:
    """The share of matches that agree with the poses."""
    off = [_off_line_deg(pair, camera, poses[pair.first], poses[pair.second]) for pair in matches]
    return float((np.concatenate(off) <= AGREES_DEG).mean())


def _off_line_deg(pair: Matches, camera: Camera, first: CameraPose, second: CameraPose) -> Floats:
    """How far (N,) the second ray is from where the first may appear, at any depth beyond the baseline."""
    ray_first, ray_second = camera.rays(pair.first_px), camera.rays(pair.second_px)
    seen = np.isfinite(ray_first).all(1) & np.isfinite(ray_second).all(1)  # else the lens has no ray there
    far = second.rotation @ first.rotation.T @ ray_first[seen].T  # (3, N): a point at infinity
    moved = second.to_cam(first.center_world)
    length = float(np.linalg.norm(moved))
    steps = np.linspace(0, 1, _DEPTHS)[:, None, None] if length > 0 else np.zeros((1, 1, 1))
    directions = far[None] + steps * (moved / max(length, 1e-12))[None, :, None]  # (D, 3, N)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    cosine = np.einsum("dcn,nc->dn", directions, ray_second[seen]).max(0)
    angle: Floats = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return angle


def checked(
    given: GivenCameras, frames: FrameTable, read: Callable[[Sequence[int]], Iterable[Frame]]
) -> tuple[GivenCameras, str]:
    """The cameras as they must be read, and a word on it; a GeometryError where no reading can be right.

    read: gives frames of the video by increasing numbers.
    """
    pairs = _pairs(matched(given, frames))
    images = {frame.index: frame for frame in read(sorted({index for pair in pairs for index in pair}))}
    matches = match_frames((images[a], images[b]) for a, b in pairs if a in images and b in images)
    judged = sum(len(pair.first_px) for pair in matches)
    if judged < MIN_MATCHES:
        return given, f"The poses of {given.source} could not be checked: too few matches between frames."
    height, width = next(iter(images.values())).rgb.shape[:2]
    share = {
        reading: agreement(matches, fitted_to(posed.camera, width, height), posed.poses)
        for reading in _readings(given, width, height)
        if (posed := matched(_read_as(given, reading), frames))
    }
    stated = Reading(given.convention)
    best = max(share, key=lambda reading: share[reading])
    if stated in share and (share[stated] >= ACCEPTED_SHARE or share[best] < BETTER * share[stated]):
        best = stated
    if share[best] < REFUSED_SHARE:
        raise GeometryError(
            f"The poses of {given.source} do not fit the video: read as {best}, {share[best]:.0%} of "
            f"{judged} matches between frames agree. Do they belong to this video, at these times?"
        )
    if best == stated:
        return given, f"{share[best]:.0%} of {judged} matches between frames agree with {given.source}."
    return _read_as(given, best), (
        f"The poses of {given.source} are read as {best}: {share[best]:.0%} of {judged} matches between "
        f"frames agree. Stated was {stated}: {share.get(stated, 0.0):.0%}."
    )


def _pairs(posed: Reconstruction) -> list[tuple[int, int]]:
    """Frames with a pose some half a second apart, spread over the video."""
    frames = [frame for frame in posed.frames if frame.pose is not None]
    times_s = np.array([frame.time_s for frame in frames])
    pairs = []
    for share in np.linspace(0.05, 0.95, PAIRS):
        first = int(share * (len(frames) - 1))
        second = min(int(np.searchsorted(times_s, times_s[first] + APART_S)), len(frames) - 1)
        if second > first:
            pairs.append((frames[first].index, frames[second].index))
    return list(dict.fromkeys(pairs))


def _readings(given: GivenCameras, width: int, height: int) -> list[Reading]:
    """All four conventions; of a phone held upright, whose sensor lies on its side, both turns."""
    lens = given.camera
    on_side = width != height and (lens.width < lens.height) != (width < height)
    return [Reading(each, turns) for each in CONVENTIONS for turns in ((1, 3) if on_side else (0,))]


def _read_as(given: GivenCameras, reading: Reading) -> GivenCameras:
    """The same matrices read otherwise; of turned images in our own convention."""
    if reading.turns == 0:
        return replace(given, convention=reading.convention)
    turn = np.eye(4)
    turn[:3, :3] = np.linalg.matrix_power(_QUARTER, reading.turns)
    views = tuple(
        replace(view, matrix=turn @ OURS.matrix(reading.convention.pose(view.matrix))) for view in given.views
    )
    return replace(given, camera=given.camera.turned(reading.turns), views=views, convention=OURS)
