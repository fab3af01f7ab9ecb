"""The cache keeps to its limit, also while other processes write to it."""

import os
from pathlib import Path

from egohieraloc.inference.store import trim_cache


def store(cache, name, age, size=100):
    folder = cache / f"features-1-{name}"
    folder.mkdir()
    (folder / "chunk").write_bytes(bytes(size))
    os.utime(folder, (1000 - age, 1000 - age))
    return folder


def test_what_was_used_longest_ago_goes_first(tmp_path):
    old, kept, new = store(tmp_path, "old", 9), store(tmp_path, "kept", 8), store(tmp_path, "new", 1)
    trim_cache(tmp_path, limit_bytes=300)
    assert old.exists()
    trim_cache(tmp_path, limit_bytes=299, keep=old)
    assert (old.exists(), kept.exists(), new.exists()) == (True, False, True)
    trim_cache(tmp_path, limit_bytes=150)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_that_vanishes_meanwhile_is_no_error(tmp_path, monkeypatch):
    busy, old = store(tmp_path, "busy", 1), store(tmp_path, "old", 5)
    glob = Path.glob

    def vanishing(self, pattern):
        return [*glob(self, pattern), self / ".chunk.tmp"] if self == busy else list(glob(self, pattern))

    monkeypatch.setattr(Path, "glob", vanishing)
    trim_cache(tmp_path, limit_bytes=10)
    assert busy.exists()
    assert not old.exists()
