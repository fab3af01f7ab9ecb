"""What a video still answers when its file is gone.

A first reading makes every second sample, and questions make others where they decode (inference/chunks.py).
Of those that were never made the sample before is shown: the answer is the same but for a fifth of a second.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from egohieraloc.errors import VideoError
from egohieraloc.inference.chunks import PHASES
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.reading import Reading
from egohieraloc.inference.store import FeatureStore
from egohieraloc.video.reader import Video


def without_video(encoded: EncodedVideo) -> EncodedVideo:
    """The same video, answered from the features there are; those that the cache threw out are missed. What
    lies under its name now is not read."""
    reading = encoded.reading and _Gone(encoded.reading.sampled, encoded.letterbox, encoded.reading.predictor)
    return replace(encoded, store=_EvenForOdd(encoded.store.folder), reading=reading)


class _Gone(Reading):
    @cached_property
    def video(self) -> Video:
        raise VideoError(f"{self.sampled.source.path} is no longer the video that was read.")


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
