"""Files that are either whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from egohieraloc.errors import OutputError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the name, on any failure it is removed."""
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error}. Choose a folder you may write to.") from error
    try:
        yield temporary
        temporary.chmod(mode)  # some writers make a file of their own, for nobody else to read
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"Cannot write {path}: {error}. Is the disk full?") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def atomic_folder(path: str | Path, *, replaces: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder inside the folder `path`; on any failure it is removed, on success what was
    written there moves up and takes the place of what has the same name or one of `replaces`."""
    path = Path(path)
    if path.is_file():
        raise OutputError(f"Cannot write to {path}: it is a file. Give the name of a folder.")
    new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path, prefix=".unfinished-"))
    except OSError as error:
        raise OutputError(f"Cannot write to {path}: {error}. Choose a folder you may write to.") from error
    try:
        yield temporary
        _move_up(temporary, path, replaces)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if new:
            with suppress(OSError):  # it stays where there is something in it
                path.rmdir()


def _move_up(temporary: Path, path: Path, replaces: Iterable[str]) -> None:
    written = sorted(temporary.iterdir())
    try:
        for old in {path / name for name in (*replaces, *(part.name for part in written))}:
            if old.is_dir():
                shutil.rmtree(old)
            old.unlink(missing_ok=True)
        for part in written:
            os.replace(part, path / part.name)
    except OSError as error:
        raise OutputError(f"Cannot write to {path}: {error}. Choose another folder.") from error


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON, atomically. NaN and infinity are refused: no other program reads them."""
    text = json.dumps(value, indent=1, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
