"""Versions of Python, of this package and of the packages that its numbers depend on."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("egohieraloc", "numpy", "torch", "opencv-python-headless", "av", "pycolmap")


def versions() -> dict[str, str]:
    """By package name; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
