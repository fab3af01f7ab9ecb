"""Options that several commands share, written once: the fields of a dataclass that a command takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any


def spread(command: Callable[..., None], **defaults: Any) -> Callable[..., None]:
    """The command as Typer wants it: each parameter whose class is a dataclass becomes an option for each of
    its fields.

    defaults: of such options, instead of those of their class.
    """
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    parameters: list[Parameter] = []
    for own in signature(command, eval_str=True).parameters.values():
        group: Callable[..., Any] = own.annotation
        if not is_dataclass(own.annotation):
            parameters.append(own)
            continue
        options = signature(group, eval_str=True).parameters
        groups[own.name] = group, list(options)
        parameters += [o.replace(default=defaults.get(name, o.default)) for name, o in options.items()]

    @wraps(command)
    def call(**options: Any) -> None:
        given = {
            name: group(**{field: options.pop(field) for field in names})
            for name, (group, names) in groups.items()
        }
        command(**options, **given)

    vars(call)["__signature__"] = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters])
    return call
