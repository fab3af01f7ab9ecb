"""Mask propagation (appendix "VQL-to-VOT Transfer"): what one sample shows is searched for in the next.

As in video object segmentation, the object's cells in the sample before, those under its mask, are matched
beside the query's own. A sample that scores too low passes nothing on; then the query finds the object again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from egohieraloc.inference.packing import PackedFeatures
from egohieraloc.inference.predict import Decoded, Predictor, SearchTemplate


def passed_on(
    predictor: Predictor, packed: PackedFeatures, seen: Decoded, above: float | None
) -> SearchTemplate | None:
    """What a sample shows, for the next one; None where it scores below `above`, or that is None."""
    if above is None or seen.score < above:
        return None
    return predictor.template_from_sample(packed, seen)


def propagated(
    predictor: Predictor, query: SearchTemplate, samples: Iterable[PackedFeatures], above: float | None
) -> Iterator[Decoded]:
    """Decode consecutive samples one by one, each with what the one before has passed on."""
    state, shown = predictor.start(query), None
    for packed in samples:
        (seen,), state = predictor.decode(query.beside(shown), packed, state)
        shown = passed_on(predictor, packed, seen, above)
        yield seen
