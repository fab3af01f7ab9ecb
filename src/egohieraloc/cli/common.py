"""What several commands share: options, progress, reading a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc.config import SearchConfig
from egohieraloc.errors import QueryError
from egohieraloc.localize import Localizer, LocalizerConfig
from egohieraloc.progress import Progress
from egohieraloc.query import Query, parse_box
from egohieraloc.video.reader import Video

Model = Annotated[str, typer.Option(help="Name of shipped weights, or a .safetensors file.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps ...; chosen by itself unless given.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a setting, e.g. temporal.rule=paper or network.dpm.top_k=1. Repeatable."
    ),
]
Fps = Annotated[str, typer.Option(help="Samples a second, or 'native' for every frame.")]
FolderFps = Annotated[float, typer.Option(help="Images a second when VIDEO is a folder.")]
Cache = Annotated[Path | None, typer.Option(help="Folder that keeps what is known of videos.")]
STAGES = {
    "encode": "Reading the video",
    "look": "Looking",
    "decode": "Looking closely",
    "follow": "Following",
}


def build_localizer(
    model: str, device: str | None, settings: list[str] | None, fps: str, cache: Path | None
) -> Localizer:
    """A Localizer from the common options."""
    rate = None if fps == "native" else _number(fps)
    config = LocalizerConfig(search=SearchConfig(fps=rate))
    return Localizer.from_pretrained(
        model, device=device, config=config, settings=settings or (), cache=cache
    )


def read_query(
    video: Video, image: Path | None, box: str | None, at: float | None, mask: Path | None
) -> Query:
    """What the options describe: a crop, an image and a box, or a moment of the video and a box."""
    region = parse_box(box) if box else None
    if image is not None:
        return Query.from_image(image, box=region, mask=mask, seen_at_s=at)
    if at is None or region is None:
        raise QueryError(
            "Say what to look for: --query PICTURE, or --at SECONDS together with --box x,y,w,h."
        )
    frame = video.frame_at(at)
    return Query.from_image(frame.rgb, box=region, mask=mask, seen_at_s=frame.time_s)


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Progress]:
    """Bars on standard error, with the time left, where somebody looks at it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    seen = enabled and console.is_terminal
    with Bars(*columns, console=console, disable=not seen, transient=True) as bars:
        tasks: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES.get(stage, stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield show


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"--fps takes a number or 'native', got '{text}'") from error
    if not value > 0:
        raise typer.BadParameter(f"--fps must be above 0, got {text}")
    return value
