"""Features in few bytes: how far rounding goes, and that it goes no further the second time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from egohieraloc.config import PRESETS, preset
from egohieraloc.inference.packing import PackedFeatures, pack, unpack, unpack_match, whole_products
from egohieraloc.inference.regions import FINEST
from egohieraloc.models.neck import FrameFeatures

CPU = torch.device("cpu")
NAMES = [f.name for f in fields(PackedFeatures)]


def features(count: int = 3) -> FrameFeatures:
    generator = torch.Generator().manual_seed(0)

    def positive(channels: int, side: int) -> torch.Tensor:
        return torch.randn(count, channels, side, side, generator=generator).relu() * torch.arange(
            1, channels + 1
        ).view(-1, 1, 1)

    match = F.normalize(torch.randn(count, 12, 4, 4, generator=generator), dim=1)
    return FrameFeatures(match, positive(6, 2), positive(4, 8), positive(2, 16))


def test_descriptors_are_rounded_to_eight_bits() -> None:
    given = features()
    found = unpack(pack(given), CPU).match
    step = given.match.abs().amax((1, 2, 3)) / 127
    assert ((found - given.match).abs().amax((1, 2, 3)) <= 0.55 * step).all()
    cosine = F.cosine_similarity(found, given.match, dim=1)
    assert cosine.min() > 0.9995


@pytest.mark.parametrize(("name", "levels"), [("context", 255), ("fine8", 15), ("fine4", 15)])
def test_maps_are_rounded_on_a_square_root_scale(name: str, levels: int) -> None:
    given = getattr(features(), name)
    found = getattr(unpack(pack(features()), CPU), name)
    top = given.amax((2, 3), keepdim=True).clamp(min=1e-4)
    error = ((found / top).sqrt() - (given / top).sqrt()).abs()
    assert error.max() <= 0.5 / levels + 1e-3
    assert found.min() >= 0
    assert (found[given == 0] == 0).all()
    assert error.max() > 0.3 / levels  # it is rounded


def test_neighbours_share_a_byte_and_come_back_in_order() -> None:
    given = features(1)
    ramp = torch.arange(16.0).square()  # the codes 0 to 15 exactly
    fine4 = torch.zeros(1, 1, 2, 16)
    fine4[0, 0, 1] = ramp
    stored = pack(FrameFeatures(given.match, given.context, given.fine8, fine4))
    assert stored.fine4.shape == (1, 1, 2, 8)
    torch.testing.assert_close(unpack(stored, CPU).fine4, fine4, atol=0.2, rtol=2e-3)


def test_packing_what_was_unpacked_changes_nothing() -> None:
    first = pack(features())
    again = pack(unpack(first, CPU))
    for name in NAMES:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def test_zeros_stay_zeros_and_a_sample_does_not_touch_another() -> None:
    given = features(2)
    dark = FrameFeatures(*(getattr(given, f.name).clone() for f in fields(given)))
    for f in fields(dark):
        getattr(dark, f.name)[1] = 0
    found = unpack(pack(dark), CPU)
    alone = unpack(pack(given[0:1]), CPU)
    for f in fields(found):
        value = getattr(found, f.name)
        assert (value[1] == 0).all()
        torch.testing.assert_close(value[:1], getattr(alone, f.name), atol=0, rtol=0)


def test_cut_and_joined_again() -> None:
    whole = pack(features(5))
    joined = PackedFeatures.cat([whole[:2], whole[np.array([2])], whole[3:]])
    assert len(joined) == 5
    for name in NAMES:
        np.testing.assert_array_equal(getattr(whole, name), getattr(joined, name))
    np.testing.assert_array_equal(whole[::2].match, whole.match[::2])


@pytest.mark.parametrize("change", [lambda v: v.astype(np.float32), lambda v: v[:-1]])
def test_features_of_another_kind_or_number_are_refused(change: Callable[[np.ndarray], np.ndarray]) -> None:
    whole = pack(features())
    with pytest.raises(ValueError, match="of 3 samples, got"):
        replace(whole, fine8=change(whole.fine8))


def test_descriptors_alone_are_the_same() -> None:
    whole = pack(features())
    alone = unpack_match(whole.match, whole.match_scale, CPU)
    assert torch.equal(alone, unpack(whole, CPU).match)


@pytest.mark.parametrize("name", PRESETS)
def test_bytes_a_sample(name: str) -> None:
    neck, side = preset(name).neck, preset(name).input_size
    shapes = ((neck.match, 16), (neck.context, 32), (neck.fine8, 8), (neck.fine4, 4))
    maps = FrameFeatures(*(torch.rand(1, channels, side // s, side // s) for channels, s in shapes))
    assert pack(maps).bytes_per_sample < 150_000


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_whole_products_are_exact(rows: int) -> None:
    """On every processor, with the largest numbers that are compared too: see regions.py."""
    random = np.random.default_rng(rows)
    left = random.integers(-127, 127, (rows, 96), np.int8, endpoint=True)
    right = random.integers(-FINEST, FINEST, (96, 5), np.int8, endpoint=True)
    left[0], right[:, 0], right[:, 1] = 127, FINEST, -FINEST
    np.testing.assert_array_equal(whole_products(left, right), left.astype(np.int32) @ right)
