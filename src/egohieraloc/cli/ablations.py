"""`egohieraloc ablations`: the rows of the paper's ablation tables by name: list, run, write a table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.ablations import ABLATIONS, Ablation, find_ablation
from egohieraloc.errors import ConfigError

app = typer.Typer(help="The paper's ablations by name.", invoke_without_command=True)


@app.callback()
def list_ablations(context: typer.Context) -> None:
    """The paper's ablations by name. Without a command: list them."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "of", "needs", "benchmarks", "settings"):
        table.add_column(column, no_wrap=column != "settings")
    for row in ABLATIONS.values():
        needs = "training" if row.trains else "inference"
        table.add_row(row.name, row.group, needs, " ".join(row.benchmarks), " ".join(row.settings))
    Console(width=None if Console().is_terminal else 200).print(table)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="An ablation, see `egohieraloc ablations`.")],
    command: Annotated[str, typer.Argument(help="train, eval or another command, with its options.")],
    corrected: Annotated[
        bool, typer.Option("--corrected", help="Infer as by default, not with --paper. Before the name.")
    ] = False,
) -> None:
    """Run a command under an ablation: `egohieraloc ablations run without-z train --config ...`.

    Inference is the paper's as printed (`--paper`); in training the recipe decides.
    """
    from egohieraloc.cli import app as program

    words = settings_for(find_ablation(name), command, context.args)
    options = [option for word in words for option in ("--set", word)]
    if command != "train" and not corrected:
        options.append("--paper")
    program([command, *context.args, *options], standalone_mode=False)


def settings_for(row: Ablation, command: str, options: list[str]) -> tuple[str, ...]:
    """The settings under which the command runs this row, or an error that says what has to be done first."""
    if command == "train":
        if row.settings and not row.trains:
            raise ConfigError(
                f"'{row.name}' needs no training: evaluate any weights with "
                f"`egohieraloc ablations run {row.name} eval ...`."
            )
        return row.settings
    if not row.trains:
        return row.settings
    _require_trained(row, options)
    return ()


def _require_trained(row: Ablation, options: list[str]) -> None:
    """Weights files carry their settings, so weights of another ablation are refused."""
    from egohieraloc.models.weights import find_weights, read_network_config
    from egohieraloc.settings import override

    words = [part for option in options for part in option.split("=", 1)]  # also --model=FILE
    model = next((after for word, after in pairwise(words) if word == "--model"), None)
    how = f"Train them with `egohieraloc ablations run {row.name} train ...` and give them as --model."
    if model is None:
        raise ConfigError(f"'{row.name}' needs weights of its own. {how}")
    config = read_network_config(find_weights(model))
    if override(config, row.network) != config:
        raise ConfigError(f"The weights {model} were not trained as '{row.name}'. {how}")


@app.command()
def table(
    runs: Annotated[list[str], typer.Argument(help="NAME=FILE,FILE...: results of several seeds.")],
    out: Annotated[Path | None, typer.Option(help="Write the table here, in Markdown.")] = None,
) -> None:
    """Mean, standard deviation, 95 % interval of the difference to the full system and Welch's t."""
    from egohieraloc.evaluation.ablation_table import ablation_rows, markdown
    from egohieraloc.files import atomic_path

    files: dict[str, list[Path]] = {}
    for word in runs:
        name, separator, paths = word.partition("=")
        if not separator:
            raise ConfigError(f"Runs are given as NAME=FILE,FILE..., got '{word}'.")
        files.setdefault(find_ablation(name).name, []).extend(Path(path) for path in paths.split(","))
    text = markdown(ablation_rows(files))
    if out is None:
        print(text, end="")
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"Wrote {out}.")
