"""A look back: is what was found the object that the query shows?

A look-alike has what the query shows of the object; the object need not have what the look-alike shows. So
each candidate is searched for in the query's own image, as the query was in the video. Both images are
encoded already, so this costs the decoding of a frame or two for each candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.second_look import best_samples
from egohieraloc.inference.temporal import Interval

SAMPLES = 2  # of an appearance: two see more than one, and a third adds nothing


def look_back(
    search: QuerySearch, decoded: Mapping[int, Decoded], appearances: Sequence[Interval]
) -> list[float | None]:
    """The logit that the query's image shows what each appearance shows: the mean over its best samples; None
    of one of which no sample was decoded."""
    predictor, video = search.predictor, search.video
    logits: list[float | None] = []
    for interval in appearances:
        found = [
            predictor.template_from_sample(video.pick([sample]), decoded[sample])
            for sample in best_samples(decoded, interval, SAMPLES)
        ]
        seen = [predictor.look_back(search.query, template) for template in found]
        logits.append(float(np.mean(seen)) if seen else None)
    return logits
