"""SAM as a mask provider, with a tiny random checkpoint."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from egohieraloc import Box, Query
from egohieraloc.errors import WeightsError
from egohieraloc.models.sam import SamProvider
from tiny_sam import save_tiny_sam

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")


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


def test_an_image_is_encoded_once_for_all_its_boxes(sam_folder, monkeypatch):
    """And the masks are those of the whole model."""
    provider = SamProvider(sam_folder)
    encoded = []
    encode = provider._model.get_image_embeddings
    monkeypatch.setattr(provider._model, "get_image_embeddings", lambda p: encoded.append(p) or encode(p))
    image = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    boxes = [Box(5, 6, 20, 30), Box(8, 8, 30, 30), Box(30, 2, 44, 38)]
    found = [provider(Query(image, box)) for box in boxes]
    assert len(encoded) == 1
    for (mask, quality), box in zip(found, boxes, strict=True):
        inputs = provider._processor(image, input_boxes=[[list(box.xyxy)]], return_tensors="pt")
        output = provider._model(**inputs)
        assert quality == pytest.approx(float(output.iou_scores.detach().max().clamp(0, 1)), abs=1e-5)
        assert mask.shape == image.shape[:2]
    provider(Query(image.copy(), boxes[0]))
    assert len(encoded) == 2  # another image


def test_missing_model_is_named(tmp_path):
    with pytest.raises(WeightsError, match="hub name or a folder"):
        SamProvider(tmp_path / "nothing")
