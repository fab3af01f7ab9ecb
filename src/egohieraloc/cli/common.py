"""What several commands share: options, reading a query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egohieraloc.config import SearchConfig
from egohieraloc.errors import QueryError
from egohieraloc.query import Query, parse_box
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer

Model = Annotated[str, typer.Option(help="Name of shipped weights, or a .safetensors file.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps ...; by default the best there is.")]
Engine = Annotated[
    str | None, typer.Option(help="torch or openvino; by default the fastest there is for the device.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a setting, e.g. temporal.rule=paper or network.dpm.top_k=1. Repeatable."
    ),
]
Fps = Annotated[str, typer.Option(help="Samples a second, or 'native' for every frame.")]
FolderFps = Annotated[float, typer.Option(help="Images a second when VIDEO is a folder.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for features of videos.")]


def build_localizer(
    model: str,
    device: str | None,
    settings: list[str] | None,
    fps: str,
    cache: Path | None,
    engine: str | None = None,
) -> Localizer:
    """A Localizer from the common options."""
    from egohieraloc.localize import Localizer, LocalizerConfig

    rate = None if fps == "native" else _number(fps)
    config = LocalizerConfig(search=SearchConfig(fps=rate))
    return Localizer.from_pretrained(
        model, device=device, engine=engine, config=config, settings=settings or (), cache=cache
    )


def read_query(
    video: Video, image: Path | None, box: str | None, at: float | None, mask: Path | None
) -> Query:
    """What the options describe: a crop, an image and a box, or a moment of the video and a box."""
    region = parse_box(box) if box else None
    if image is not None:
        return Query.from_image(image, box=region, mask=mask, seen_at_s=at)
    if at is None or region is None:
        raise QueryError("Say what to look for: --query IMAGE, or --at SECONDS together with --box x,y,w,h.")
    frame = video.frame_at(at)
    return Query.from_image(frame.rgb, box=region, mask=mask, seen_at_s=frame.time_s)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"--fps takes a number or 'native', got '{text}'") from error
    if not value > 0:
        raise typer.BadParameter(f"--fps must be above 0, got {text}")
    return value
