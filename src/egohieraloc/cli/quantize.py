"""`egohieraloc quantize`: weights for the engine openvino."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quantize(
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    model: Annotated[
        Path, typer.Option(help="The weights, a .safetensors file; NAME.openvino goes beside it.")
    ],
    images: Annotated[
        int, typer.Option(min=1, help="Photographs that the ranges of values come from.")
    ] = 200,
) -> None:
    """Make the 8-bit encoder and decoder that the engine openvino runs; a few minutes."""
    from egohieraloc.models.compiled import SUFFIX
    from egohieraloc.training import quantize as quantization
    from egohieraloc.training.composer.packs import read_packs

    photos = read_packs(data, limit=images).photos.numpy()
    out = model.with_suffix(SUFFIX)
    quantization.quantize(model, list(photos), out)
    print(f"Wrote {out}, {out.stat().st_size / 1e6:.1f} MB, from {len(photos)} photographs.")
