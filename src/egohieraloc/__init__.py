"""EgoHieraLoc: where was this object last seen?"""

from typing import TYPE_CHECKING

from egohieraloc.errors import EgoHieraLocError
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box, NotFound, NotLocalized
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.localize import Localizer, LocalizerConfig

__all__ = [
    "Box",
    "EgoHieraLocError",
    "Localizer",
    "LocalizerConfig",
    "NotFound",
    "NotLocalized",
    "Query",
    "Result",
    "Video",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """These bring torch along, which takes seconds and memory that many processes have no use for."""
    if name in ("Localizer", "LocalizerConfig"):
        from egohieraloc import localize

        return getattr(localize, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
