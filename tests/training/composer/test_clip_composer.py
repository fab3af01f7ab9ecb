"""Composed clips: labels agree with what was painted, settings do what they say, seeds decide everything."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from egohieraloc.errors import DataError
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.composer_config import ComposerConfig
from egohieraloc.training.composer.query_composer import QUERY_CONTEXT
from tiny_packs import BLUE, GREEN, SPRITE_COLOURS, calm_config, small_config, tiny_packs


def compose(config: ComposerConfig, *, step: int = 0, size: int = 8, seed: int = 3) -> ClipBatch:
    return ClipComposer(tiny_packs(), config, "cpu", seed).batch(step, size)


def equal(a: ClipBatch, b: ClipBatch) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(ClipBatch))


def near_colour(image: Tensor, colour: tuple[int, int, int], tolerance: float = 0.2) -> Tensor:
    """Pixels of (..., 3, H, W) that have about this colour."""
    wanted = torch.tensor(colour)[:, None, None] / 255
    return ((image - wanted).abs() < tolerance).all(-3)


@pytest.fixture(scope="module")
def busy() -> ClipBatch:
    return compose(small_config(), size=24)


def test_shapes_types_and_ranges(busy: ClipBatch) -> None:
    assert busy.query.shape == (24, 3, 64, 64)
    assert busy.query_mask.shape == (24, 1, 64, 64)
    assert busy.query_box.shape == (24, 4)
    assert busy.frames.shape == (24, 2, 3, 128, 128)
    assert busy.masks.shape == busy.distractor_masks.shape == (24, 2, 32, 32)
    assert busy.boxes.shape == (24, 2, 4)
    assert busy.presence.shape == (24, 2)
    assert busy.source.shape == (24,)
    for name in ("query", "query_mask", "frames", "masks", "distractor_masks", "presence"):
        value = getattr(busy, name)
        assert value.isfinite().all(), name
        assert value.min() >= 0, name
        assert value.max() <= 1, name
    assert (busy.boxes >= 0).all()
    assert (busy.boxes <= 128).all()


def test_the_same_seed_and_step_give_the_same_clips() -> None:
    composer = ClipComposer(tiny_packs(), small_config(), "cpu", 3)
    first = composer.batch(5, 4)
    composer.batch(6, 4)
    assert equal(first, composer.batch(5, 4))
    assert equal(first, compose(small_config(), step=5, size=4))
    assert not equal(first, composer.batch(6, 4))
    assert not equal(first, compose(small_config(), step=5, size=4, seed=4))


def test_chosen_objects_are_those_of_the_batch() -> None:
    composer = ClipComposer(tiny_packs(), small_config(sprite_share=1.0, absent_share=0.5), "cpu", 3)
    chosen, batch = composer.chosen_objects(2, 12), composer.batch(2, 12)
    assert torch.equal(chosen.target, batch.source)  # the tiny packs number their sprites from 0
    assert chosen.views.shape == (12, 2)
    assert batch.presence[chosen.absent].sum() == 0
    assert batch.presence[~chosen.absent].sum() > 0


def test_presence_agrees_with_masks_and_boxes(busy: ClipBatch) -> None:
    present = busy.presence > 0.5
    assert 0.2 < present.float().mean() < 0.9
    assert torch.equal(busy.masks.sum((2, 3)) > 0, present)
    assert (busy.boxes[~present] == 0).all()
    sides = busy.boxes[present][:, 2:] - busy.boxes[present][:, :2]
    assert (sides > 0).all()
    strict = compose(calm_config(min_visible_share=0.9, edge_share=1.0), size=24)
    assert 0.1 < strict.presence.mean() < 0.9
    assert torch.equal(strict.masks.sum((2, 3)) > 0, strict.presence > 0.5)


def test_clips_without_the_target_have_no_labels_but_look_alikes() -> None:
    batch = compose(small_config(absent_share=1.0, look_alike_share=1.0))
    assert batch.presence.sum() == 0
    assert batch.masks.sum() == 0
    assert batch.boxes.sum() == 0
    assert (batch.distractor_masks.sum((1, 2, 3)) > 0).float().mean() > 0.5


def test_the_box_is_tight_around_the_mask() -> None:
    batch = compose(calm_config(), size=16)
    assert batch.presence.mean() > 0.8
    for clip, time in (batch.presence > 0.5).nonzero().tolist():
        rows, columns = (batch.masks[clip, time] > 0.3).nonzero().unbind(1)
        cells = torch.stack((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)) * 4
        assert (batch.boxes[clip, time] - cells).abs().max() <= 4


@pytest.mark.parametrize("in_place", [0.0, 1.0])
def test_masks_of_photo_objects_cover_their_colour(in_place: float) -> None:
    batch = compose(calm_config(sprite_share=0.0, in_place_share=in_place, photo_scale=(0.1, 0.11)), size=12)
    green, blue = near_colour(batch.frames, GREEN), near_colour(batch.frames, BLUE)
    inside = torch.nn.functional.interpolate(batch.masks, scale_factor=4.0) > 0.95
    assert inside.sum() > 1000
    assert ((green | blue) & inside).sum() > 0.97 * inside.sum()


def test_an_object_in_place_is_shown_once() -> None:
    packs = tiny_packs(photos=150)
    packs.photos[1:] = 100
    only = {name: getattr(packs, name)[:1] for name in ("mask_photo", "mask_crops", "mask_box")}
    packs.photos[0, 140:] = 100  # no blue box
    config = calm_config(sprite_share=0.0, in_place_share=1.0, leave_share=1.0, frame_px=448)
    batch = ClipComposer(type(packs)(**(vars(packs) | only)), config, "cpu", 0).batch(0, 24)
    green = near_colour(batch.frames, GREEN).sum((2, 3))
    truth = batch.masks.sum((2, 3)) * 16
    ratio = (green / truth)[truth > 400]
    assert abs(float(ratio.median()) - 1) < 0.04
    twice = (green > truth * 1.15 + 100).any(1)
    assert 0.3 < batch.presence.mean() < 0.95
    assert twice.sum() <= 2  # its photo may also be drawn for another cell


def test_masks_of_sprites_cover_all_of_their_colour() -> None:
    batch = compose(calm_config(sprite_share=1.0, edge_share=0.0, moving_share=0.0, pan=(0.01, 0.1)), size=12)
    drawn = torch.stack([near_colour(batch.frames, colour) for colour in SPRITE_COLOURS]).any(0)
    truth = batch.masks.sum((2, 3)) * 16
    assert (truth > 50).all()
    assert ((drawn.sum((2, 3)) - truth).abs() < 0.08 * truth + 8).all()
    query = torch.stack([near_colour(batch.query, colour) for colour in SPRITE_COLOURS]).any(0)
    agree = query == (batch.query_mask[:, 0] > 0.5)
    assert agree.float().mean() > 0.97


def test_occluders_cover_part_of_the_mask_but_never_too_much() -> None:
    free = calm_config(
        sprite_share=1.0, edge_share=0.0, moving_share=0.0, pan=(0.001, 0.002), photo_scale=(2.0, 2.2)
    )
    covered = {"occluder_share": 1.0, "shape_share": 1.0, "hand_share": 1.0, "hand_on_target_share": 1.0}
    whole = compose(free, size=16).masks.sum((2, 3))
    beside = compose(calm_config(**(vars(free) | {"occluder_share": 1.0})), size=16).masks.sum((2, 3))
    assert ((beside / whole) < 0.98).float().mean() > 0.5
    left = compose(calm_config(**(vars(free) | covered)), size=16).masks.sum((2, 3))
    share = left / whole
    assert share.mean() < 0.9
    assert share.min() > 1 - free.max_covered - 0.02


def test_bars_are_black_and_have_no_labels() -> None:
    batch = compose(small_config(aspects=((16 / 9, 1.0),), circle_share=0.0))
    bar = int((128 - 128 * 9 / 16) / 2)
    assert (batch.frames[:, :, :, :bar] == 0).all()
    assert (batch.frames[:, :, :, -bar:] == 0).all()
    assert (batch.frames[:, :, :, bar + 1 : -bar - 1].mean((2, 3, 4)) > 0.01).all()
    assert (batch.masks[:, :, : bar // 4] == 0).all()


def test_round_images_have_dark_corners() -> None:
    batch = compose(calm_config(circle_share=1.0, fisheye_share=1.0, circle=(0.9, 0.95)))
    assert batch.frames[..., :20, :20].max() < 0.01
    assert (batch.frames[..., 112, 112] > 0.1).any(-1).all()


def test_the_query_window_is_centred_with_context_around_the_box() -> None:
    batch = compose(small_config(), size=16)
    sides = batch.query_box[:, 2:] - batch.query_box[:, :2]
    torch.testing.assert_close(sides.amax(1), torch.full((16,), 64 / QUERY_CONTEXT))
    torch.testing.assert_close(
        (batch.query_box[:, 2:] + batch.query_box[:, :2]) / 2, torch.full((16, 2), 32.0)
    )


def test_the_query_box_is_tight_without_jitter() -> None:
    batch = compose(calm_config(), size=16)
    for clip in range(16):
        rows, columns = (batch.query_mask[clip, 0] > 0.5).nonzero().unbind(1)
        tight = torch.stack((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
        assert (batch.query_box[clip] - tight).abs().max() <= 3


def test_a_crop_only_query_is_black_outside_its_box() -> None:
    batch = compose(small_config(crop_only_share=1.0))
    for clip in range(8):
        x1, y1, x2, y2 = batch.query_box[clip].tolist()
        outside = torch.ones(64, 64, dtype=torch.bool)
        outside[round(y1) : round(y2), round(x1) : round(x2)] = False
        assert (batch.query[clip][:, outside] == 0).all()
        assert (batch.query_mask[clip, 0][outside] == 0).all()


def test_the_query_is_black_outside_its_photo() -> None:
    packs = tiny_packs()
    packs.photos[:] = 250
    packs.mask_box[:] = torch.tensor([4.0, 100.0, 64.0, 160.0])
    packs.mask_box[0::2] += torch.tensor([0.0, 1.0, 0.0, 1.0])
    packs.photos[:, 100:160, 4:64] = torch.tensor(GREEN, dtype=torch.uint8)
    config = small_config(sprite_share=0.0, crop_only_share=0.0, query_hand_share=0.0, loose_box_share=0.0)
    batch = ClipComposer(packs, config, "cpu", 0).batch(0, 8)
    assert (batch.query[..., :3] == 0).all()
    assert (batch.query[..., 32, -3:].mean((1, 2)) > 0.2).all()


def test_only_look_alikes_are_marked_as_distractors() -> None:
    quiet = small_config(similar_share=0.0, rival_share=0.0, absent_share=0.0)
    assert compose(quiet).distractor_masks.sum() == 0
    assert compose(small_config(similar_share=1.0, absent_share=0.0)).distractor_masks.sum() > 0
    assert compose(calm_config(rival_share=1.0)).distractor_masks.sum() > 0


def test_the_target_leaves_when_the_camera_looks_away() -> None:
    away = calm_config(leave_share=1.0, leave_frame_share=1.0, sprite_share=1.0)
    assert compose(away, size=16).presence.mean() < 0.2
    assert compose(calm_config(sprite_share=1.0), size=16).presence.mean() > 0.8


def test_shadows_darken_the_surroundings_of_an_object() -> None:
    light, dark = (compose(calm_config(sprite_share=1.0, shadow=(s, s))).frames for s in (0.0, 0.6))
    assert (dark <= light + 1e-5).all()
    assert 0.0005 < (light - dark).mean() < 0.05


def test_half_precision_and_autocast_do_not_change_labels() -> None:
    composer = ClipComposer(tiny_packs(), small_config(), "cpu", 3)
    exact = composer.batch(0, 8)
    composer._dtype = torch.float16  # as on a GPU
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = composer.batch(0, 8)
    assert rounded.frames.dtype == torch.float16
    assert (rounded.frames.float() - exact.frames).abs().mean() < 2e-3
    assert torch.equal(rounded.presence, exact.presence)
    assert (rounded.masks - exact.masks).abs().max() < 0.01
    assert (rounded.boxes - exact.boxes).abs().max() <= 1


def test_near_duplicates_share_a_source_and_are_not_look_alikes() -> None:
    packs = tiny_packs(sprite_id=(0, 0, 2, 3))
    composer = ClipComposer(packs, small_config(sprite_share=1.0), "cpu", 0)
    assert set(composer.batch(0, 32).source.tolist()) == {0, 2, 3}
    table = composer._instances
    group = torch.cat((packs.sprite_id, table.num_sprites + table.mask_photo))
    assert (group[table.look_alikes] != group[:, None]).all()


def test_look_alikes_look_alike() -> None:
    table = ClipComposer(tiny_packs(), small_config(neighbours=3), "cpu", 0)._instances
    ellipse = table.num_sprites
    assert (table.look_alikes[ellipse] % 2 == ellipse % 2).all()  # the green ellipses of other photos


def test_nearly_equal_objects_of_two_photos_are_not_look_alikes() -> None:
    table = ClipComposer(tiny_packs(), small_config(twin_similarity=0.985, neighbours=3), "cpu", 0)._instances
    ellipse = table.num_sprites
    others = table.look_alikes[ellipse]
    assert ((others < table.num_sprites) | (others % 2 != ellipse % 2)).all()


def test_packs_without_a_usable_mask_are_refused() -> None:
    packs = tiny_packs(photos=1)
    with pytest.raises(DataError, match="usable"):
        ClipComposer(
            type(packs)(**(vars(packs) | {"mask_box": packs.mask_box * 0.01})), small_config(), "cpu", 0
        )


def test_clips_of_other_lengths() -> None:
    for frames in (1, 3):
        batch = compose(small_config(clip_frames=frames), size=3)
        assert batch.frames.shape[:2] == (3, frames)
