"""What a video still answers when its file is gone.

A first reading makes every second sample, and questions make others where they decode (inference/chunks.py).
Of those that were never made the sample before is shown: the answer is the same but for a fifth of a second.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from egohieraloc.inference.chunks import PHASES
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.store import FeatureStore


def without_video(encoded: EncodedVideo) -> EncodedVideo:
    """The same video, answered from the features there are; those that the cache threw out are missed."""
    return replace(encoded, store=_EvenForOdd(encoded.store.folder))


class _EvenForOdd(FeatureStore):
    def has(self, number: int) -> bool:
        return super().has(number) or super().has(_even(number))

    def read(self, number: int) -> PackedFeatures | None:
        return super().read(number) or super().read(_even(number))

    def read_match(self, number: int) -> tuple[NDArray[np.int8], NDArray[np.float16]] | None:
        return super().read_match(number) or super().read_match(_even(number))


def _even(number: int) -> int:
    """The chunk of the same stretch that a first reading makes."""
    return number - number % PHASES
