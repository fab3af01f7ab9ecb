"""EgoHieraLoc: where was this thing last seen?"""

from egohieraloc.errors import EgoHieraLocError
from egohieraloc.localize import Localizer, LocalizerConfig
from egohieraloc.query import Query
from egohieraloc.result import Result
from egohieraloc.types import Box, NotFound, NotLocalized
from egohieraloc.video.reader import Video

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
