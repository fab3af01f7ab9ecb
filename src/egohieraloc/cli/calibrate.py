"""`egohieraloc calibrate`: fit the score and the threshold of a weights file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    model: Annotated[Path, typer.Option(help="The weights to calibrate, a .safetensors file.")],
    out: Annotated[Path, typer.Option(help="File for the calibrated weights.")],
    questions: Annotated[int, typer.Option(help="How many composed videos to ask about in a round.")] = 96,
    rounds: Annotated[int, typer.Option(help="How many rounds, each of other videos.")] = 6,
) -> None:
    """Fit the answer's score on composed videos of objects that were never trained on."""
    from egohieraloc.models.weights import copy_weights
    from egohieraloc.training import calibrate as calibration
    from egohieraloc.training.composer.packs import read_packs

    packs = read_packs(data, split="val", limit=calibration.PACK_LIMIT)
    fitted, evidence = calibration.calibrate(model, packs, questions=questions, rounds=rounds)
    copy_weights(model, out, fitted)
    right = [e for e in evidence if e.right]
    lowest = calibration.logit_threshold(evidence)
    print(
        f"{sum(e.present for e in evidence)} present objects ({len(right)} answered rightly) and "
        f"{sum(not e.present for e in evidence)} absent ones.\n"
        f"Score = sigmoid({fitted.slope:.3f} * logit(peak) + {fitted.offset:.3f}), "
        f"threshold {fitted.threshold:.3f}: it refuses "
        f"{sum(not e.present and e.logit < lowest for e in evidence)} of the absent and loses "
        f"{sum(e.logit < lowest for e in right)} right answers.\nWrote {out}."
    )
