"""`egohieraloc train`, `distill` and `pseudo-masks`: training, and what has to be done before it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.cli import common
from egohieraloc.progress import progress_bars

Config = Annotated[Path, typer.Option(help="Recipe, see recipes/*.toml.")]
Data = Annotated[Path, typer.Option(help="Folder with photos/ and sprites/, or with ego4d/ and visor/.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting, such as optim.steps=100.")
]

Part = Annotated[str, typer.Option(help="k/n: the k-th of n parts, for n processes or GPUs.")]


def train(
    config: Config,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for logs, checkpoints and weights.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="Time limit; continue later with --resume.")] = math.inf,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only write a contact sheet of training clips to --out.")
    ] = False,
    publishable: Annotated[
        bool, typer.Option("--publishable", help="Preview only images that may be published.")
    ] = False,
    settings: Settings = None,
) -> None:
    """Train a network on composed clips, or on Ego4D-VQ and VISOR."""
    from egohieraloc.training.preview import write_contact_sheet
    from egohieraloc.training.recipe import changes_since, read_recipe, run_recipe, sample_clips

    recipe = read_recipe(config, settings or [])
    if preview:
        write_contact_sheet(out, sample_clips(recipe, data, publishable=publishable))
        print(f"Wrote {out / 'contact_sheet.png'} and a smaller overview, contact_sheet.jpg.")
        return
    changes = changes_since(out, recipe) if resume else []
    if changes and os.environ.get("RANK", "0") == "0":
        print("The run was begun with other settings:", *changes, sep="\n  ")
    state = run_recipe(recipe, data, out, resume=resume, minutes=minutes)
    print(f"Stopped after step {state.step} of {recipe.optim.steps}; weights are in {out}.")


def distill(
    data: Annotated[Path, typer.Option(help="Folder with photos/ and sprites/.")],
    out: Annotated[Path, typer.Option(help="File for the backbone, for the setting `start`.")],
    student: Annotated[str, typer.Option(help="Backbone to train.")] = "pvt_v2_b1",
    teacher: Annotated[str, typer.Option(help="Backbone with ImageNet weights.")] = "efficientnet_lite1",
    teacher_weights: Annotated[
        Path | None, typer.Option(help="The teacher's weights, if not those of its package.")
    ] = None,
    device: common.Device = None,
    settings: Settings = None,
) -> None:
    """Pretrain a backbone by distillation: it learns the feature maps of one with ImageNet weights."""
    import torch

    from egohieraloc.config import BackboneConfig
    from egohieraloc.inference.predict import choose_device
    from egohieraloc.models.backbone import build_backbone, load_imagenet
    from egohieraloc.settings import override
    from egohieraloc.training.composer.packs import read_packs
    from egohieraloc.training.distill import DistillConfig, save_backbone
    from egohieraloc.training.distill import distill as run

    config = override(DistillConfig(), settings or [])
    torch.manual_seed(config.seed)
    learner, model = (build_backbone(BackboneConfig(name=name)) for name in (student, teacher))
    load_imagenet(model, teacher_weights)
    losses: list[float] = []
    with progress_bars() as show:

        def report(step: int, loss: float) -> None:
            losses.append(loss)
            show("distill", step + 1, config.steps)

        run(learner, model, read_packs(data).photos, config, choose_device(device), report=report)
    save_backbone(out, learner)
    print(f"The loss went from {losses[0]:.3f} to {losses[-1]:.3f}. Train with `--set start={out}`.")


def pseudo_masks(
    config: Config,
    data: Data,
    sam: Annotated[
        str, typer.Option(help="SAM: a name on the Hugging Face hub, or a folder.")
    ] = "facebook/sam-vit-base",
    part: Part = "1/1",
    device: common.Device = None,
    settings: Settings = None,
) -> None:
    """Make a mask for every box of Ego4D-VQ, once, before training. Can be interrupted and run again."""
    from egohieraloc.models.sam import SamProvider
    from egohieraloc.training.footage.loading import ego4d_footage
    from egohieraloc.training.recipe import read_recipe

    footage = ego4d_footage(read_recipe(config, settings or []).footage, data)
    with progress_bars() as show:
        made = footage.make_masks(
            SamProvider(sam, device=device),
            progress=lambda done, total: show("masks", done, total),
            part=_part(part),
        )
    of = f"part {part} of the clips has" if part != "1/1" else f"all {len(footage.objects)} have"
    print(f"Made the masks of {made} objects; {of} masks now.")


def frames(
    config: Config,
    data: Data,
    side: Annotated[
        int, typer.Option(min=32, help="Longer side of the stored images; queries are cut from them too.")
    ] = 896,
    part: Part = "1/1",
    settings: Settings = None,
) -> None:
    """Store the frames of Ego4D-VQ that training reads, once, before training. Can be run again."""
    from egohieraloc.training.footage.loading import ego4d_footage
    from egohieraloc.training.recipe import read_recipe

    footage = ego4d_footage(read_recipe(config, settings or []).footage, data)
    with progress_bars() as show:
        stored = footage.store_frames(
            side=side, progress=lambda done, total: show("clips", done, total), part=_part(part)
        )
    print(f"Stored {stored} frames; what was there already was left as it is.")


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise typer.BadParameter(f"--part is written k/n with k from 1 to n, got '{text}'")
    return int(number), int(count)
