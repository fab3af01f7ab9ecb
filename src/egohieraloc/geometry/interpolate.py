"""The path of a body through space, known at some times and wanted at others. V poses, N wanted times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation, Slerp

from egohieraloc.errors import GeometryError
from egohieraloc.types import Floats, Mask

TOLERANCE_S = 0.02  # a pose this near to a moment is the moment's
MAX_GAP_S = 0.25  # between poses further apart than this nothing is interpolated


@dataclass(frozen=True, eq=False)
class TimedPath:
    """`world_from_body` at increasing times."""

    times_s: Floats  # (V,)
    rotations: Floats  # (V, 3, 3)
    positions: Floats  # (V, 3)

    @classmethod
    def sorted(cls, times_s: Floats, matrices: Floats) -> TimedPath:
        """From matrices (V, 4, 4) in any order; of two at one time the first counts."""
        times_s, first = np.unique(times_s, return_index=True)
        if not len(times_s) or not np.isfinite(matrices).all() or not np.isfinite(times_s).all():
            raise GeometryError("A path needs one pose or more, and finite numbers only.")
        return cls(times_s, matrices[first, :3, :3], matrices[first, :3, 3])

    def at(self, wanted_s: Floats, *, max_gap_s: float = MAX_GAP_S) -> tuple[Floats, Mask]:
        """Matrices (N, 4, 4) at other times, and which of them are known (N,).

        On a straight line and with an even turn between two neighbours; unknown where these are further apart
        than `max_gap_s` and none is nearer than TOLERANCE_S.
        """
        matrices = np.tile(np.eye(4), (len(wanted_s), 1, 1))
        nearest = self._nearest(wanted_s)
        known = np.abs(self.times_s[nearest] - wanted_s) <= TOLERANCE_S
        matrices[:, :3, :3], matrices[:, :3, 3] = self.rotations[nearest], self.positions[nearest]
        if len(self.times_s) > 1:
            after = np.clip(np.searchsorted(self.times_s, wanted_s), 1, len(self.times_s) - 1)
            inside = (wanted_s >= self.times_s[0]) & (wanted_s <= self.times_s[-1])
            between = inside & (self.times_s[after] - self.times_s[after - 1] <= max_gap_s)
            turns = Slerp(self.times_s, Rotation.from_matrix(self.rotations))
            matrices[between, :3, :3] = turns(wanted_s[between]).as_matrix()
            for axis in range(3):
                line = np.interp(wanted_s[between], self.times_s, self.positions[:, axis])
                matrices[between, axis, 3] = line
            known |= between
        return matrices, known

    def turn_errors_rad(self, wanted_s: Floats) -> Floats:
        """How far (N,) the direction at other times may be off, by how unevenly the body turns.

        Between two poses a turn that speeds up by a leaves an even one by at most a t (T - t) / 2; beside the
        nearest pose it is the whole turn since.
        """
        if len(self.times_s) < 2:
            return np.zeros(len(wanted_s))
        step_s = np.diff(self.times_s)
        turns = Rotation.from_matrix(self.rotations[:-1].transpose(0, 2, 1) @ self.rotations[1:])
        speed = turns.as_rotvec() / step_s[:, None]  # (V - 1, 3) rad/s
        gap = np.clip(np.searchsorted(self.times_s, wanted_s) - 1, 0, len(step_s) - 1)
        since_s, until_s = wanted_s - self.times_s[gap], self.times_s[gap + 1] - wanted_s
        bend = np.linalg.norm(np.diff(speed, axis=0), axis=1) / ((step_s[1:] + step_s[:-1]) / 2)
        changes = np.maximum(
            np.append(bend, 0), np.append(0, bend)
        )  # (V - 1,) rad/s^2, the larger of both ends
        inside = (since_s >= 0) & (until_s >= 0) & (step_s[gap] <= MAX_GAP_S)
        aside_s = np.minimum(np.abs(since_s), np.abs(until_s))
        between = changes[gap] * since_s * until_s / 2
        errors: Floats = np.where(inside, between, np.linalg.norm(speed, axis=1)[gap] * aside_s)
        return errors

    def _nearest(self, wanted_s: Floats) -> NDArray[np.int64]:
        after = np.clip(np.searchsorted(self.times_s, wanted_s), 0, len(self.times_s) - 1)
        before = np.maximum(after - 1, 0)
        earlier = np.abs(wanted_s - self.times_s[before]) <= np.abs(self.times_s[after] - wanted_s)
        return np.where(earlier, before, after)
