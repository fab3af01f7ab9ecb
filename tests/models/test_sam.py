"""SAM as a mask provider, with a tiny random checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from egohieraloc import Box, Query
from egohieraloc.errors import WeightsError
from egohieraloc.models.sam import SamProvider
from tiny_sam import save_tiny_sam

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def sam_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sam")
    save_tiny_sam(folder)
    return folder


@pytest.mark.parametrize("box", [None, Box(5, 6, 20, 30)], ids=["crop", "frame"])
def test_mask_covers_the_query_image(sam_folder, box):
    image = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    mask, quality = SamProvider(sam_folder)(Query.from_image(image, box=box))
    assert mask.shape == (40, 50)
    assert mask.dtype == bool
    assert 0 <= quality <= 1


def test_missing_model_is_named(tmp_path):
    with pytest.raises(WeightsError, match="hub name or a folder"):
        SamProvider(tmp_path / "nothing")
