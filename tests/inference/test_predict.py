"""The border: images and NumPy outside, tensors inside, with a tiny network."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from torch import Tensor

from egohieraloc.config import preset
from egohieraloc.errors import ConfigError
from egohieraloc.inference.packing import PackedFeatures, unpack_match
from egohieraloc.inference.predict import Decoded, Predictor, choose_device
from egohieraloc.inference.store import FeatureStore
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.query_mask import steadiness
from egohieraloc.models.ram import EVEN_CELL_LOGIT
from egohieraloc.models.weights import Calibration, Weights
from egohieraloc.query import Query
from egohieraloc.settings import override
from egohieraloc.types import Box, Mask

GENERATOR = np.random.default_rng(0)
IMAGE = GENERATOR.integers(0, 255, (120, 160, 3), np.uint8)
QUERY = Query(IMAGE, Box(40, 30, 100, 90))


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval().requires_grad_(False)
    return Predictor(Weights(network, Calibration(), "test"), device="cpu")


@pytest.fixture(scope="module")
def packed(predictor: Predictor) -> PackedFeatures:
    canvases = [GENERATOR.integers(0, 255, (224, 224, 3), np.uint8) for _ in range(3)]
    return predictor.encode(canvases)


def test_a_canvas_may_be_square() -> None:
    """As the paper pads; features of both kinds are kept apart."""
    tight = Weights(EgoHieraLocNet(preset("tiny")).eval(), Calibration(), "test")
    square = tight.with_settings(replace(tight.network.config, square_canvas=True))
    one, other = (Predictor(weights, device="cpu") for weights in (tight, square))
    assert (one.letterbox(160, 90).canvas_size, other.letterbox(160, 90).canvas_size) == (
        (256, 160),
        (224, 224),
    )
    assert one.features_fingerprint != other.features_fingerprint


def test_score_is_how_sure_the_best_cell_is(predictor: Predictor, packed: PackedFeatures) -> None:
    query = predictor.prepare(QUERY)
    answers, _ = predictor.decode(query, packed[:2], predictor.start(query))
    output, _ = predictor.match(query, packed[:2], predictor.start(query))
    best = output.ram.cell_logits.float().numpy().max((1, 2))
    for answer, highest in zip(answers, best, strict=True):
        assert answer.score == pytest.approx(expit(2 * (highest - EVEN_CELL_LOGIT)), rel=1e-4)


def test_batches_come_in_few_sizes_and_carry_the_state_on(
    predictor: Predictor, packed: PackedFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, long = predictor.prepare(QUERY), packed[np.arange(23) % 3]
    match, sizes = predictor.match, []
    monkeypatch.setattr(
        predictor, "match", lambda q, p, s, **how: (sizes.append(len(p)), match(q, p, s, **how))[1]
    )
    together, last = predictor.decode(query, long, predictor.start(query))
    assert sizes == [16, 4, 2, 1]
    state, alone = predictor.start(query), []
    for first, size in zip((0, 16, 20, 22), (16, 4, 2, 1), strict=True):
        answers, state = predictor.decode(query, long[first : first + size], state)
        alone += answers
    assert [a.score for a in together] == [a.score for a in alone]
    assert torch.equal(last.position, state.position)


def test_masks_drawn_later_are_those_drawn_at_once(predictor: Predictor, packed: PackedFeatures) -> None:
    query = predictor.prepare(QUERY)
    at_once, last = predictor.decode(query, packed, predictor.start(query))
    rough, state = predictor.decode(query, packed, predictor.start(query), outlined=False)
    assert torch.equal(last.position, state.position)
    for one, other, later in zip(at_once, rough, predictor.outlined(packed, rough), strict=True):
        assert one.score == other.score == later.score
        assert (one.cells is None, other.cells is None, later.cells is None) == (True, False, True)
        assert other.mask.shape == one.mask.shape
        errors = [np.abs(each.mask.astype(float) - one.mask).mean() for each in (later, other)]
        assert errors[0] < 0.1  # of 255: rounding of bfloat16
        assert errors[1] > 0.5


@pytest.mark.parametrize("word", ["ram.score=mask", "ram.propagation=true"])
def test_what_needs_masks_has_them(predictor: Predictor, packed: PackedFeatures, word: str) -> None:
    """A score that is made of them, and a decoder that goes frame by frame."""
    network = EgoHieraLocNet(override(predictor.config, [word]))
    by_mask = Predictor(Weights(network.eval(), Calibration(), "test"), device="cpu")
    query = by_mask.prepare(QUERY)
    answers, _ = by_mask.decode(query, packed, by_mask.start(query), outlined=False)
    assert all(answer.cells is None for answer in answers)


@pytest.mark.parametrize("outlined", [True, False])
def test_boxes_of_a_wide_canvas_are_in_its_pixels(predictor: Predictor, outlined: bool) -> None:
    """As the best cell predicts them, in shares of width and height."""
    packed = predictor.encode([GENERATOR.integers(0, 255, (128, 224, 3), np.uint8)])
    query = predictor.prepare(QUERY)
    (answer,), _ = predictor.decode(query, packed, predictor.start(query), outlined=outlined)
    ram = predictor.match(query, packed, predictor.start(query))[0].ram
    assert answer.mask.shape == (128 // 4, 224 // 4)
    if not outlined:
        row, column = divmod(int(ram.cell_logits.argmax()), 224 // 16)
        x1, y1, x2, y2 = ram.boxes[0, :, row, column].float().tolist()
        assert answer.box.xyxy == pytest.approx((224 * x1, 128 * y1, 224 * x2, 128 * y2), abs=0.5)


@pytest.mark.parametrize("count", [5, 18])
def test_the_state_after_samples_is_known_without_decoding_them(
    predictor: Predictor, packed: PackedFeatures, count: int
) -> None:
    query, seen = predictor.prepare(QUERY), packed[np.arange(count) % 3]
    state = predictor.follow(query, seen.match, seen.match_scale, predictor.start(query))
    _, decoded = predictor.decode(query, seen, predictor.start(query))
    for field in fields(decoded):
        assert torch.equal(getattr(state, field.name), getattr(decoded, field.name))


def test_runs_side_by_side_answer_as_each_alone(predictor: Predictor, packed: PackedFeatures) -> None:
    query = predictor.prepare(QUERY)
    runs = [np.arange(5) % 3, np.arange(1, 6) % 3]
    together, last = predictor.decode(query, packed[np.concatenate(runs)], predictor.start(query, runs=2))
    for number, run in enumerate(runs):
        alone, state = predictor.decode(query, packed[run], predictor.start(query))
        beside = together[5 * number : 5 * number + 5]
        assert [a.score for a in beside] == pytest.approx([a.score for a in alone], abs=1e-3)
        assert torch.allclose(last.rows([number]).position, state.position)


def test_stored_features_answer_like_fresh_ones(
    predictor: Predictor, packed: PackedFeatures, tmp_path: Path
) -> None:
    store = FeatureStore.of(tmp_path, "key")
    store.write(0, packed)
    stored = store.read(0)
    assert stored is not None
    query = predictor.prepare(QUERY)
    fresh, _ = predictor.decode(query, packed, predictor.start(query))
    again, _ = predictor.decode(query, stored, predictor.start(query))
    for one, other in zip(fresh, again, strict=True):
        assert one.score == other.score
        assert one.box == other.box
        np.testing.assert_array_equal(one.mask, other.mask)


def test_a_mask_of_the_user_is_trusted(predictor: Predictor) -> None:
    mask = np.zeros(IMAGE.shape[:2], bool)
    mask[40:80, 50:90] = True
    found = predictor.prepare(replace(QUERY, mask=mask)).mask
    assert (found.quality, found.level) == (1.0, 0)
    assert (found.mask >= 128).mean() == pytest.approx(40 * 40 / 96**2, rel=0.1)


@pytest.mark.parametrize(("quality", "level"), [(0.9, 0), (0.5, 1), (0.2, 2)])
def test_a_providers_quality_decides_the_level(predictor: Predictor, quality: float, level: int) -> None:
    def provider(query: Query) -> tuple[Mask, float]:
        mask = np.zeros(query.image.shape[:2], bool)
        mask[40:80, 50:90] = True
        return mask, quality

    asked = Predictor(Weights(predictor.network, Calibration(), "test"), device="cpu", provider=provider)
    prepared = asked.prepare(QUERY)
    assert (prepared.mask.quality, prepared.mask.level) == (quality, level)
    assert prepared.template.gain.tolist() == [1.5 if level == 2 else 1.0]


@pytest.mark.parametrize("line", [(1.0, 0.0, 0.0), (0.5, 0.0, -0.4), (2.0, 1.0, 1.5)])
def test_the_segmenters_quality_is_calibrated_and_decides_the_level(
    predictor: Predictor, line: tuple[float, float, float]
) -> None:
    """A provider's quality is not: SAM's is taken as it is."""
    slope, steady, offset = line
    words = [
        f"query_mask.{key}={value}"
        for key, value in zip(("slope", "steadiness", "offset"), line, strict=True)
    ]
    torch.manual_seed(0)  # the weights of `predictor`
    network = EgoHieraLocNet(override(preset("tiny"), words)).eval().requires_grad_(False)
    weights = Weights(network, Calibration(), "test")
    found = Predictor(weights, device="cpu").prepare(QUERY)
    raw = predictor.prepare(QUERY).mask
    wanted = slope * logit(raw.quality) + steady * steadiness(raw.mask / np.float32(255)) + offset
    assert found.mask.quality == pytest.approx(expit(wanted), abs=1e-5)
    level = int(found.mask.quality < 0.6) + int(found.mask.quality < 0.4)
    assert found.mask.level == level
    assert found.template.gain.tolist() == [1.5 if level == 2 else 1.0]
    given = Predictor(weights, device="cpu", provider=lambda q: (np.ones(q.image.shape[:2], bool), 0.9))
    assert given.prepare(QUERY).mask.quality == 0.9


def test_an_empty_mask_of_a_provider_leaves_it_to_the_built_in_head(predictor: Predictor) -> None:
    asked = Predictor(
        Weights(predictor.network, Calibration(), "test"),
        device="cpu",
        provider=lambda query: (np.zeros(query.image.shape[:2], bool), 0.99),
    )
    own, found = predictor.prepare(QUERY).mask, asked.prepare(QUERY).mask
    assert found.quality == own.quality
    np.testing.assert_array_equal(found.mask, own.mask)


def test_coarse_scores_one_by_one_equal_those_together(predictor: Predictor, packed: PackedFeatures) -> None:
    query = predictor.prepare(QUERY)
    together = predictor.coarse(query, packed.match, packed.match_scale)
    alone = [
        predictor.coarse(query, packed.match[i : i + 1], packed.match_scale[i : i + 1])[0] for i in range(3)
    ]
    np.testing.assert_allclose(together, alone, atol=0.05)


def test_padded_pixels_have_no_say(predictor: Predictor) -> None:
    """A box of 50 pixels, 3 from the corner: the window of 80 begins 12 outside, more than a cell."""
    mask = np.zeros(IMAGE.shape[:2], bool)
    mask[3:53, 3:53] = True
    template = predictor.prepare(Query(IMAGE, Box(3, 3, 53, 53), mask=mask)).template
    counted = ((template.foreground + template.background)[0, :64] > 0).view(8, 8)
    assert not counted[0].any()
    assert not counted[:, 0].any()
    assert counted[1:, 1:].all()


def with_output(mask: Tensor, *, best: tuple[int, int]) -> Predictor:
    """A network with these mask logits (56, 56) and one best cell; each cell's box is two by two cells."""
    torch.manual_seed(0)
    network = EgoHieraLocNet(preset("tiny")).eval().requires_grad_(False)
    network.ram.box.weight.zero_()
    network.ram.box.bias.zero_()
    cells = torch.zeros(1, 1, 14, 14)
    cells[0, 0, best[0], best[1]] = 5
    network.ram.cell.register_forward_hook(lambda _module, _inputs, output: cells.expand_as(output))
    network.ram.decoder.register_forward_hook(lambda _module, _inputs, output: mask.expand_as(output))
    return Predictor(Weights(network, Calibration(), "test"), device="cpu")


