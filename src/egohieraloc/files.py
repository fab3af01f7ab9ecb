"""Files that are either whole or not there: written under a temporary name, then renamed.

A temporary name carries the machine and the process that writes there. What a killed process has left is
swept by the next one that writes in the same folder.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from egohieraloc.errors import OutputError

WRITING, READY = ".unfinished-", ".finished-"  # folders that are being written, and that wait to be moved up
JOURNAL = ".names"
_MACHINE = f"{zlib.crc32(socket.gethostname().encode()):08x}"
_OURS = re.compile(rf"\.(?:.*\.|unfinished-){_MACHINE}-(\d+)-[0-9a-z_]{{8}}(?:\.[^.]*)?")
_writing: set[str] = set()  # the names, by this process
_swept: set[Path] = set()


@contextmanager
def atomic_path(path: str | Path, *, durable: bool = False, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the name, on any failure it is removed.

    With `durable` it is on the disk when this ends, also where the machine loses its power; with `private`
    only its owner may read it.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder. Give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        temporary = path.with_name(f".{path.stem}.{_token()}{path.suffix}")
        temporary.touch(0o600 if private else 0o666, exist_ok=False)
        mode = temporary.stat().st_mode
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error}. Choose a folder you may write to.") from error
    _writing.add(temporary.name)
    try:
        yield temporary
        temporary.chmod(mode)  # some writers make a file of their own, for nobody else to read
        if durable:
            to_disk(temporary)
        os.replace(temporary, path)
        if durable:
            to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"Cannot write {path}: {error}. Is the disk full?") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
        _writing.discard(temporary.name)


@contextmanager
def atomic_folder(path: str | Path, *, replaces: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder inside the folder `path`; on any failure it is removed, on success what was
    written there moves up and takes the place of what has the same name or one of `replaces`.

    One renaming decides: a process killed before it leaves the old files, one killed after it the new ones,
    which `finish_folder` moves up.
    """
    path, replaces = Path(path), tuple(replaces)
    if path.is_file():
        raise OutputError(f"Cannot write to {path}: it is a file. Give the name of a folder.")
    new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        finish_folder(path, replaces=replaces)
        temporary = path / f"{WRITING}{_token()}"
        temporary.mkdir()
    except OSError as error:
        raise OutputError(f"Cannot write to {path}: {error}. Choose a folder you may write to.") from error
    _writing.add(temporary.name)
    try:
        yield temporary
        _commit(temporary, path, replaces)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _writing.discard(temporary.name)
        if new:
            with suppress(OSError):  # it stays where there is something in it
                path.rmdir()


def _commit(temporary: Path, path: Path, replaces: Iterable[str]) -> None:
    try:
        names = "\n".join(part.name for part in temporary.iterdir())
        (temporary / JOURNAL).write_text(names, encoding="utf-8")
        for part in temporary.rglob("*"):
            to_disk(part)
        with locked(path):
            _move_ready(path, replaces)  # of another process that was killed meanwhile
            os.replace(temporary, path / temporary.name.replace(WRITING, READY, 1))
            to_disk(path)
            _move_ready(path, replaces)
    except OSError as error:
        raise OutputError(f"Cannot write to {path}: {error}. Choose another folder.") from error


def finish_folder(path: Path, *, replaces: Iterable[str]) -> None:
    """Do what a killed process left undone in a folder: move up what was whole, throw out what was not."""
    sweep(path, again=True)
    if any(path.glob(f"{READY}*")):
        with locked(path):
            _move_ready(path, replaces)


def _move_ready(path: Path, replaces: Iterable[str]) -> None:
    """Can be killed anywhere and begun again."""
    for ready in sorted(path.glob(f"{READY}*")):
        if (ready / JOURNAL).exists():  # thrown out last
            names = (ready / JOURNAL).read_text(encoding="utf-8").split("\n")
            for name in set(replaces).difference(names):
                _remove(path / name)
            for part in sorted(set(ready.iterdir()) - {ready / JOURNAL}):
                _remove(path / part.name)
                os.replace(part, path / part.name)
        shutil.rmtree(ready)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, *, again: bool = False) -> None:
    """Throw out what killed processes of this machine were writing in a folder; once, unless told `again`."""
    if folder in _swept and not again:
        return
    _swept.add(folder)
    try:
        names = os.listdir(folder)
    except OSError:  # of a folder that may only be written to
        return
    for name in names:
        if _OURS.fullmatch(name) and not being_written(name):
            with suppress(OSError):  # of another user, or where nothing may be written
                _remove(folder / name)


def being_written(name: str) -> bool:
    """Whether a temporary name is that of a process of this machine that still runs."""
    found = _OURS.fullmatch(name)
    return found is not None and (name in _writing or _alive(int(found[1])))


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False  # an earlier one of the same number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _token() -> str:
    return f"{_MACHINE}-{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep others out of a folder or file. Without `wait` a BlockingIOError says that somebody is in it."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    place = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(place)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A private folder among the system's temporary files; those of killed processes are swept."""
    sweep(Path(tempfile.gettempdir()))
    folder = tempfile.TemporaryDirectory(prefix=f"{WRITING}{_MACHINE}-{os.getpid()}-")
    _writing.add(Path(folder.name).name)
    return folder


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may open. One that is there keeps its mode, but if another user owns
    it a PermissionError says so: they could change what is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if not (is_ours(path.lstat()) and is_ours(path.stat())):
        raise PermissionError(f"{path} belongs to another user, who could change what is in it")


def is_ours(status: os.stat_result) -> bool:
    """Whether a file is this user's, or root's, who may do everything anyway."""
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    place = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():  # some systems cannot, for folders
            os.fsync(place)
    finally:
        os.close(place)


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON, atomically. NaN and infinity are refused: no other program reads them."""
    text = json.dumps(value, indent=1, allow_nan=False)
    with atomic_path(path, durable=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
