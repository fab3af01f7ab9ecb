"""A look back: is what was found the object that the query shows?

A look-alike has what the query shows of the object; the object need not have what the look-alike shows. So
each candidate is cut out of its frame like a query and searched for in the query's own image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from egohieraloc.errors import VideoError
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.second_look import best_samples
from egohieraloc.inference.temporal import Interval
from egohieraloc.query import MIN_SIDE_PX, Query


def look_back(
    search: QuerySearch, decoded: Mapping[int, Decoded], appearances: Sequence[Interval]
) -> list[float | None] | None:
    """The logit that the query's image shows what each appearance shows in its best sample.

    None of an appearance that has nothing to cut out, and in all where the video cannot be read.
    """
    best = [best_samples(decoded, interval, 1) for interval in appearances]
    try:
        frames = search.video.frames({sample for samples in best for sample in samples})
    except (VideoError, OSError):
        return None
    letterbox = search.video.letterbox
    logits: list[float | None] = []
    for samples in best:
        logit = None
        for sample in samples:
            box = letterbox.box_from_canvas(decoded[sample].box).clipped(*letterbox.frame_size)
            if sample in frames and min(box.width, box.height) >= MIN_SIDE_PX:
                logit = search.predictor.look_back(search.query, Query(frames[sample].rgb, box))
        logits.append(logit)
    return logits
