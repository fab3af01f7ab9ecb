"""Commands that documents name: do they exist, with every option they are given?"""

from __future__ import annotations

from egohieraloc.cli.commands import load_command


def check_command(words: list[str]) -> None:
    """words: a command without `egohieraloc`."""
    place = load_command(words.pop(0))
    while words and hasattr(place, "commands") and not words[0].startswith("-"):
        assert words[0] in place.commands
        place = place.commands[words.pop(0)]
    known = {option for parameter in place.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
