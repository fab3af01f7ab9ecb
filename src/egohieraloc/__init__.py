"""EgoHieraLoc: where was this object last seen?"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from egohieraloc.errors import EgoHieraLocError
    from egohieraloc.localize import Localizer, LocalizerConfig, SpaceSources
    from egohieraloc.memory.library import Memory
    from egohieraloc.query import Query
    from egohieraloc.report.build import save_report
    from egohieraloc.result import Result
    from egohieraloc.types import Box, FramePrediction, Localization3D, NotFound, NotLocalized, ResponseTrack
    from egohieraloc.video.reader import Video

__all__ = [
    "Box",
    "EgoHieraLocError",
    "FramePrediction",
    "Localization3D",
    "Localizer",
    "LocalizerConfig",
    "Memory",
    "NotFound",
    "NotLocalized",
    "Query",
    "ResponseTrack",
    "Result",
    "SpaceSources",
    "Video",
    "save_report",
]
__version__ = "0.1.0"

# The other names are in `types`.
_MODULES = {
    "EgoHieraLocError": "errors",
    "Localizer": "localize",
    "LocalizerConfig": "localize",
    "Memory": "memory.library",
    "Query": "query",
    "Result": "result",
    "SpaceSources": "localize",
    "Video": "video.reader",
    "save_report": "report.build",
}

if not TYPE_CHECKING:  # a checker that saw it would let every name pass

    def __getattr__(name: str) -> object:
        """A public name, imported when it is first used: torch takes seconds, and `--help` needs none."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'types')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
