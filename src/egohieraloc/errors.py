"""One family of exceptions. Each says what was wanted, what was got and what to do next.

An expected miss (the object never appears, a frame has no pose) is not an error: it is a value with a
reason, see `NotFound` and `NotLocalized` in `types.py`.
"""

from __future__ import annotations


class EgoHieraLocError(Exception):
    """Anything this package raises on purpose."""


class VideoError(EgoHieraLocError):
    """A video or a folder of frames cannot be read."""


class QueryError(EgoHieraLocError):
    """The query image, its box or its mask cannot be used."""


class ConfigError(EgoHieraLocError):
    """A setting is unknown, of the wrong type or out of range."""


class WeightsError(EgoHieraLocError):
    """A checkpoint is missing, corrupt, foreign or of another shape."""


class DataError(EgoHieraLocError):
    """An annotation, prediction or data file does not have the shape it should have."""


class OutputError(EgoHieraLocError):
    """A result cannot be written."""


class GeometryError(EgoHieraLocError):
    """A camera, a pose, a depth map or a reference cannot be used."""


class MissingExtraError(EgoHieraLocError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package '{package}'. Install it with: pip install 'egohieraloc[{extra}]' "
            f"(in a clone: pip install '.[{extra}]')"
        )
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Workers send their errors to the process that started them."""
        return type(self), (self.package, self.extra)
