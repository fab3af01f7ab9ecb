"""SAM as a mask provider, with a tiny random checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from egohieraloc import Box, Query
from egohieraloc.errors import WeightsError
from egohieraloc.models.sam import SamProvider

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def sam_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sam")
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 64,
            "patch_size": 16, "output_channels": 16, "window_size": 2, "global_attn_indexes": [0],
            "mlp_dim": 16, "num_pos_feats": 8,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 16},
        mask_decoder_config={
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 16,
            "iou_head_hidden_dim": 16,
        },
    )  # fmt: skip
    transformers.SamModel(config).save_pretrained(folder)
    image_processor = transformers.SamImageProcessor(
        size={"longest_edge": 64}, pad_size={"height": 64, "width": 64},
        mask_size={"longest_edge": 16}, mask_pad_size={"height": 16, "width": 16},
    )  # fmt: skip
    transformers.SamProcessor(image_processor).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("box", [None, Box(5, 6, 20, 30)], ids=["crop", "frame"])
def test_mask_covers_the_query_picture(sam_folder, box):
    image = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    mask, quality = SamProvider(sam_folder)(Query.from_image(image, box=box))
    assert mask.shape == (40, 50)
    assert mask.dtype == bool
    assert 0 <= quality <= 1


def test_missing_model_is_named(tmp_path):
    with pytest.raises(WeightsError, match="hub name or a folder"):
        SamProvider(tmp_path / "nothing")
