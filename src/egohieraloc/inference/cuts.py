"""Hard cuts: where a video goes on in another place from one sample to the next.

Two samples a fifth of a second apart show mostly the same, however the camera moves, but not across a cut.
The mean descriptor of a sample tells: its cosine with that of the one before lies above 0.75 within a shot,
blurred and fast ones included, and mostly below 0.6 across a cut.
"""

from __future__ import annotations

import numpy as np

from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.store import CHUNK
from egohieraloc.inference.temporal import Interval
from egohieraloc.types import Floats

SAME_SHOT = 0.6  # cosine of two samples' mean descriptors


def shot_of(video: EncodedVideo, sample: int, around: Interval) -> Interval:
    """The samples of an interval without a cut between them and `sample`, which lies in it."""
    first, last = around
    cuts = first + 1 + np.flatnonzero(_similarity(video, first, last) < SAME_SHOT)  # each begins a shot
    before, after = cuts[cuts <= sample], cuts[cuts > sample]
    return int(before[-1]) if len(before) else first, int(after[0]) - 1 if len(after) else last


def _similarity(video: EncodedVideo, first: int, last: int) -> Floats:
    """Cosines (last - first,) of the mean descriptors of neighbouring samples."""
    means = []
    for number in range(first // CHUNK, last // CHUNK + 1):
        cells = video.descriptors(number)[0].astype(np.float32)  # (N, D, h, w) up to a scale for each sample
        cells /= np.linalg.norm(cells, axis=1, keepdims=True).clip(1e-6)
        means.append(cells.mean((2, 3)))
    mean = np.concatenate(means)[first - first // CHUNK * CHUNK :][: last + 1 - first]
    mean /= np.linalg.norm(mean, axis=1, keepdims=True).clip(1e-6)
    return np.asarray((mean[1:] * mean[:-1]).sum(1), np.float64)
