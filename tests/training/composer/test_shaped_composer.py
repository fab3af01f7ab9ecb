"""Batches of one shape each: what is cropped, which shape a step has, and training on them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from egohieraloc.config import preset
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.settings import override
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.composer.clip_composer import ClipComposer
from egohieraloc.training.composer.shaped_composer import ShapedComposer, shaped
from egohieraloc.training.loop import Run, train
from egohieraloc.training.optim import OptimConfig
from egohieraloc.video.canvas import canvas_for
from tiny_packs import calm_config, small_config, tiny_packs

ASPECTS = ((16 / 9, 0.3), (4 / 3, 0.4), (1.0, 0.2), (3 / 4, 0.1))
CANVASES = [(256, 160), (224, 192), (224, 224), (192, 224)]  # of frames of 224
STRIDE = 4


def composer_of(**changes: object) -> ShapedComposer:
    settings = {"frame_px": 128, "borders": False, "aspects": ASPECTS}
    return ShapedComposer(tiny_packs(), small_config(**(settings | changes)), "cpu", 3)


def assert_equal(one: ClipBatch, other: ClipBatch) -> None:
    for f in fields(ClipBatch):
        assert torch.equal(getattr(one, f.name), getattr(other, f.name)), f.name


@pytest.mark.parametrize(("aspect", "canvas"), [*zip([a for a, _ in ASPECTS], CANVASES, strict=True)])
def test_a_frame_is_the_middle_of_the_painted_square(aspect: float, canvas: tuple[int, int]) -> None:
    """Nothing but black is lost, the masks cover as much, and boxes move with the frames."""
    width, height = canvas
    config, found = shaped(
        small_config(frame_px=224, borders=False, edge_share=0.5, absent_share=0.1), aspect
    )
    assert found == canvas
    assert config.frame_px == max(canvas)
    square = ClipComposer(tiny_packs(), config, "cpu", 3)
    whole, batch = square.batch(1, 6), square.reshaped(config, canvas).batch(1, 6)
    left, top = (max(canvas) - width) // 2, (max(canvas) - height) // 2

    assert batch.frames.shape == (6, 2, 3, height, width)
    assert batch.masks.shape == batch.distractor_masks.shape == (6, 2, height // STRIDE, width // STRIDE)
    assert batch.frames.sum() == pytest.approx(float(whole.frames.sum()), rel=1e-5)
    for name in ("masks", "distractor_masks"):
        areas, expected = (getattr(b, name).sum((2, 3)) for b in (batch, whole))
        torch.testing.assert_close(areas, expected)
    shift = torch.tensor([left, top, left, top]) * whole.presence[..., None]
    assert torch.equal(batch.boxes, whole.boxes - shift)
    assert torch.equal(batch.presence, whole.presence)
    assert torch.equal(batch.query, whole.query)
    shown = batch.boxes[batch.presence > 0.5]
    assert len(shown) > 4
    assert (shown >= 0).all()
    assert (shown <= torch.tensor([width, height, width, height])).all()


def test_boxes_are_tight_around_masks_and_objects_have_their_colours() -> None:
    config = calm_config(borders=False, sprite_share=1.0, fisheye_share=0.0)
    for aspect in (16 / 9, 3 / 4):
        settings, canvas = shaped(config, aspect)
        batch = ClipComposer(tiny_packs(), settings, "cpu", 3, canvas=canvas).batch(0, 8)
        shown = (batch.presence > 0.5).nonzero().tolist()
        assert len(shown) > 10
        for clip, time in shown:
            rows, columns = (batch.masks[clip, time] > 0.3).nonzero().unbind(1)
            cells = torch.stack((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)) * STRIDE
            assert (cells - batch.boxes[clip, time]).abs().max() <= 2 * STRIDE
            inside = batch.masks[clip, time].repeat_interleave(STRIDE, 0).repeat_interleave(STRIDE, 1) == 1
            if inside.sum() > 64:  # plain sprites of a vivid colour on grey photos
                assert batch.frames[clip, time][:, inside].std(0).mean() > 0.2


def test_a_canvas_has_black_borders_only_for_the_rounding() -> None:
    for aspect in (16 / 9, 4 / 3, 1.0, 3 / 4):
        settings, (width, height) = shaped(calm_config(borders=False, fisheye_share=0.0), aspect)
        batch = ClipComposer(tiny_packs(), settings, "cpu", 3, canvas=(width, height)).batch(0, 2)
        lit = batch.frames.amax((0, 1, 2)) > 0
        content = canvas_for(round(aspect * 144), 144, 224)[1]
        assert (int(lit.any(0).sum()), int(lit.any(1).sum())) == content
        assert int(lit.any(1).int().argmax()) == (height - content[1]) // 2


def test_rectangles_are_bent_as_often_as_with_borders() -> None:
    config = small_config(borders=False, fisheye_share=0.4, circle_share=0.2)
    shares = [
        (s.fisheye_share, s.circle_share) for s, _ in (shaped(config, aspect) for aspect in (16 / 9, 1.0))
    ]
    assert shares == [(pytest.approx(0.2), 0.0), (0.4, 0.2)]


def test_the_shape_of_a_step_depends_on_seed_and_step_alone() -> None:
    composer = composer_of()
    numbers = [composer.number(step) for step in range(2000)]
    assert numbers[:50] == [composer_of().number(step) for step in range(50)]
    for number, (_, share) in enumerate(ASPECTS):
        assert numbers.count(number) / 2000 == pytest.approx(share, abs=0.04)
    first, later = numbers.index(0), numbers.index(3)
    batch = composer.batch(later, 2)
    composer.batch(first, 2)
    assert_equal(composer.batch(later, 2), batch)
    assert_equal(composer_of().batch(later, 2), batch)
    assert composer.batch(first, 2).frames.shape[-2:] != batch.frames.shape[-2:]


def test_all_shapes_show_the_same_objects_kept_once() -> None:
    composer = composer_of(solids=2)
    assert len({id(each._instances) for each in composer.composers}) == 1
    assert composer.composers[1]._instances.num_sprites == 6


def test_with_borders_a_batch_is_that_of_the_only_composer() -> None:
    config = small_config()
    one = ShapedComposer(tiny_packs(), config, "cpu", 3)
    other = ClipComposer(tiny_packs(), config, "cpu", 3)
    for step in (0, 5):
        assert_equal(one.batch(step, 3), other.batch(step, 3))


@pytest.mark.parametrize("propagation", [False, True])
def test_training_on_several_shapes_is_finite_and_resumes_exactly(tmp_path: Path, propagation: bool) -> None:
    words = ["input_size=128", "query_sizes=[64,32]", f"ram.propagation={str(propagation).lower()}"]
    network = override(preset("tiny"), words)
    composer = composer_of(aspects=((16 / 9, 0.5), (3 / 4, 0.5)))
    config = OptimConfig(
        steps=4, batch=3, precision="no", negatives=1, log_every=1, checkpoint_every=2, warmup=2, seed=3
    )
    assert {composer.number(step) for step in range(4)} == {0, 1}

    def build() -> EgoHieraLocNet:
        torch.manual_seed(0)
        return EgoHieraLocNet(network)

    def source(step: int) -> ClipBatch:
        return composer.batch(step, 3)

    def dying(step: int) -> ClipBatch:
        if step == 3:
            raise KeyboardInterrupt
        return source(step)

    whole = train(build(), source, config, Run(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(build(), dying, config, Run(tmp_path / "killed"))
    resumed = train(build(), source, config, Run(tmp_path / "killed", resume=True))
    for (name, one), other in zip(
        whole.network.state_dict().items(), resumed.network.state_dict().values(), strict=True
    ):
        assert torch.isfinite(one).all(), name
        assert torch.equal(one, other), name
