"""`egohieraloc average`: the mean of several weights files, and storage in 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def average(
    models: Annotated[list[Path], typer.Argument(help="Weights files of one network; one is enough.")],
    out: Annotated[Path, typer.Option(help="File for their mean.")],
    small: Annotated[bool, typer.Option("--8-bit", help="8 bits a weight, half the size of 16.")] = False,
) -> None:
    """Write the mean of weights files, which is often better than each of them."""
    from egohieraloc.models.weights import average_networks, find_weights, save_weights

    save_weights(out, average_networks([find_weights(model) for model in models]), bits=8 if small else 16)
    print(f"Wrote {out}. Its scores are not calibrated: see `egohieraloc calibrate`.")
