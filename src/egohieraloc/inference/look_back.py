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
    best = [next(iter(best_samples(decoded, interval, 1)), None) for interval in appearances]
    try:
        frames = search.video.frames(sample for sample in best if sample is not None)
    except (VideoError, OSError):
        return None
    cut: dict[int, Query] = {}
    for sample in frames:
        letterbox = search.video.letterbox_at(sample)
        box = letterbox.box_from_canvas(decoded[sample].box).clipped(*letterbox.frame_size)
        if min(box.width, box.height) >= MIN_SIDE_PX:
            cut[sample] = Query(frames[sample].rgb, box)
    logits = search.predictor.look_back(search.query, list(cut.values())) if cut else []
    seen = dict(zip(cut, logits, strict=True))
    return [None if sample is None else seen.get(sample) for sample in best]
