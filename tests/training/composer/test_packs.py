"""Reading packs: splits by name, near duplicates, limits, and clear errors for broken files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from egohieraloc.errors import DataError
from egohieraloc.training.composer.packs import (
    Packs,
    is_validation_photo,
    object_ids,
    read_packs,
    validation_objects,
)
from pack_files import OBJECTS, PHOTOS, RESERVED, webp, write_packs, write_tar


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_packs(tmp_path)


def greys(packs: Packs) -> set[int]:
    return {int(v) // 3 for v in packs.photos[:, 100, 100, 0]}


def reds(packs: Packs) -> list[int]:
    return packs.sprites[:, 0, 96, 96, 0].tolist()


def test_photos_are_split_by_name(folder: Path) -> None:
    train, val = read_packs(folder), read_packs(folder, split="val")
    expected = {k for k, name in enumerate(PHOTOS) if is_validation_photo(name)}
    assert 0 < len(expected) < 10
    assert greys(val) == expected
    assert greys(train) == set(range(len(PHOTOS))) - expected


def test_one_object_in_twelve_is_kept_for_validation_with_its_near_duplicates(folder: Path) -> None:
    assert reds(read_packs(folder)) == [1, 2, 3, 4]
    assert reds(read_packs(folder, split="val")) == [5, 6]
    assert validation_objects(OBJECTS[:6], [("jar_33", "jar_32")]) == set(RESERVED)
    assert validation_objects(OBJECTS[:6], []) == {"jar_32"}
    names = [f"object {k}" for k in range(1200)]
    assert 60 < len(validation_objects(names, [])) < 140


def test_held_out_objects_exclude_near_duplicates_of_training_objects(folder: Path) -> None:
    packs = read_packs(folder, split="heldout")
    assert reds(packs) == [8]
    assert greys(packs) == greys(read_packs(folder, split="val"))


def test_near_duplicates_share_an_id(folder: Path) -> None:
    assert read_packs(folder).sprite_id.tolist() == [0, 1, 0, 3]


def test_ids_of_indirectly_connected_objects_are_equal() -> None:
    pairs = [("c", "d"), ("a", "b"), ("b", "d"), ("a", "elsewhere")]
    assert object_ids(["a", "b", "c", "d", "e"], pairs).tolist() == [0, 0, 0, 0, 4]


def test_publishable_keeps_grocery_images_only(folder: Path) -> None:
    packs = read_packs(folder, publishable=True)
    assert all(PHOTOS[k].startswith("groc_") for k in greys(packs))
    assert len(packs.photos) > 10
    assert len(packs.sprites) == 4


def test_masks_belong_to_their_photo(folder: Path) -> None:
    packs = read_packs(folder)
    assert len(packs.mask_photo) == len(packs.photos)
    assert torch.equal(packs.mask_photo.sort().values, torch.arange(len(packs.photos)))
    upright = packs.photos[packs.mask_photo, 100, 100, 0] // 3 % 2 == 1
    wide = torch.tensor([30.0, 40.0, 40.0, 60.0])
    assert torch.equal(packs.mask_box[~upright], wide.expand(int((~upright).sum()), 4))
    squashed = wide * torch.tensor([256 / 192, 1.0, 256 / 192, 1.0])
    torch.testing.assert_close(packs.mask_box[upright], squashed.expand(int(upright.sum()), 4))
    assert (packs.mask_crops[:, :, :40] == 255).all()
    assert (packs.mask_crops[:, :, 56:] == 0).all()


def test_sprites_are_centred_with_their_directions(folder: Path) -> None:
    packs = read_packs(folder)
    assert packs.sprites.shape == (4, 3, 192, 192, 4)
    solid = packs.sprites[0, 0, 96, :, 3] == 255
    assert solid.nonzero()[[0, -1], 0].tolist() == [50, 141]
    expected = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [-1.0, 0, 0]])
    torch.testing.assert_close(packs.sprite_direction[0], expected, atol=1e-6, rtol=0)


def test_limit(folder: Path) -> None:
    packs = read_packs(folder, limit=2)
    assert (len(packs.photos), len(packs.sprites)) == (2, 2)
    with pytest.raises(DataError, match="higher limit"):
        read_packs(folder, limit=0)


@pytest.mark.parametrize("missing", ["photos/images_0.tar", "photos/masks_0.npz", "sprites/index.json"])
def test_a_missing_file_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(DataError, match=Path(missing).name.split("_0")[0]):
        read_packs(folder)


def test_broken_files_are_rejected(folder: Path) -> None:
    archive = folder / "photos/images_0.tar"
    archive.write_bytes(b"no tar at all")
    with pytest.raises(DataError, match="Cannot read"):
        read_packs(folder)
    write_tar(archive, {"coco_000000000001.webp": b"no image"})
    with pytest.raises(DataError, match="decoded"):
        read_packs(folder)


def test_sprites_must_be_small_and_have_alpha(folder: Path) -> None:
    name = "jar_0/00.webp"
    write_tar(folder / "sprites/train.tar", {name: webp(np.zeros((64, 64, 3), np.uint8))})
    with pytest.raises(DataError, match="without views"):
        read_packs(folder)
    with pytest.raises(DataError, match="RGBA"):
        read_packs(folder, limit=1)


def test_a_broken_list_of_near_duplicates_is_rejected(folder: Path) -> None:
    (folder / "sprites/near_duplicates.tsv").write_text("header\nonly one\n")
    with pytest.raises(DataError, match="near_duplicates"):
        read_packs(folder)


@pytest.mark.skipif("EGOHIERALOC_DATA" not in os.environ, reason="needs EGOHIERALOC_DATA")
def test_real_packs() -> None:
    packs = read_packs(Path(os.environ["EGOHIERALOC_DATA"]) / "data", split="heldout", limit=20)
    assert packs.sprites.shape == (20, 8, 192, 192, 4)
    assert len(packs.photos) == 20
