"""Opening recordings of Project Aria (VRS files), quietly. Needs the package `projectaria-tools`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from egohieraloc.errors import MissingExtraError, VideoError

RGB = "camera-rgb"
SUFFIX = ".vrs"
GEN1_TURNS = 1  # quarter turns clockwise that make an image upright: the sensor of Gen 1 lies on its side


def open_vrs(path: Path) -> Any:
    """The library's provider of a file's data."""
    try:
        with quiet():
            from projectaria_tools.core.data_provider import create_vrs_data_provider

            provider = create_vrs_data_provider(str(path))
    except ImportError as error:
        raise MissingExtraError("projectaria-tools", "aria") from error
    except RuntimeError as error:
        raise VideoError(f"{path} is not a recording of Project Aria, or damaged: {error}.") from error
    if provider is None:
        raise VideoError(f"{path} is not a recording of Project Aria, or damaged. Is it a complete VRS file?")
    return provider


def rgb_stream(provider: Any, path: Path) -> Any:
    """The identity of the stream of colour images."""
    with quiet():
        stream = provider.get_stream_id_from_label(RGB)
        there = stream is not None and provider.check_stream_is_active(stream)
    if not there or provider.get_num_data(stream) == 0:
        raise VideoError(f"{path} holds no colour images. Record with a profile that has the RGB camera.")
    return stream


def quarter_turns(provider: Any) -> int:
    """Clockwise, to make the colour images upright."""
    return GEN1_TURNS if provider.get_device_version().name == "Gen1" else 0


@contextmanager
def quiet() -> Iterator[None]:
    """What the library writes to the terminal is thrown away: it cannot be asked not to."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)
        os.close(nowhere)
