"""Settings as plain values and back: from TOML and JSON, changed by words like `qam.decay=0.4`, checked.

An unknown key is an error that names the one that is near, or all there are.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from egohieraloc.documents import parse_toml
from egohieraloc.errors import ConfigError

Config = TypeVar("Config")


def to_dict(config: Any) -> dict[str, Any]:
    """Nested plain values, as they go into JSON."""
    return dataclasses.asdict(config)


def from_dict(cls: type[Config], values: Mapping[str, Any], *, where: str = "") -> Config:
    """Build nested settings from plain values; keys left out keep their default."""
    default = cls()
    return update(default, values, where=where)


def update(config: Config, values: Mapping[str, Any], *, where: str = "") -> Config:
    """The settings with some values replaced; nested mappings go into nested settings."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'Settings'} must be a table of keys and values, got {values!r}.")
    hints = typing.get_type_hints(type(config))
    changes = {}
    for key, value in values.items():
        name = f"{where}{key}"
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            known = f"did you mean '{where}{near[0]}'?" if near else f"there are {', '.join(sorted(hints))}."
            raise ConfigError(f"Unknown setting '{name}'; {known}")
        current = getattr(config, key)
        if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            changes[key] = update(current, value, where=f"{name}.")
        else:
            changes[key] = _checked(value, hints[key], name)
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(f"{where or 'Settings'}: {error}") from error


def override(config: Config, words: Iterable[str]) -> Config:
    """Apply words like `qam.decay=0.4`; values are read as TOML, and as plain text where that fails."""
    for word in words:
        path, separator, text = word.partition("=")
        if not separator:
            raise ConfigError(f"A setting is written section.key=value, got '{word}'.")
        try:
            value = parse_toml(f"value = {text}")["value"]
        except ValueError:
            value = text
        for key in reversed(path.strip().split(".")):
            value = {key: value}
        config = update(config, value)
    return config


def _checked(value: Any, wanted: Any, name: str) -> Any:
    """The value as the wanted type, or an error: an int is a float, a list is a tuple, nothing else bends."""
    origin, choices = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        if value in (None, "none") and type(None) in choices:  # TOML has no word for None
            return None
        return _checked(value, next(c for c in choices if c is not type(None)), name)
    if origin is Literal:
        if value in choices:
            return value
        raise ConfigError(f"Setting '{name}' must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_checked(v, choices[0], name) for v in value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = origin or wanted
    if not isinstance(value, plain) or (isinstance(value, bool) and plain is not bool):
        raise ConfigError(f"Setting '{name}' must be {getattr(plain, '__name__', plain)}, got {value!r}.")
    return value
