"""`egohieraloc calibrate`: fit the score and the threshold of a weights file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    model: Annotated[Path, typer.Option(help="The weights to calibrate, a .safetensors file.")],
    out: Annotated[Path, typer.Option(help="File for the calibrated weights.")],
    queries: Annotated[
        int, typer.Option(help="Queries per round, each in a composed video of its own.")
    ] = 96,
    rounds: Annotated[int, typer.Option(help="Rounds, each with new videos.")] = 6,
) -> None:
    """Calibrate the answer's score on composed videos of objects held out from training."""
    import numpy as np

    from egohieraloc.models.weights import copy_weights
    from egohieraloc.training import calibrate as calibration
    from egohieraloc.training.composer.packs import read_packs

    packs = read_packs(data, split="val", limit=calibration.PACK_LIMIT)
    fitted, evidence = calibration.calibrate(model, packs, queries=queries, rounds=rounds)
    copy_weights(model, out, fitted)
    correct = [e for e in evidence if e.correct]
    lowest = calibration.rejecting_threshold(
        np.array([e.logit for e in evidence if not e.present]), np.array([e.logit for e in correct])
    )
    looks = fitted.looks
    print(
        f"{sum(e.present for e in evidence)} present objects ({len(correct)} answered correctly) and "
        f"{sum(not e.present for e in evidence)} absent ones.\n"
        f"Score = sigmoid({fitted.slope:.3f} * logit(peak) + {fitted.offset:.3f}), "
        f"threshold {fitted.threshold:.3f}: it rejects "
        f"{sum(not e.present and e.logit < lowest for e in evidence)} of the absent ones and loses "
        f"{sum(e.logit < lowest for e in correct)} correct answers.\n"
        f"With a second look: sigmoid({looks.first:.3f} * first + {looks.second:.3f} * second + "
        f"{looks.offset:.3f}), threshold {looks.threshold:.3f}.\nWrote {out}."
    )
