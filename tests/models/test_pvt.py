"""PVT against transformers: same weights, same input, same maps; sizes, ablations and checkpoints."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError, MissingExtraError, WeightsError
from egohieraloc.models import pvt
from egohieraloc.models.backbone import Backbone, build_backbone, load_imagenet

CHANNELS, DEPTHS, HEADS, WIDENING = (8, 16, 40, 64), (1, 2, 1, 2), (1, 2, 5, 8), (4, 3, 2, 2)
V1 = BackboneConfig(name="pvt_v1_test", image_size=64)
V2 = BackboneConfig(name="pvt_v2_test")


@pytest.fixture(autouse=True)
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (1, 2):
        shape = pvt.Shape(version, DEPTHS, channels=CHANNELS, widening=WIDENING, heads=HEADS)
        monkeypatch.setitem(pvt.SHAPES, f"pvt_v{version}_test", shape)
        monkeypatch.setitem(pvt.BUILDERS, f"pvt_v{version}_test", pvt.Pvt)


def transformers_model(version: int, *, classifier: bool = True, size: int = 64) -> Any:
    transformers = pytest.importorskip("transformers")
    settings = {
        "hidden_sizes": list(CHANNELS),
        "depths": list(DEPTHS),
        "num_attention_heads": list(HEADS),
        "mlp_ratios": list(WIDENING),
        "num_labels": 5,
        "image_size": size,
    }
    torch.manual_seed(version)
    config = (transformers.PvtConfig if version == 1 else transformers.PvtV2Config)(**settings)
    kind = "Pvt" if version == 1 else "PvtV2"
    model = getattr(transformers, kind + ("ForImageClassification" if classifier else "Model"))(config).eval()
    with torch.no_grad():  # away from zeros, ones and tiny numbers, so that every tensor matters
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def transformers_maps(model: Any, images: Tensor) -> list[Tensor]:
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        states = model(pixel_values=(images - mean) / std, output_hidden_states=True).hidden_states
    if states[0].ndim == 4:
        return list(states)
    after_stage = [sum(DEPTHS[: i + 1]) - 1 for i in range(3)]
    tokens = [
        *(states[i] for i in after_stage),
        states[-1][:, 1:],
    ]  # the last is normalised and has a class token
    side = images.shape[-1]
    return [
        t.transpose(1, 2).unflatten(2, (side // s, side // s))
        for t, s in zip(tokens, (4, 8, 16, 32), strict=True)
    ]


def images(height: int = 64, width: int = 64) -> Tensor:
    return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))


def loaded(config: BackboneConfig, source: str | Path) -> Backbone:
    backbone = build_backbone(config).eval()
    load_imagenet(backbone, source)
    return backbone


@pytest.mark.parametrize("classifier", [True, False])
@pytest.mark.parametrize(
    ("config", "sizes"),
    [(V1, [(64, 64)]), (replace(V1, image_size=224), [(224, 224)]), (V2, [(64, 64), (96, 160)])],
)
def test_maps_equal_transformers(
    tmp_path: Path, config: BackboneConfig, sizes: list[tuple[int, int]], classifier: bool
) -> None:
    version = pvt.SHAPES[config.name].version
    other = transformers_model(version, classifier=classifier, size=config.image_size)
    other.save_pretrained(tmp_path)
    ours = loaded(config, tmp_path)
    assert ours.channels == CHANNELS
    for size in sizes:
        batch = images(*size)
        with torch.no_grad():
            maps = ours(batch)
        for map_, wanted in zip(maps, transformers_maps(other, batch), strict=True):
            assert map_.shape == wanted.shape
            torch.testing.assert_close(map_, wanted, rtol=1e-4, atol=1e-4)


def test_a_folder_with_the_older_file_and_a_single_file_load_too(tmp_path: Path) -> None:
    other = transformers_model(2)
    torch.save(other.state_dict(), tmp_path / "pytorch_model.bin")
    from_folder, from_file = loaded(V2, tmp_path), loaded(V2, tmp_path / "pytorch_model.bin")
    for a, b, wanted in zip(
        from_folder(images()), from_file(images()), transformers_maps(other, images()), strict=True
    ):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, wanted, rtol=1e-4, atol=1e-4)


def test_position_embeddings_are_interpolated_in_the_state(tmp_path: Path) -> None:
    other = transformers_model(1, size=64)
    other.save_pretrained(tmp_path)
    ours = loaded(replace(V1, image_size=128), tmp_path)
    for index, stride in enumerate((4, 8, 16, 32)):
        theirs = other.pvt.encoder.patch_embeddings[index].position_embeddings.detach()
        grid = theirs[:, 1 if index == 3 else 0 :].transpose(1, 2).unflatten(2, (64 // stride, 64 // stride))
        wanted = torch.nn.functional.interpolate(grid, scale_factor=2, mode="bilinear", align_corners=False)
        assert torch.allclose(ours.stages[index].position, wanted, atol=1e-6)


def test_v1_takes_another_size_than_its_own() -> None:
    """A constant position embedding stays constant at any size."""
    backbone = build_backbone(V1).eval()
    with torch.no_grad():
        for stage in backbone.stages:
            stage.position.fill_(0.3)
        large = build_backbone(replace(V1, image_size=128)).eval()
        large.load_state_dict(
            {
                k: torch.full_like(large.state_dict()[k], 0.3) if "position" in k else v
                for k, v in backbone.state_dict().items()
            }
        )
        for a, b in zip(backbone(images(128, 96)), large(images(128, 96)), strict=True):
            assert torch.allclose(a, b, atol=1e-5)


# Published sizes in millions, with the classifier of 1000 classes.
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("pvt_v1_tiny", 13.2),
        ("pvt_v1_small", 24.5),
        ("pvt_v1_medium", 44.2),
        ("pvt_v1_large", 61.4),
        ("pvt_v2_b0", 3.7),
        ("pvt_v2_b1", 14.0),
        ("pvt_v2_b2", 25.4),
        ("pvt_v2_b3", 45.2),
        ("pvt_v2_b4", 62.6),
        ("pvt_v2_b5", 82.0),
    ],
)
def test_published_size(name: str, millions: float) -> None:
    with torch.device("meta"):
        backbone = build_backbone(BackboneConfig(name=name, image_size=224))
    last = backbone.channels[-1]
    folded = last if "v1" in name else 0  # the class token's own position
    number = sum(p.numel() for p in backbone.parameters()) + folded + 1000 * last + 1000
    assert abs(number / 1e6 - millions) <= 0.051


ABLATIONS = [
    {"collapse": False},
    {"feed_forward": False},
    {"position": False},
    {"stages": 3},
    {"collapse": False, "feed_forward": False, "position": False, "stages": 3},
]


@pytest.mark.parametrize("config", [V1, V2])
@pytest.mark.parametrize("change", [{}, *ABLATIONS])
def test_shapes_gradients_and_half_precision(config: BackboneConfig, change: dict[str, Any]) -> None:
    backbone = build_backbone(replace(config, **change)).train()
    maps = backbone(images(64, 96))
    assert [tuple(map_.shape) for map_ in maps] == [
        (2, channels, 64 // stride, 96 // stride)
        for channels, stride in zip(backbone.channels, backbone.strides, strict=True)
    ]
    assert len(maps) == change.get("stages", 4)
    sum(((m * torch.randn_like(m)).sum() for m in maps), torch.zeros(())).backward()
    silent = {key for key, value in backbone.named_parameters() if value.grad is None or not value.grad.any()}
    # The softmax takes no notice of a constant added to every key, so the key's bias never learns.
    assert {key for key in silent if not key.endswith("key.bias")} == set()

    backbone.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        half = backbone(images(64, 96))
    for map_, near in zip(maps, half, strict=True):
        assert near.isfinite().all()
        assert (map_ - near.float()).abs().mean() < 0.05 * map_.abs().mean()


@pytest.mark.parametrize(
    ("config", "change", "part"),
    [
        (V1, {"collapse": False}, ".reduction"),
        (V2, {"collapse": False}, ".reduction"),
        (V1, {"feed_forward": False}, ".feed_forward"),
        (V2, {"feed_forward": False}, ".feed_forward"),
        (V1, {"position": False}, ".position"),
        (V2, {"position": False}, ".depthwise"),
        (V1, {"stages": 3}, "stages.3."),
        (V2, {"stages": 3}, "stages.3."),
    ],
)
def test_an_ablation_leaves_out_its_part_alone_and_loads_the_rest(
    tmp_path: Path, config: BackboneConfig, change: dict[str, Any], part: str
) -> None:
    transformers_model(pvt.SHAPES[config.name].version).save_pretrained(tmp_path)
    whole, cut = loaded(config, tmp_path), loaded(replace(config, **change), tmp_path)
    whole_state, cut_state = whole.state_dict(), cut.state_dict()
    assert all(torch.equal(value, whole_state[key]) for key, value in cut_state.items())
    assert whole_state.keys() - cut_state.keys() == {key for key in whole_state if part in key}
    with torch.no_grad():
        same = torch.equal(cut(images())[2], whole(images())[2])
    assert same == ("stages" in change)


def test_without_collapse_attention_is_plain_self_attention() -> None:
    attention = pvt.Attention(8, heads=2, reduction=1)
    tokens = torch.rand(1, 6, 8)
    query, key, value = (
        part(tokens).view(1, 6, 2, 4).transpose(1, 2)
        for part in (attention.query, attention.key, attention.value)
    )
    mixed = torch.softmax(query @ key.transpose(2, 3) / 2.0, dim=-1) @ value
    wanted = attention.output(mixed.transpose(1, 2).reshape(1, 6, 8))
    assert torch.allclose(attention(tokens, (2, 3)), wanted, atol=1e-6)


def test_bad_folders_and_foreign_checkpoints(tmp_path: Path) -> None:
    backbone = build_backbone(V2)
    with pytest.raises(WeightsError, match=r"no checkpoint at '.*pvt\.safetensors'"):  # not asked of the hub
        load_imagenet(backbone, tmp_path / "runs" / "pvt.safetensors")
    with pytest.raises(WeightsError, match=r"holds none of model.safetensors, pytorch_model.bin"):
        load_imagenet(backbone, tmp_path)
    transformers_model(1).save_pretrained(tmp_path / "v1")
    with pytest.raises(WeightsError, match="not a checkpoint of pvt_v2_test"):
        load_imagenet(backbone, tmp_path / "v1")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(WeightsError, match="cannot be read"):
        load_imagenet(backbone, tmp_path / "torn")
    state = transformers_model(1).state_dict()
    name = "pvt.encoder.patch_embeddings.0.position_embeddings"
    torch.save(state | {name: state[name][:, :-1]}, tmp_path / "oblong.pth")
    with pytest.raises(WeightsError, match="255 tokens do not make a square"):
        load_imagenet(build_backbone(V1), tmp_path / "oblong.pth")
    torch.save(
        transformers_model(2).state_dict() | {"pvt_v2.neck.weight": torch.zeros(1)}, tmp_path / "extra.pth"
    )
    with pytest.raises(WeightsError, match=r"unknown 'pvt_v2.neck.weight'"):
        load_imagenet(backbone, tmp_path / "extra.pth")


def test_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    other = transformers_model(2)
    torch.save(other.state_dict(), tmp_path / "pytorch_model.bin")
    asked = []

    def download(name: str, filename: str) -> str:
        asked.append((name, filename))
        if not (tmp_path / filename).is_file():
            raise hub.errors.EntryNotFoundError("404")
        return str(tmp_path / filename)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    backbone = loaded(V2, "somebody/pvt_v2_test")
    assert asked == [
        ("somebody/pvt_v2_test", "model.safetensors"),
        ("somebody/pvt_v2_test", "pytorch_model.bin"),
    ]
    torch.testing.assert_close(
        backbone(images())[3], transformers_maps(other, images())[3], rtol=1e-4, atol=1e-4
    )

    (tmp_path / "pytorch_model.bin").unlink()
    for name, usual in (("pvt_v2_b0", "OpenGVLab/pvt_v2_b0"), ("pvt_v1_tiny", "Zetatech/pvt-tiny-224")):
        with pytest.raises(WeightsError, match=rf"'{usual}' is no file or folder.*404.*give its folder"):
            load_imagenet(build_backbone(BackboneConfig(name=name)))


def test_missing_hub_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"egohieraloc\[hub\]"):
        load_imagenet(build_backbone(V2), "somebody/pvt_v2_test")


@pytest.mark.parametrize("size", [0, 100])
def test_bad_image_size(size: int) -> None:
    with pytest.raises(ConfigError, match=f"multiple of 32, got {size}"):
        build_backbone(replace(V1, image_size=size))


def test_bad_number_of_stages() -> None:
    with pytest.raises(ConfigError, match="3 or 4 stages, got stages=5"):
        build_backbone(replace(V2, stages=5))