def decoded(predictor: Predictor, packed: PackedFeatures) -> Decoded:
    query = predictor.prepare(QUERY)
    return predictor.decode(query, packed[:1], predictor.start(query))[0][0]


def test_the_box_is_that_of_the_mask_in_canvas_pixels(packed: PackedFeatures) -> None:
    """Cells of four pixels, 20 to 35 down and 24 to 31 across."""
    mask = torch.full((56, 56), -9.0)
    mask[20:36, 24:32] = 9
    answer = decoded(with_output(mask, best=(3, 9)), packed)
    assert answer.box == Box(96, 80, 128, 144)
    assert ((answer.mask > 127) == (mask.numpy() > 0)).all()


def test_without_a_mask_the_box_is_that_of_the_best_cell(packed: PackedFeatures) -> None:
    """Cell 3 down, 9 across on a canvas of 224 pixels: its centre and one cell to every side."""
    answer = decoded(with_output(torch.full((56, 56), -99.0), best=(3, 9)), packed)
    assert answer.mask.max() == 0
    assert answer.box.xyxy == pytest.approx((8.5 * 16, 2.5 * 16, 10.5 * 16, 4.5 * 16), abs=0.1)


def test_faint_pixels_of_a_sample_are_no_foreground_of_its_template(
    predictor: Predictor, packed: PackedFeatures
) -> None:
    """A mask of bytes: 255 is certain, 100 is less than even."""
    mask = np.full((56, 56), 100, np.uint8)
    mask[18:38, 18:28] = 255
    shown = replace(decoded(predictor, packed), box=Box(72, 72, 152, 152), mask=mask)
    faint = predictor.template_from_sample(packed[:1], shown).template
    shown = replace(shown, mask=np.where(mask == 255, mask, 0))
    sharp = predictor.template_from_sample(packed[:1], shown).template
    assert torch.equal(faint.foreground, sharp.foreground)
    assert torch.equal(faint.background, sharp.background)
    assert 0 < sharp.foreground[0, :64].sum() < 25


