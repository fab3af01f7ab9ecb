"""The commands by name, each imported only when it is run: the help of all of them needs no network."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Command(NamedTuple):
    """Where a command is defined, in a module of this package, and the first line of its help."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "locate": Command("locate", "locate", "Find the last appearance of an object in a video."),
    "track": Command(
        "track",
        "track",
        "Follow an object through a video; prints one JSON line per frame: frame, time_s, box and score.",
    ),
    "memory": Command(
        "memory", "app", "Keep a library of videos and ask where an object was last seen in all of them."
    ),
    "watch": Command(
        "watch",
        "watch",
        "Record a camera into a memory while it runs, so that it can be asked at any moment.",
    ),
    "export": Command("export", "export", "Write an answer's cameras, points and object for other programs."),
    "map": Command("export", "draw_map", "Show the last known places of several objects in one 3D view."),
    "train": Command("train", "train", "Train a network on composed clips, or on Ego4D-VQ and VISOR."),
    "distill": Command(
        "train",
        "distill",
        "Pretrain a backbone by distillation: it learns the feature maps of one with ImageNet weights.",
    ),
    "pseudo-masks": Command(
        "train",
        "pseudo_masks",
        "Make a mask for every box of Ego4D-VQ, once, before training. Can be interrupted and run again.",
    ),
    "frames": Command(
        "train",
        "frames",
        "Store the frames of Ego4D-VQ that training reads, once, before training. Can be run again.",
    ),
    "average": Command(
        "average", "average", "Average weights files; the mean is often better than each of them."
    ),
    "calibrate": Command(
        "calibrate",
        "calibrate",
        "Calibrate the answer's score and the segmenter's quality on composed clips of held-out objects.",
    ),
    "quantize": Command(
        "quantize",
        "quantize",
        "Make the 8-bit encoder and decoder that the engine openvino runs; a few minutes.",
    ),
    "demo": Command(
        "demo", "demo", "Find a teddy bear in a rendered walk through a room, and compare with the truth."
    ),
    "serve": Command(
        "serve",
        "serve",
        "Serve a page for the browser: choose a video, draw a box around an object, see where it was last.",
    ),
    "poses": Command(
        "poses", "poses", "Find the camera poses of VQ3D's clips, in metres of their scans. Can be run again."
    ),
    "eval": Command("eval", "app", "Run over a benchmark and score the predictions."),
    "score": Command("score", "app", "Score prediction files and prepare submissions."),
    "ablations": Command("ablations", "app", "The paper's ablations by name."),
    "figure": Command("figure", "app", "Draw figures for papers, as PDF, PNG or SVG by the file's ending."),
}


class ListingGroup(TyperGroup):
    """Lists its commands with the first paragraph of their help, which is not cut off at the line's end."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help."""
        rows = [
            (name, " ".join(str(command.help).split("\n\n")[0].split()))
            for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(ListingGroup):
    """Lists stand-ins, which carry the help; the one that is called is exchanged for the command itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and the arguments left for it."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load_command(str(found.name)), rest


def add_commands(app: typer.Typer) -> None:
    """Register a stand-in for each command."""
    for name, command in COMMANDS.items():
        app.command(name, help=command.help)(_stand_in)


def load_command(name: str) -> Any:
    """Import the command or the group of commands with this name."""
    command = COMMANDS[name]
    defined = getattr(import_module(f"egohieraloc.cli.{command.module}"), command.attribute)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(defined, typer.Typer):
        holder.add_typer(defined, name=name, cls=ListingGroup)
    else:
        holder.command(name)(defined)
    loaded = typer.main.get_group(holder).commands[name]
    _name_arguments(loaded)
    return loaded


def _name_arguments(command: Any) -> None:
    """Arguments are VIDEO in every help text, as other texts write them, and not `{video}`."""
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
    for inner in getattr(command, "commands", {}).values():
        _name_arguments(inner)


def _stand_in() -> None:
    raise NotImplementedError("LazyGroup runs the command itself.")
