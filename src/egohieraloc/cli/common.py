"""What several commands share: options, reading a query of one or several views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egohieraloc.clock import parse_time
from egohieraloc.config import SearchConfig
from egohieraloc.errors import DataError, QueryError
from egohieraloc.query import Query, parse_box
from egohieraloc.types import Box
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer

Model = Annotated[str, typer.Option(help="Name of shipped weights, or a .safetensors file.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps ...; by default the best there is.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="torch, openvino, or compiled (torch.compile: for hours of video on a GPU); by default the best."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting, e.g. temporal.rule=paper or network.dpm.top_k=1. Repeatable.",
    ),
]
Paper = Annotated[
    bool,
    typer.Option("--paper", help="The paper's method as printed; see docs/paper.md. --set wins over it."),
]
Sam = Annotated[
    str | None,
    typer.Option(
        help="Segment queries with this SAM, a hub name or a folder, as the paper does; needs the extra hub."
    ),
]
DEFAULT_FPS = "5"
Fps = Annotated[str, typer.Option(help="Samples a second, or 'native' for every frame.")]
FolderFps = Annotated[float, typer.Option(help="Images a second when VIDEO is a folder.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for features of videos.")]
QueryImages = Annotated[
    list[Path] | None,
    typer.Option(
        "--query",
        metavar="IMAGE",
        help="An image of the object: a crop, or with --box a frame. Repeat it for images from other sides.",
    ),
]
QueryBoxes = Annotated[
    list[str] | None,
    typer.Option("--box", metavar="X,Y,W,H", help="Where the object is in the image. One per image."),
]


def seconds(text: str) -> float:
    """A time as an option: 8.6 or 0:08.6."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise QueryError(f"{str(error).capitalize()}.") from error


Moments = Annotated[
    list[float] | None,
    typer.Option(
        "--at",
        parser=seconds,
        metavar="TIME",
        help="Take the query from this moment: 8.6 or 0:08.6. One per --box.",
    ),
]
QueryMasks = Annotated[
    list[Path] | None,
    typer.Option(
        "--query-mask",
        metavar="IMAGE",
        help="The object's pixels in the query image, white on black. One per image.",
    ),
]


def folder(path: Path) -> Path:
    """A folder that is there, by its whole name: other processes may start elsewhere."""
    if not path.is_dir():
        raise DataError(f"There is no folder {path}.")
    return path.resolve()


def file(path: Path) -> Path:
    """The same of a file."""
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    return path.resolve()


def build_localizer(
    model: str,
    device: str | None,
    settings: Sequence[str] | None,
    fps: str,
    cache: Path | None,
    *,
    engine: str | None = None,
    sam: str | None = None,
) -> Localizer:
    """A Localizer from the common options."""
    from egohieraloc.localize import Localizer, LocalizerConfig

    rate = None if fps == "native" else _number(fps)
    config = LocalizerConfig(search=SearchConfig(fps=rate))
    provider = None
    if sam is not None:
        from egohieraloc.models.sam import SamProvider

        provider = SamProvider(sam, device=device)
    return Localizer.from_pretrained(
        model,
        device=device,
        engine=engine,
        config=config,
        settings=settings or (),
        cache=cache,
        provider=provider,
    )


@dataclass(frozen=True)
class NetworkOptions:
    """The network and how it runs."""

    model: Model = "mini"
    device: Device = None
    engine: Engine = None
    settings: Settings = None

    def localizer(self, cache: Path, *, engine: str | None = None, fps: str = DEFAULT_FPS) -> Localizer:
        """engine: where none was given."""
        chosen = self.engine or engine
        return build_localizer(self.model, self.device, self.settings, fps, cache, engine=chosen)


@dataclass(frozen=True)
class SystemOptions(NetworkOptions):
    """The same of a command that reads videos: what asks them later finds them at the rate they were read."""

    fps: Fps = DEFAULT_FPS

    def localizer(self, cache: Path, *, engine: str | None = None, fps: str | None = None) -> Localizer:
        return super().localizer(cache, engine=engine, fps=fps or self.fps)


@dataclass(frozen=True)
class QueryOptions:
    """What --query, --box, --at and --query-mask say; each may come once for every view of the object."""

    images: QueryImages = None
    boxes: QueryBoxes = None
    moments_s: Moments = None
    masks: QueryMasks = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (*(self.images or ()), *(self.masks or ()))

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any((self.images, self.boxes, self.moments_s, self.masks))

    def read(self, video: Video | None) -> Query:
        """Crops, images and boxes, or moments of the video and boxes."""
        if self.images:
            count = self._count("--query", len(self.images))
            if self.moments_s and not self.boxes:
                raise QueryError(
                    "--at without --box does nothing to an image of the object alone. To take the query "
                    "from the video, give --at and --box without --query; for a frame's own time, give its "
                    "--box too."
                )
            views = zip(self.images, *self._filled(count), strict=True)
            return Query.of_views(*(Query.from_image(i, box=b, mask=m, seen_at_s=t) for i, b, t, m in views))
        if video is None or not self.moments_s or not self.boxes:
            moment = "" if video is None else ", or --at TIME together with --box x,y,w,h"
            raise QueryError(f"Say what to look for: --query IMAGE{moment}.")
        count = self._count("--box", len(self.boxes))
        frames = [video.frame_at(moment_s) for moment_s in self.moments_s]
        shown = zip(frames, *self._filled(count), strict=True)
        return Query.of_views(
            *(Query.from_image(f.rgb, box=b, mask=m, seen_at_s=f.time_s) for f, b, _, m in shown)
        )

    def _count(self, name: str, wanted: int) -> int:
        given = {"--box": self.boxes, "--at": self.moments_s, "--query-mask": self.masks}
        for option, values in given.items():
            if values and len(values) != wanted:
                raise QueryError(
                    f"Got {wanted} {name} and {len(values)} {option}: give {option} once for each, in the "
                    "same order, or not at all."
                )
        return wanted

    def _filled(
        self, count: int
    ) -> tuple[Sequence[Box | None], Sequence[float | None], Sequence[Path | None]]:
        none = [None] * count
        boxes = [parse_box(box) for box in self.boxes or ()]
        return boxes or none, self.moments_s or none, self.masks or none


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"--fps takes a number or 'native', got '{text}'") from error
    if not value > 0:
        raise typer.BadParameter(f"--fps must be above 0, got {text}")
    return value