@pytest.mark.parametrize("left", [1, 9])
def test_a_template_is_cut_out_where_the_box_is_on_a_wide_canvas(predictor: Predictor, left: int) -> None:
    """Its foreground is on average what the box's own cells show, wherever on 8 by 16 cells they are."""
    packed = predictor.encode([GENERATOR.integers(0, 255, (128, 256, 3), np.uint8)])
    box, mask = Box(16 * left, 32, 16 * (left + 6), 96), np.full((32, 64), 255, np.uint8)
    shown = replace(decoded(predictor, packed), box=box, mask=mask)
    template = predictor.template_from_sample(packed, shown).template
    cells = unpack_match(packed.match, packed.match_scale, torch.device("cpu"))[0, :, 2:6]
    token = template.tokens[0, template.foreground[0] > 0].mean(0)
    assert torch.cosine_similarity(token, cells[..., left : left + 6].mean((1, 2)), dim=0) > 0.95


def test_what_comes_out_is_numpy(packed: PackedFeatures) -> None:
    assert all(isinstance(getattr(packed, f.name), np.ndarray) for f in fields(packed))


def test_kernels_start_on_the_device_that_was_asked_for(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton starts them on the current one."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(current.append(device)))
    monkeypatch.setattr(torch, "autocast", lambda *_: nullcontext())
    monkeypatch.setattr(predictor, "device", torch.device("cuda:1"))
    with predictor._running():
        assert current == [torch.device("cuda:1")]


def test_device_by_name() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in {"cpu", "cuda", "mps"}
    with pytest.raises(ConfigError, match="Device 'quantum' cannot be used here"):
        choose_device("quantum")
