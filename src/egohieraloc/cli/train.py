"""`egohieraloc train`: run a recipe, or look at what it would learn from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Option(help="A recipe, see recipes/*.toml.")],
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    out: Annotated[Path, typer.Option(help="Folder for logs, checkpoints and weights.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="Stop after so long, to be resumed.")] = math.inf,
    sheet: Annotated[
        bool, typer.Option("--sheet", help="Only write a contact sheet of samples to --out.")
    ] = False,
    publishable: Annotated[
        bool, typer.Option("--publishable", help="Samples whose pictures may be published.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
) -> None:
    """Train a network on composed clips."""
    from egohieraloc.training.contact_sheet import write_contact_sheet
    from egohieraloc.training.packs import read_packs
    from egohieraloc.training.recipe import read_recipe, run_recipe

    recipe = read_recipe(config, settings or [])
    if sheet:
        path = out / "contact_sheet.png"
        packs = read_packs(data, publishable=publishable)
        write_contact_sheet(path, packs, recipe.composer, seed=recipe.optim.seed)
        print(f"Wrote {path}.")
        return
    state = run_recipe(recipe, data, out, resume=resume, minutes=minutes)
    print(f"Stopped after step {state.step} of {recipe.optim.steps}; weights are in {out}.")
