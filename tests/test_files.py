"""Files and folders that are either whole or not there."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from egohieraloc.errors import OutputError
from egohieraloc.files import atomic_folder, atomic_path, write_json
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
