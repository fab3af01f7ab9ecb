"""Streamed JSON is the JSON the standard library reads, however small the window."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egohieraloc.data import stream
from egohieraloc.errors import DataError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20) + 1, 10**20 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    head=st.dictionaries(st.text().filter(lambda k: k != "videos"), VALUES, max_size=3),
    videos=st.lists(VALUES, max_size=5),
    window=st.integers(1, 9),
    indent=st.sampled_from([None, 2]),
)
def test_an_object_is_streamed_as_it_is_written(tmp_path_factory, head, videos, window, indent):
    path = tmp_path_factory.mktemp("stream") / "file.json"
    path.write_text(json.dumps({**head, "videos": videos, "end": 1}, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK_CHARACTERS", window)
        items = list(stream.stream_object(path, array="videos"))
        assert stream.header(path, array="videos") == (head if videos else {**head, "end": 1})
        assert stream.read_json(path) == {**head, "videos": videos, "end": 1}
    head = {k: v for k, v in head.items() if k != "end"}
    assert [v for k, v in items if k == "videos"] == videos
    assert {k: v for k, v in items if k != "videos"} == {**head, "end": 1}


@pytest.mark.parametrize("window", [1, 2, 5, 1000])
def test_an_array_is_streamed_whole_and_packed(tmp_path, monkeypatch, window):
    monkeypatch.setattr(stream, "CHUNK_CHARACTERS", window)
    values = [12345, {"a": "]"}, [], "x,y", -1.5e-7, None]
    for path in (tmp_path / "a.json", tmp_path / "a.json.gz"):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "wt") as file:
            json.dump(values, file)
        assert list(stream.stream_array(path)) == values
        assert stream.starts_with_array(path)


def test_elements_come_before_the_file_has_been_read(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK_CHARACTERS", 8)
    path = tmp_path / "cut.json"
    path.write_text('{"version": "1", "videos": [{"a": 1}, {"a": 2}, {"a": ')
    items = stream.stream_object(path, array="videos")
    assert [next(items) for _ in range(3)] == [("version", "1"), ("videos", {"a": 1}), ("videos", {"a": 2})]
    with pytest.raises(DataError, match=r"cut\.json is broken or ends too early"):
        next(items)


@pytest.mark.parametrize("text", ["", "[1, 2", '{"a" 1}', '{"a": 1', '{"a": 1,}', '{"a": 1}x', "nope"])
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"broken\.json"):
        list(stream.stream_object(path, array="videos"))


def test_what_was_expected_is_said(tmp_path):
    path = tmp_path / "list.json"
    path.write_text('["a", ":", "b"]')
    with pytest.raises(DataError, match=r"list\.json should have '{' here \(near '\[\"a"):
        list(stream.stream_object(path, array="videos"))
    path.write_text('{"a": 1; "b": 2}')
    with pytest.raises(DataError, match="should have ',' or '}' here"):
        list(stream.stream_object(path, array="videos"))


def test_nothing_may_follow_a_whole_value(tmp_path):
    path = tmp_path / "two.json"
    path.write_text('{"a": 1} {"b": 2}')
    with pytest.raises(DataError, match="something after its end"):
        stream.read_json(path)


def test_an_empty_object_has_no_members(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text(" { } ")
    assert list(stream.stream_object(path, array="videos")) == []


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="Cannot read"):
        stream.read_json(tmp_path / "absent.json")
    packed = tmp_path / "bad.json.gz"
    packed.write_bytes(gzip.compress(b'{"videos": [1, 2, 3]}')[:-12])
    with pytest.raises(DataError, match=r"Cannot read .*bad\.json\.gz"):
        list(stream.stream_object(packed, array="videos"))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match="Cannot read"):
        stream.read_json(binary)
