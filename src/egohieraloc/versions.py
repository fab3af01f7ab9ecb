"""Versions of this package and of those that its numbers depend on."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("egohieraloc", "numpy", "torch", "opencv-python-headless", "av", "pycolmap")


def versions() -> dict[str, str]:
    """By package, Python first."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
