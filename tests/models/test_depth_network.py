import sys
from importlib.util import find_spec

import numpy as np
import pytest

from egohieraloc.errors import MissingExtraError, WeightsError
from egohieraloc.models.depth import DepthNetwork
from egohieraloc.types import DepthUnit, Frame

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")


def save_tiny_model(folder, **settings: object) -> None:
    """A Depth Anything with two small layers and random weights, as its makers would save it."""
    import transformers

    backbone = transformers.Dinov2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
        out_features=["stage1", "stage2"],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        patch_size=14,
        reassemble_hidden_size=16,
        reassemble_factors=[1, 0.5],
        neck_hidden_sizes=[8, 8],
        fusion_hidden_size=8,
        head_hidden_size=4,
        **settings,
    )
    transformers.DepthAnythingForDepthEstimation(config).save_pretrained(folder)
    transformers.DPTImageProcessor(
        size={"height": 28, "width": 42}, ensure_multiple_of=14, keep_aspect_ratio=False
    ).save_pretrained(folder)


def frames(count: int = 2) -> list[Frame]:
    generator = np.random.default_rng(0)
    return [Frame(6 * i, i / 5, generator.integers(0, 255, (40, 60, 3), np.uint8)) for i in range(count)]


@pytest.mark.parametrize(("kind", "unit"), [("relative", DepthUnit.RELATIVE), ("metric", DepthUnit.METRIC)])
def test_a_saved_model_gives_maps_with_their_unit(tmp_path, kind, unit):
    save_tiny_model(tmp_path, depth_estimation_type=kind)
    found = dict(DepthNetwork.from_pretrained(str(tmp_path)).predict(frames()))
    assert list(found) == [0, 6]
    assert found[0].unit is unit
    assert found[0].values.shape == (28, 42)
    assert found[0].values.dtype == np.float32
    assert np.isfinite(found[0].values).all()
    again = dict(DepthNetwork.from_pretrained(str(tmp_path)).predict(frames()))
    np.testing.assert_array_equal(found[6].values, again[6].values)


def test_a_folder_without_a_model_says_what_to_give(tmp_path):
    with pytest.raises(WeightsError, match="save_pretrained"):
        DepthNetwork.from_pretrained(str(tmp_path))


def test_without_the_extra_its_name_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"egohieraloc\[hub\]"):
        DepthNetwork.from_pretrained("anything")
