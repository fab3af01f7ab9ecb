"""Files and folders that are either whole or not there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError

from egohieraloc import files
from egohieraloc.errors import OutputError
from egohieraloc.files import (
    atomic_folder,
    atomic_path,
    finish_folder,
    locked,
    private_folder,
    write_json,
)
from egohieraloc.images import write_image


def stop_halfway(path: Path) -> None:
    path.write_text("half")
    raise KeyboardInterrupt


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.suffix == ".txt"  # some writers go by the ending
        temporary.chmod(0o600)  # and some make a file of their own
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(tmp_path / "file") as temporary:
        stop_halfway(temporary)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_json_without_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1.5})
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": 1.5}
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"b": math.nan})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_gets_all_at_once_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "masks").mkdir(parents=True)
    for name in ("masks/old.png", "overlay.mp4", "curve.png", "mine.txt"):
        (target / name).write_text("old")
    with atomic_folder(target, replaces=["overlay.mp4", "gone"]) as temporary:
        (temporary / "masks").mkdir()
        (temporary / "masks" / "new.png").write_text("new")
        (temporary / "curve.png").write_text("new")
        assert (target / "curve.png").read_text() == "old"
    left = {p.relative_to(target).as_posix(): p.read_text() for p in target.rglob("*") if p.is_file()}
    assert left == {"masks/new.png": "new", "curve.png": "new", "mine.txt": "old"}


@pytest.mark.parametrize("there", [False, True])
def test_a_failure_leaves_the_folder_as_it_was(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "out"
    if there:
        target.mkdir()
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as temporary:
        stop_halfway(temporary / "half")
    assert list(tmp_path.iterdir()) == ([target] if there else [])
    assert not there or not list(target.iterdir())


def test_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_folder(".") as temporary:
        (temporary / "a").write_text("a")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for target, message in (
        (tmp_path / "file", "is a file. Give the name of a folder"),
        (tmp_path / "file" / "deeper", "Choose a folder you may write to"),
    ):
        with pytest.raises(OutputError, match=message), atomic_folder(target):
            pass
    with pytest.raises(OutputError, match="Choose a folder"), atomic_path(tmp_path / "file" / "a"):
        pass
    with pytest.raises(OutputError, match=r"is a folder\. Give the name of a file"), atomic_path(tmp_path):
        pass

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="Is the disk full"), atomic_path(tmp_path / "weights"):
        raise SafetensorError("I/O error: No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"), atomic_folder(tmp_path / "new") as temporary:
        (temporary / "a").write_text("a")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_images_that_cannot_be_written(tmp_path: Path) -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(OutputError, match=r"Use an ending such as \.png or \.jpg"):
        write_image(tmp_path / "image.odd", image)
    write_image(tmp_path / "image.png", image)
    assert [p.name for p in tmp_path.iterdir()] == ["image.png"]


def files_of(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def killed_at(call: int, target: Path) -> bool:
    """Write new files over old ones in a process that dies at a call of the system; whether it died."""
    process = os.fork()
    if process == 0:
        calls = 0

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == call:
                    os._exit(9)
                return function(*arguments, **options)

            return wrapped

        for owner, name in ((os, "replace"), (os, "unlink"), (os, "rmdir"), (os, "fsync"), (os, "mkdir")):
            setattr(owner, name, counted(getattr(owner, name)))
        with atomic_folder(target, replaces=NAMES) as temporary:
            write(temporary, "new", ("masks/2.png", "curve.png", "result.json"))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


NAMES = ("masks", "overlay.mp4", "curve.png", "result.json")


def write(folder: Path, text: str, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_kill_at_any_moment_leaves_the_old_files_or_the_new_ones(tmp_path: Path) -> None:
    old = dict.fromkeys(("masks/1.png", "overlay.mp4", "curve.png", "result.json", "mine.txt"), "old")
    new = dict.fromkeys(("masks/2.png", "curve.png", "result.json"), "new") | {"mine.txt": "old"}
    found = []
    for call in range(1, 100):
        target = tmp_path / str(call)
        write(target, "old", old)
        died = killed_at(call, target)
        finish_folder(target, replaces=NAMES)
        found.append(files_of(target))
        assert found[-1] in (old, new), f"killed at call {call}"
        with atomic_folder(target, replaces=NAMES) as temporary:
            write(temporary, "new", ("masks/2.png", "curve.png", "result.json"))
        assert files_of(target) == new
        if not died:
            break
    assert len(found) > 15
    assert found[0] == old
    assert found[-1] == new
    assert old not in found[found.index(new) :]  # one moment decides


def test_what_killed_processes_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    process = os.fork()
    if process == 0:
        with atomic_path(tmp_path / "checkpoint.pt") as temporary, atomic_folder(tmp_path) as folder:
            temporary.write_text("half")
            (folder / "a").write_text("half")
            os._exit(9)
    os.waitpid(process, 0)
    theirs = [".checkpoint.pt", ".unfinished-by-me", ".a.0badcafe-1-01234567.pt", ".hidden"]
    for name in theirs:
        (tmp_path / name).write_text("not ours")
    assert len(list(tmp_path.iterdir())) == len(theirs) + 2
    with atomic_path(tmp_path / "weights") as first, atomic_path(tmp_path / "weights") as second:
        first.write_text("one")
        files._swept.clear()
        with atomic_folder(tmp_path) as folder:
            (folder / "b").touch()
        second.write_text("two")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*theirs, "weights", "b"])


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, "theirs", ("masks/1.png", "file"))
    out = tmp_path / "out"
    out.mkdir()
    (out / "masks").symlink_to(elsewhere / "masks")
    (out / "curve.png").symlink_to(elsewhere / "file")
    (out / "overlay.mp4").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(out)
    with atomic_folder(tmp_path / "link", replaces=NAMES) as temporary:
        write(temporary, "new", ("masks/2.png", "curve.png"))
    assert files_of(elsewhere) == {"masks/1.png": "theirs", "file": "theirs"}
    assert files_of(out) == {"masks/2.png": "new", "curve.png": "new"}
    assert not any(path.is_symlink() for path in out.rglob("*"))


def test_a_lock_lets_one_in(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(BlockingIOError), locked(tmp_path, wait=False):
        pass
    with locked(tmp_path, wait=False):
        pass
    assert not list(tmp_path.iterdir())


def test_a_private_folder(tmp_path: Path) -> None:
    private_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "c").mkdir(mode=0o755)
    private_folder(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o755


def test_a_foreign_journal_touches_nothing_outside(tmp_path: Path) -> None:
    """A folder from somebody else may hold what looks like the remains of a killed run."""
    write(tmp_path, "mine", ("precious", "out/result.json"))
    write(tmp_path / "out" / ".finished-x", "theirs", ("curve.png",))
    (tmp_path / "out" / ".finished-x" / ".names").write_text("../precious\n\0\n/etc/passwd")
    finish_folder(tmp_path / "out", replaces=NAMES)
    assert files_of(tmp_path) == {"precious": "mine", "out/curve.png": "theirs"}
