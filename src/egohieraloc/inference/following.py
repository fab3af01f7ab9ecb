"""The state before any sample of a run, without decoding: each sample of the run is followed once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from egohieraloc.models.qam import QamState

Follow = Callable[[Sequence[int], QamState], QamState]  # the state after some samples, from the one before


@dataclass(frozen=True, eq=False)
class FollowedRun:
    """Consecutive samples, and the states before every n-th of them as far as they have been followed."""

    samples: Sequence[int]
    states: list[QamState]  # at least that of the beginning
    batch: int  # n, samples followed at a time

    def ahead(self, sample: int) -> Sequence[int]:
        """The samples that must be followed to know the state before one of them."""
        place = bisect_left(self.samples, sample)
        return self.samples[self.batch * self._nearest(place) : place]

    def state_before(self, sample: int, follow: Follow) -> QamState:
        place = bisect_left(self.samples, sample)
        nearest = self._nearest(place)
        state = self.states[nearest]
        for start in range(self.batch * nearest, place, self.batch):
            some = self.samples[start : min(start + self.batch, place)]
            state = follow(some, state)
            if len(some) == self.batch:
                self.states.append(state)
        return state

    def _nearest(self, place: int) -> int:
        """Which of the states is the last one known before a place."""
        return min(place // self.batch, len(self.states) - 1)
