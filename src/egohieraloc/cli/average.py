"""`egohieraloc average`: average several weights files, or store one in 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def average(
    models: Annotated[list[Path], typer.Argument(help="One or more weights files of the same network.")],
    out: Annotated[Path, typer.Option(help="File for the averaged weights.")],
    small: Annotated[bool, typer.Option("--8-bit", help="Store 8 bits per weight instead of 16.")] = False,
) -> None:
    """Average weights files; the mean is often better than each of them."""
    from egohieraloc.models.weights import average_networks, find_weights, save_weights

    save_weights(out, average_networks([find_weights(model) for model in models]), bits=8 if small else 16)
    print(f"Wrote {out}. Its scores are not calibrated yet: see `egohieraloc calibrate`.")
