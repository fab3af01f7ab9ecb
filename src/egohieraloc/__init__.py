"""EgoHieraLoc: where was this thing last seen?"""

from egohieraloc.errors import EgoHieraLocError
from egohieraloc.query import Query
from egohieraloc.types import Box

__all__ = ["Box", "EgoHieraLocError", "Query"]
__version__ = "0.1.0"
