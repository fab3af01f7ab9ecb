"""The state before a sample of a run is that of following all samples before it; few are followed twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from egohieraloc.inference.following import FollowedRun

SAMPLES, BATCH = list(range(100, 180, 2)), 7


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_asked_for_first(seed: int) -> None:
    """A state is all that it has seen."""
    seen: list[int] = []

    def follow(samples: Sequence[int], state: Any) -> Any:
        seen.extend(samples)
        return (*state, *samples)

    run = FollowedRun(SAMPLES, [()], BATCH)  # type: ignore[list-item]
    for place in np.random.default_rng(seed).permutation(len(SAMPLES)).tolist():
        ahead, before = list(run.ahead(SAMPLES[place])), len(seen)
        assert run.state_before(SAMPLES[place], follow) == tuple(SAMPLES[:place])
        assert seen[before:] == ahead
        assert len(run.ahead(SAMPLES[place])) < BATCH
