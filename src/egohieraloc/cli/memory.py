"""`egohieraloc memory`: a library of videos, asked as one."""

from __future__ import annotations

import typer

from egohieraloc.cli.memory_ask import ask
from egohieraloc.cli.memory_objects import draw_map, objects
from egohieraloc.cli.memory_videos import add, list_videos, remove
from egohieraloc.cli.option_groups import spread

app = typer.Typer(help="Keep a library of videos and ask where an object was last seen in all of them.")
app.command()(spread(add))
app.command()(spread(ask))
app.command()(spread(objects))
app.command("map")(draw_map)
app.command("list")(list_videos)
app.command()(remove)
