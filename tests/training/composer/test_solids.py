"""Solids: shapes, masks and labels with known answers, from known sides."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from test_clip_composer import equal
from torch import Tensor

from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.packs import SPRITE_PX, Packs
from egohieraloc.training.composer.random_numbers import RandomNumbers
from egohieraloc.training.composer.solid_kinds import KINDS, WALL_SAMPLES, closed, draw_shapes, hollow
from egohieraloc.training.composer.solid_shapes import Shapes
from egohieraloc.training.composer.solid_skins import (
    BACK,
    BOTTOM,
    CHECKS,
    FRONT,
    LABELS,
    LEFT,
    PLAIN,
    RIGHT,
    TOP,
    Lights,
    Skins,
    draw_labels,
)
from egohieraloc.training.composer.solids import MARGIN_PX, aim, draw_views, render, with_solids
from tiny_packs import small_config, tiny_packs

SIDE = 96
FACES = {FRONT: (0, 1, 0), BACK: (0, -1, 0), RIGHT: (1, 0, 0), LEFT: (-1, 0, 0)}
COLOURS = torch.eye(3).repeat(2, 1) * torch.tensor([1.0, 1, 1, 0.5, 0.5, 0.5])[:, None]


def shapes(body: Tensor, *, core: tuple[float, float] = (0.0, 0.0), **changes: Tensor) -> Shapes:
    nothing = torch.full((1, 5), -1.0)
    plain = Shapes(
        body=body,
        core=torch.tensor([core]),
        squeeze=torch.ones(1),
        cap=body,
        has_cap=torch.zeros(1, dtype=torch.bool),
        ring=nothing,
        wall=torch.zeros(1),
        two_rings=torch.zeros(1, dtype=torch.bool),
        bar=nothing,
    )
    return replace(plain, **changes)


def ball(radius: float) -> Shapes:
    angle = torch.linspace(-math.pi / 2, math.pi / 2, WALL_SAMPLES)[None]
    return shapes(closed(radius * angle.cos(), radius * angle.sin()))


def box() -> Shapes:
    rows = torch.linspace(-0.6, 0.6, WALL_SAMPLES)[None]
    return shapes(closed(torch.full_like(rows, 0.02), rows), core=(0.48, 0.38))


def cylinder() -> Shapes:
    rows = torch.linspace(-0.8, 0.8, WALL_SAMPLES)[None]
    return shapes(closed(torch.full_like(rows, 0.5), rows))


def skins(printed: tuple[int, ...] = ()) -> Skins:
    """White, with labels of one colour each: a third of the primaries twice, once half as bright."""
    flags = torch.zeros(1, LABELS, dtype=torch.bool)
    flags[:, list(printed)] = True
    white, one = torch.ones(1, 3), torch.ones(1)
    return Skins(
        ground=white,
        second=white,
        cap=white * 0.2,
        handle=white * 0.4,
        inside=white * 0.6,
        pattern=torch.tensor([PLAIN]),
        bands=one,
        phase=one,
        labels=COLOURS[None, :, :, None, None].expand(1, LABELS, 3, 8, 8),
        printed=flags,
        reach=torch.tensor([[1.0, math.pi / 4, 0.8]]),
        gloss=0 * one,
        hardness=10 * one,
        metal=0 * one,
    )


def even_light(views: int) -> Lights:
    toward = torch.tensor([0.0, 0.0, 1.0]).expand(1, views, 3)
    return Lights(toward, torch.zeros(1, views), torch.ones(1, views), torch.ones(1, views, 3))


def seen(
    solid: Shapes, skin: Skins, *directions: tuple[float, float, float], distance: float = 3.0
) -> Tensor:
    """Images (V, SIDE, SIDE, 4) from these sides."""
    toward = torch.nn.functional.normalize(torch.tensor([directions], dtype=torch.float32), dim=-1)
    count = len(directions)
    views = aim(solid, toward, torch.zeros(1, count), torch.full((1, count), distance))
    return render(solid, skin, views, even_light(count), SIDE)[0]


def share_of(image: Tensor, colour: Tensor) -> Tensor:
    """Share of the solid's pixels (V, S, S, 4) that have the colour's hue."""
    wanted = colour > 0
    value = image[..., :3].float()
    strong = value[..., wanted].amin(-1) > 40
    pure = value[..., ~wanted].amax(-1) < 20
    mask = image[..., 3] > 0
    return (strong & pure & mask).sum((1, 2)) / mask.sum((1, 2))


def test_a_ball_has_the_area_of_a_ball() -> None:
    """Seen from d radii its outline is a circle of radius 1 / sqrt(d^2 - 1), which fills the window."""
    image = seen(ball(0.7), skins(), (1, 0, 0), (0.3, 0.4, 0.5), distance=2.5)
    across = SIDE * (SPRITE_PX - 2 * MARGIN_PX) / SPRITE_PX
    area = (image[..., 3] > 0).sum((1, 2)).float()
    torch.testing.assert_close(area, torch.full_like(area, math.pi / 4 * across**2), rtol=0.015, atol=0)


def test_distances_of_a_ball_are_exact_outside() -> None:
    points = torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0))
    points = torch.nn.functional.normalize(points, dim=-1) * torch.linspace(0.72, 0.98, 200)[None, :, None]
    found = ball(0.7).distance(points)
    torch.testing.assert_close(found, points.norm(dim=-1) - 0.7, atol=0.006, rtol=0)


@pytest.mark.parametrize("kind", sorted(set(KINDS), key=lambda kind: kind.__name__))
def test_no_step_goes_through_a_surface(kind: object) -> None:
    """Nowhere do distances change faster than the way between two points."""
    some = kind(RandomNumbers(torch.Generator().manual_seed(1)), 6)  # type: ignore[operator]
    generator = torch.Generator().manual_seed(2)
    points = torch.rand(6, 4000, 3, generator=generator) * 3 - 1.5
    step = 0.05 * torch.nn.functional.normalize(torch.randn(6, 4000, 3, generator=generator), dim=-1)
    change = (some.distance(points + step) - some.distance(points)).abs()
    assert change.max() < 0.05 * 1.02


def test_the_outline_holds_the_solid() -> None:
    some = draw_shapes(RandomNumbers(torch.Generator().manual_seed(3)), 2 * len(KINDS))
    outline = some.outline()
    low, high = outline.amin(1), outline.amax(1)
    points = torch.rand(len(low), 20_000, 3, generator=torch.Generator().manual_seed(4)) * 4 - 2
    inside = some.distance(points) < 0
    assert inside.any(1).all()
    beyond = (points < low[:, None] - 0.01) | (points > high[:, None] + 0.01)
    assert not (inside & beyond.any(-1)).any()


def test_each_face_of_a_box_is_seen_from_its_side_only() -> None:
    image = seen(box(), skins((FRONT, BACK, RIGHT, LEFT)), *FACES.values())
    for view, face in enumerate(FACES):
        shares = share_of(image, COLOURS[face])
        bright = image[view, SIDE // 2, SIDE // 2, :3].float() / 255
        torch.testing.assert_close(bright, COLOURS[face] * 0.75, atol=0.05, rtol=0)
        assert shares[view] > 0.9
    above = seen(box(), skins((TOP,)), (0.01, 0, 1), (0.01, 0, -1))
    assert share_of(above, COLOURS[TOP])[0] > 0.7
    assert share_of(above, COLOURS[TOP])[1] == 0
    below = seen(box(), skins((BOTTOM,)), (0.01, 0, 1), (0.01, 0, -1))
    assert (share_of(below, COLOURS[BOTTOM]) > 0.5).tolist() == [False, True]


def test_a_label_is_seen_from_the_front_and_not_from_behind() -> None:
    image = seen(cylinder(), skins((FRONT,)), (0, 1, 0.2), (0, -1, 0.2), (1, 0, 0.2))
    shares = share_of(image, COLOURS[FRONT])
    assert 0.3 < shares[0] < 0.7  # a quarter of the round is seven tenths of the width; 0.8 of the height
    assert shares[1] == 0
    assert 0.05 < shares[2] < 0.2  # from the side the last eighth of the round, foreshortened


def test_a_label_reads_from_left_to_right_and_from_above() -> None:
    skin = skins((FRONT,))
    left, top = torch.zeros(1, LABELS, 3, 8, 8), torch.zeros(1, LABELS, 3, 8, 8)
    left[..., 0, :, :4], top[..., 0, :4, :] = 1, 1
    for solid in (box(), cylinder()):
        for label, where in (
            (left, (slice(None), slice(0, SIDE // 2 + 1))),
            (top, (slice(0, SIDE // 2 + 1),)),
        ):
            image = seen(solid, replace(skin, labels=label), (0, 1, 0))[0]
            red = (image[..., 0] > 100) & (image[..., 1] < 20)
            assert red.sum() > 300
            half = torch.zeros_like(red)
            half[where] = True
            assert not (red & ~half).any()


def test_a_mug_is_hollow_and_held_by_its_side() -> None:
    rows = torch.linspace(-0.6, 0.6, WALL_SAMPLES)[None]
    body = hollow(torch.full_like(rows, 0.5), rows, torch.tensor([0.08]))
    ring = torch.tensor([[0.5, 0.0, 0.3, 1.2, 0.06]])
    mug = shapes(body, ring=ring, wall=torch.tensor([0.46]))
    cup = shapes(body)
    assert mug.hollow.all()
    assert not box().hollow.any()
    inside = torch.tensor([[[0.0, 0, 0], [0.3, 0, 0.3], [0.46, 0, 0.2], [0, 0, -0.57], [0.3, 0, 0.36]]])
    assert (cup.distance(inside) < 0).tolist() == [[False, False, True, True, False]]
    assert (mug.distance(inside) < 0).tolist() == [[False, False, True, True, False]]
    handle = torch.tensor([[[0.8, 0, 0], [-0.8, 0, 0], [0.62, 0, 0]]])
    assert (mug.distance(handle) < 0).tolist() == [[True, False, False]]
    both = replace(mug, two_rings=torch.ones(1, dtype=torch.bool))
    assert (both.distance(handle) < 0).tolist() == [[True, True, False]]
    image = seen(mug, skins(), (0, -0.4, 1), (0, 1, 0))
    assert (image[0, SIDE // 2, SIDE // 3 + 4, :3] < 0.61 * 255).all()  # the inside is grey
    grey = (image[1][..., 0] > 60) & (image[1][..., 0] < 0.41 * 255)
    assert grey.any(0).nonzero().max() < SIDE // 2  # from the front, right is -x


def test_caps_and_bars_are_parts_of_their_own() -> None:
    rows = torch.linspace(0.55, 0.8, WALL_SAMPLES)[None]
    bar = torch.tensor([[0.4, 0.0, 1.2, 0.0, 0.05]])
    jar = replace(box(), cap=closed(torch.full_like(rows, 0.2), rows), has_cap=torch.tensor([True]), bar=bar)
    points = torch.tensor([[[0.0, 0, 0.79], [0.45, 0.1, 0.1], [1.1, 0, 0.04], [0, 0.25, 0.7]]])
    assert jar.nearest_part(points)[0, :3].tolist() == [1, 0, 3]
    assert (jar.distance(points) < 0).tolist() == [[True, True, True, False]]


def test_views_go_all_round_and_are_unit_vectors() -> None:
    some = draw_shapes(RandomNumbers(torch.Generator().manual_seed(5)), 3)
    views = draw_views(RandomNumbers(torch.Generator().manual_seed(5)), some, 16)
    torch.testing.assert_close(views.direction.norm(dim=-1), torch.ones(3, 16))
    assert (views.direction[..., 2] > -0.1).all()
    assert (views.direction[..., 2] < 0.97).all()
    cosine = torch.einsum("ovc,owc->ovw", views.direction, views.direction)
    assert (cosine < math.cos(math.radians(100))).any(-1).float().mean() > 0.6
    frame = views.right_down_ahead
    torch.testing.assert_close(frame @ frame.mT, torch.eye(3).expand(3, 16, 3, 3), atol=1e-5, rtol=0)
    assert (torch.linalg.det(frame) > 0).all()


@pytest.fixture(scope="module")
def packs() -> Packs:
    return with_solids(tiny_packs(views=2), len(KINDS), torch.Generator().manual_seed(6))


def test_solids_stand_beside_the_scanned_objects(packs: Packs) -> None:
    scanned, count = tiny_packs(views=2), len(KINDS)
    assert packs.sprites.shape == (4 + count, 2, SPRITE_PX, SPRITE_PX, 4)
    assert packs.sprites.dtype == torch.uint8
    assert torch.equal(packs.sprites[:4], scanned.sprites)
    assert packs.sprite_direction.shape == (4 + count, 2, 3)
    assert packs.sprite_direction.dtype == torch.float32
    assert packs.sprite_id.tolist() == list(range(4 + count))
    for name in ("photos", "mask_crops", "mask_photo", "mask_box"):
        assert torch.equal(getattr(packs, name), getattr(scanned, name))


def test_masks_fill_the_image_up_to_its_border(packs: Packs) -> None:
    alpha = packs.sprites[4:, ..., 3]
    assert ((alpha == 0) | (alpha == 255)).all()
    solid = alpha > 0
    assert not solid[:, :, [0, -1]].any()
    assert not solid[:, :, :, [0, -1]].any()
    longer = torch.maximum(solid.any(2).sum(-1), solid.any(3).sum(-1))
    assert ((longer >= SPRITE_PX - 2 * MARGIN_PX - 4) & (longer <= SPRITE_PX - 2 * MARGIN_PX + 3)).all()
    assert (packs.sprites[4:, ..., :3][~solid] == 0).all()


def test_nothing_is_of_one_colour(packs: Packs) -> None:
    for image in packs.sprites[4:].flatten(0, 1):
        assert image[image[..., 3] > 0][:, :3].float().std(0).max() > 5


def test_the_same_seed_gives_the_same_solids() -> None:
    first, again, other = (
        with_solids(tiny_packs(views=1), 2, torch.Generator().manual_seed(seed)) for seed in (8, 8, 9)
    )
    for field in fields(Packs):
        assert torch.equal(getattr(first, field.name), getattr(again, field.name)), field.name
    assert not torch.equal(first.sprites, other.sprites)


def test_labels_are_cut_from_the_photos() -> None:
    packs = tiny_packs()
    dark = replace(packs, photos=packs.photos * 0 + torch.tensor([10, 20, 30], dtype=torch.uint8))
    labels = draw_labels(RandomNumbers(torch.Generator().manual_seed(0)), dark, 10)
    cut = (labels - torch.tensor([10.0, 20, 30])[:, None, None] / 255).abs().amax(2) < 1e-6
    assert (cut.float().mean((2, 3)) == 1).float().mean() > 0.3  # about half are covered with writing
    assert cut[:, :, 0].all()  # and that from below


def test_composing_with_solids_draws_them_too() -> None:
    config = small_config(solids=3, sprite_share=1.0)
    batch, again = (ClipComposer(tiny_packs(views=1), config, "cpu", 3).batch(0, 8) for _ in range(2))
    assert batch.source.max() > 3
    assert equal(batch, again)


def test_patterns_show_both_colours() -> None:
    checked = replace(skins(), second=torch.tensor([[1.0, 0, 0]]), pattern=torch.tensor([CHECKS]))
    image = seen(cylinder(), replace(checked, bands=torch.tensor([4.0])), (1, 0.3, 0))
    assert 0.35 < share_of(image, COLOURS[0])[0] < 0.65
