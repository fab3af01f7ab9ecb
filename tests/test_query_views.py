"""A query of several views of one object: joined, saved and read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import made_up
from egohieraloc import Box, Query, Result
from egohieraloc.errors import QueryError
from egohieraloc.query import MAX_VIEWS


def view(seed: int, *, mask: bool = False, seen_at_s: float | None = None) -> Query:
    image = np.random.default_rng(seed).integers(0, 255, (20 + seed, 30, 3), np.uint8)
    return Query(image, Box(2, 3, 12, 15), image[..., 0] > 90 if mask else None, seen_at_s)


def test_views_of_views_are_views() -> None:
    joined = Query.of_views(Query.of_views(view(0), view(1)), view(2))
    assert [v.image.shape[0] for v in joined.views] == [20, 21, 22]
    assert all(not v.others for v in joined.views)
    assert Query.of_views(view(0)).others == ()


def test_what_cannot_be_joined() -> None:
    with pytest.raises(QueryError, match="at least one view"):
        Query.of_views()
    with pytest.raises(QueryError, match=f"at most {MAX_VIEWS} views"):
        Query.of_views(*[view(0)] * (MAX_VIEWS + 1))
    with pytest.raises(QueryError, match="views of its own"):
        Query(view(0).image, view(0).box, others=(Query.of_views(view(0), view(1)),))


def test_all_views_are_saved_and_read_again(tmp_path: Path) -> None:
    query = Query.of_views(view(0, seen_at_s=1.5), view(1, mask=True), view(2, seen_at_s=3.0))
    made_up.result(query=query).save(tmp_path)
    again = Result.load(tmp_path).query
    for saved, read in zip(query.views, again.views, strict=True):
        assert np.array_equal(saved.image, read.image)
        assert (saved.box, saved.seen_at_s) == (read.box, read.seen_at_s)
        assert saved.mask is read.mask is None or np.array_equal(saved.mask, read.mask)
    made_up.result().save(tmp_path)  # an answer with one view leaves none of the others behind
    assert not (tmp_path / "views").exists()
