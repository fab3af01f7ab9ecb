"""VQ3D's measures: distance to the first annotator, a success radius from both, angle in the query's camera.

Everything is in the frame of the scan. The vector to the ground truth uses the prediction's own query pose,
so the angle does not include an error of that pose. Means are over the answered queries only, so the coverage
(QwP) and a baseline are reported beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.data.base import QueryKey, reading
from egohieraloc.data.ego4d import VisualQuery, annotation_name, clip_name
from egohieraloc.data.ego4d_3d import Box3D, PlaceQuery
from egohieraloc.data.stream import read_object
from egohieraloc.errors import DataError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.predictions import (
    PlaceAnswer,
    is_own,
    pose,
    read_places,
    require_common,
    vector,
    vectors,
)
from egohieraloc.types import Floats

RADIUS_FACTOR = 6.0
FIXED_RADII_M = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Vq3dScores:
    """Percentages of all queries unless said otherwise; distances in metres, angles in radians."""

    num_queries: int
    num_places: int  # queries with a point in the scan
    num_vectors: int  # queries with a vector in the query frame
    success: float  # needs the vector too, so it is at most `coverage`
    success_star: float  # of the queries with a point
    distance_m: float | None  # L2, mean over the queries with a point
    angle_1_rad: float | None  # to annotator 1, as the benchmark's code has it
    angle_2_rad: float | None  # to annotator 2
    coverage: float  # QwP, queries with pose
    success_at: tuple[tuple[float, float], ...]  # (radius in metres, percent of all queries)

    @property
    def measures(self) -> dict[str, float | None]:
        """By their usual names; None where nothing was answered."""
        return {
            "Succ %": self.success,
            "Succ* %": self.success_star,
            "L2 m": self.distance_m,
            "angle to annotator 1 rad": self.angle_1_rad,
            "angle to annotator 2 rad": self.angle_2_rad,
            "QwP %": self.coverage,
            **{f"nearer than {radius:g} m %": percent for radius, percent in self.success_at},
        }


@dataclass(frozen=True)
class Vq3dReport:
    """The predictions beside a baseline that answers with one constant point per scan."""

    scores: Vq3dScores
    scan_centroid: Vq3dScores
    groups: tuple[tuple[str, Vq3dScores], ...]
    missing: int  # queries without a prediction
    ignored: int  # predictions for no query of the annotation file

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "groups": {name: asdict(scores) for name, scores in self.groups}}


def success_radius_m(first: Box3D, second: Box3D) -> float:
    """6 (distance of the two centres + exp(-mean diagonal)): the smaller the box, the larger the radius."""
    apart = float(np.linalg.norm(first.center_world - second.center_world))
    return RADIUS_FACTOR * (apart + float(np.exp(-(first.diagonal + second.diagonal) / 2)))


def angle_rad(a: Floats, b: Floats) -> float | None:
    """Between two vectors; None when one has no direction."""
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.arccos(np.clip(a @ b / norms, -1, 1))) if norms > 0 else None


def score(queries: Sequence[PlaceQuery], answers: Mapping[QueryKey, PlaceAnswer]) -> Vq3dScores:
    """All measures of a set of queries. A query without an answer counts as one without a point."""
    return summarize(measure(queries, answers))


def summarize(measured: Sequence[Measured | None]) -> Vq3dScores:
    """From what was measured of each query; None for a query without a point."""
    if not measured:
        raise DataError("There is no VQ3D query to score. Are these the annotations of the split?")
    found = [m for m in measured if m is not None]
    seen = [m for m in found if m.has_vector]
    total = len(measured)
    return Vq3dScores(
        num_queries=total,
        num_places=len(found),
        num_vectors=len(seen),
        success=100 * sum(m.is_success for m in seen) / total,
        success_star=100 * sum(m.is_success for m in found) / max(len(found), 1),
        distance_m=_mean(m.to_first_m for m in found),
        angle_1_rad=_mean(m.angles_rad[0] for m in seen),
        angle_2_rad=_mean(m.angles_rad[1] for m in seen),
        coverage=100 * len(seen) / total,
        success_at=tuple((r, 100 * sum(m.to_middle_m < r for m in found) / total) for r in FIXED_RADII_M),
    )


@dataclass(frozen=True)
class Measured:
    """One query with a point."""

    to_first_m: float  # distance to annotator 1
    to_middle_m: float  # distance to the middle of both
    is_success: bool
    has_vector: bool
    angles_rad: tuple[float | None, float | None]  # to each annotator


def measure(queries: Sequence[PlaceQuery], answers: Mapping[QueryKey, PlaceAnswer]) -> list[Measured | None]:
    """In the order of the queries."""
    require_common(queries, answers)
    return [_measure(query, answers.get(query.key)) for query in queries]


def _measure(query: PlaceQuery, answer: PlaceAnswer | None) -> Measured | None:
    if query.problem:
        return None
    if query.boxes is None:
        raise DataError(f"The annotation file has no 3D boxes for {query.key}: this split cannot be scored.")
    if answer is None or answer.point_world is None:
        return None
    first, second = (box.center_world for box in query.boxes)
    to_middle = float(np.linalg.norm((first + second) / 2 - answer.point_world))
    angles: tuple[float | None, float | None] = (None, None)
    if answer.displacement is not None and answer.query_from_world is not None:
        rotation, translation = answer.query_from_world[:3, :3], answer.query_from_world[:3, 3]
        angles = (
            angle_rad(answer.displacement, rotation @ first + translation),
            angle_rad(answer.displacement, rotation @ second + translation),
        )
    elif answer.displacement is not None and answer.truth_seen is not None:
        one, other = answer.truth_seen
        angles = angle_rad(answer.displacement, one), angle_rad(answer.displacement, other)
    return Measured(
        to_first_m=float(np.linalg.norm(first - answer.point_world)),
        to_middle_m=to_middle,
        is_success=to_middle < success_radius_m(*query.boxes),
        has_vector=answer.displacement is not None,
        angles_rad=angles,
    )


def scan_centroids(
    queries: Sequence[PlaceQuery], answers: Mapping[QueryKey, PlaceAnswer]
) -> dict[QueryKey, PlaceAnswer]:
    """The baseline that sees no video: the mean ground-truth position of a scan, for each of its queries.

    It has the query poses of `answers`, without which there are no vectors.
    """
    centers: defaultdict[str, list[Floats]] = defaultdict(list)
    for query in queries:
        if query.boxes is not None:
            centers[query.scan_uid].append(np.mean([b.center_world for b in query.boxes], 0))
    found = {}
    for query in queries:
        point = np.mean(centers[query.scan_uid], 0)
        pose = answers[query.key].query_from_world if query.key in answers else None
        seen = None if pose is None else pose[:3, :3] @ point + pose[:3, 3]
        found[query.key] = PlaceAnswer(query.key, point, seen, pose)
    return found


def report_vq3d(
    queries: Sequence[PlaceQuery],
    answers: Mapping[QueryKey, PlaceAnswer],
    visual: Mapping[QueryKey, VisualQuery] | None = None,
) -> Vq3dReport:
    """Score a set of predictions, as a whole and, where the 2D queries behind them are known, by group."""
    measured = measure(queries, answers)
    groups = {}
    if visual is not None:
        sharpness = [answers[q.key].crop_sharpness if q.key in answers else None for q in queries]
        groups = vq2d.groups([visual[q.key] for q in queries], sharpness)
    keys = {q.key for q in queries}
    return Vq3dReport(
        scores=summarize(measured),
        scan_centroid=score(queries, scan_centroids(queries, answers)),
        groups=tuple(
            (name, summarize([measured[i] for i in np.flatnonzero(which)]))
            for name, which in groups.items()
            if which.any()
        ),
        missing=len(keys - answers.keys()),
        ignored=len(answers.keys() - keys),
    )


def read_vq3d_predictions(path: str | Path) -> dict[QueryKey, PlaceAnswer]:
    """Our own file, or annotations filled with predictions: a submission, or what EgoLoc and others publish.

    In the latter `mp_` marks the frame of the scan; where such fields exist, those without it are in the
    frame of the annotations and are not read.
    """
    if is_own(path):
        return read_places(path)
    content = read_object(path, "a submission or annotations filled with predictions")
    answers: dict[QueryKey, PlaceAnswer] = {}
    with reading(str(path)):
        for video in content.get("results", content)["videos"]:
            for index, clip in enumerate(video["clips"]):
                name = clip_name(clip["clip_uid"], video["video_uid"], index)
                for place, annotation in enumerate(clip["annotations"]):
                    uid = annotation_name(annotation.get("annotation_uid"), place)
                    for query_set, query in annotation.get("query_sets", {}).items():
                        key = QueryKey(name, uid, query_set)
                        with reading(f"{path}: {key}"):
                            answers[key] = _answer(key, query)
    return answers


def _answer(key: QueryKey, query: dict[str, Any]) -> PlaceAnswer:
    prefix = "mp_" if any(field.startswith("mp_pred") for field in query) else ""
    displacement = query.get(f"{prefix}pred_3d_vec_query_frame", query.get(f"{prefix}pred_3d_vec"))
    # The official baseline's file has no pose, but the truth as the query camera sees it.
    truth = [query.get(f"gt_3d_vec_{annotator}") for annotator in (1, 2)]
    return PlaceAnswer(
        key=key,
        point_world=vector(query.get(f"{prefix}pred_3d_vec_world")),
        displacement=vector(displacement),
        query_from_world=pose(query.get("query_frame_pose")),
        truth_seen=vectors(truth) if None not in truth else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
