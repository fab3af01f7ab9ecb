"""`egohieraloc calibrate`: fit the score, its threshold and the segmenter's quality of a weights file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from egohieraloc.config import QueryMaskConfig
    from egohieraloc.models.weights import Calibration
    from egohieraloc.training.calibrate import Evidence
    from egohieraloc.training.segmenter_fit import Segmented


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    model: Annotated[Path, typer.Option(help="The weights to calibrate, a .safetensors file.")],
    out: Annotated[Path, typer.Option(help="File for the calibrated weights.")],
    queries: Annotated[
        int, typer.Option(help="Queries per round, each in a composed video of its own.")
    ] = 96,
    rounds: Annotated[int, typer.Option(help="Rounds, each with new videos.")] = 6,
    segmenter_only: Annotated[
        bool, typer.Option("--segmenter-only", help="Leave the score and its threshold as they are.")
    ] = False,
    second_look: Annotated[
        bool, typer.Option("--second-look", help="Also for a second look, which is taken from then on.")
    ] = False,
) -> None:
    """Calibrate the answer's score and the segmenter's quality on composed clips of held-out objects."""
    from egohieraloc.models.weights import copy_weights, load_weights
    from egohieraloc.training import calibrate as calibration
    from egohieraloc.training.composer.packs import read_packs
    from egohieraloc.training.segmenter_fit import calibrate_segmenter

    packs = read_packs(data, split="val", limit=calibration.PACK_LIMIT)
    query_mask, segmented = calibrate_segmenter(model, packs, queries=queries)
    _tell_segmenter(query_mask, segmented)
    if segmenter_only:
        fitted = load_weights(model).calibration
    else:
        fitted, evidence = calibration.calibrate(
            model, packs, queries=queries, rounds=rounds, query_mask=query_mask, second_look=second_look
        )
        _tell_score(fitted, evidence)
    copy_weights(model, out, fitted, query_mask=query_mask)
    print(f"Wrote {out}.")


def _tell_segmenter(fitted: QueryMaskConfig, segmented: list[Segmented]) -> None:
    from egohieraloc.training.segmenter_fit import plain, quality_error

    before, after = (quality_error(segmented, line) for line in (plain(fitted), fitted))
    print(
        f"Quality of the query's mask = sigmoid({fitted.slope:.3f} * logit + {fitted.steadiness:.3f} * "
        f"steadiness + {fitted.offset:.3f}): the IoU of {len(segmented)} masks, sound and degraded, to "
        f"within {after:.3f} ({before:.3f} before)."
    )


def _tell_score(fitted: Calibration, evidence: list[Evidence]) -> None:
    import numpy as np

    from egohieraloc.training.calibrate import rejecting_threshold

    correct = [e for e in evidence if e.correct]
    absent = np.array([e.logit for e in evidence if not e.present])
    lowest = rejecting_threshold(absent, np.array([e.logit for e in correct]))
    print(
        f"{sum(e.present for e in evidence)} present objects ({len(correct)} answered correctly) and "
        f"{len(absent)} absent ones.\n"
        f"Score = sigmoid({fitted.slope:.3f} * logit(peak) + {fitted.offset:.3f}), "
        f"threshold {fitted.threshold:.3f}: it rejects {sum(absent < lowest)} of the absent ones and loses "
        f"{sum(e.logit < lowest for e in correct)} correct answers."
    )
    for name, looks in (("look back", fitted.back), ("second look", fitted.looks)):
        if looks.second:
            print(
                f"With a {name}: sigmoid({looks.first:.3f} * first + {looks.second:.3f} * second + "
                f"{looks.offset:.3f}), threshold {looks.threshold:.3f}."
            )
