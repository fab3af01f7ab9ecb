"""What was found in a frame is shown to the decoder in the next one, moved by the drift."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from clips import clip_batch
from egohieraloc.config import NetworkConfig, preset
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, QueryTemplate
from egohieraloc.models.propagation import corrected, moved
from egohieraloc.models.qam import initial_state
from egohieraloc.models.ram import RamOutput

PLAIN = preset("tiny")
PROPAGATING = replace(PLAIN, ram=replace(PLAIN.ram, propagation=True))


def build(config: NetworkConfig, previous: float = 0.0) -> EgoHieraLocNet:
    torch.manual_seed(0)
    plain = EgoHieraLocNet(PLAIN)
    network = EgoHieraLocNet(config).eval()
    network.load_state_dict(plain.state_dict(), strict=False)
    if config.ram.propagation:
        torch.nn.init.constant_(network.ram.previous.weight, previous)
    return network


def seen_by(network: EgoHieraLocNet) -> tuple[QueryTemplate, FrameFeatures]:
    batch = clip_batch(PLAIN, clips=2, times=3)
    query = network.encode_query(batch.query, batch.query_box / batch.query.shape[-1], batch.query_mask)
    template = network.template(query, batch.query_mask, torch.ones(2), torch.zeros(2, dtype=torch.long))
    return template, network.encode_frames(batch.frames.flatten(0, 1))


@torch.no_grad()
def decoded(network: EgoHieraLocNet, **options: object) -> RamOutput:
    template, features = seen_by(network)
    return network.match(template, features, network.initial_state(template), **options)[0].ram


def test_what_was_found_moves_with_the_drift() -> None:
    cells = torch.zeros(1, 8, 10)
    cells[0, 2, 3] = 1
    drift = torch.tensor([[2.0, 1.0]])
    state = replace(initial_state(torch.ones(1, 2)), cells=cells, drift=drift)
    shown = moved(state, torch.zeros(1, 8, 10))
    assert shown[0, 3, 5] == pytest.approx(1, abs=1e-5)
    assert float(shown.sum()) == pytest.approx(1, abs=1e-4)
    assert not moved(initial_state(torch.ones(1, 2)), torch.zeros(1, 8, 10)).any()


def test_the_decoder_says_whether_and_where_the_object_is_followed() -> None:
    before = replace(
        initial_state(torch.ones(2, 2)),
        position=torch.tensor([[4.0, 4.0], [4.0, 4.0]]),
        following=torch.tensor([True, True]),
    )
    logits = torch.full((2, 8, 8), -5.0)
    logits[0, 5, 6] = 4.0
    after = corrected(before, replace(before, position=torch.zeros(2, 2)), logits, decay=0.4)
    assert after.following.tolist() == [True, False]
    assert after.position[0].tolist() == [6, 5]
    assert after.drift.tolist() == [pytest.approx([1.2, 0.6]), [0, 0]]
    assert after.cells[0, 5, 6] > 0.95
    assert not after.cells[1].any()


def test_it_begins_with_no_effect_on_the_first_frame_nor_with_weights_of_zero() -> None:
    without, zero, some = (
        decoded(network) for network in (build(PLAIN), build(PROPAGATING), build(PROPAGATING, 0.3))
    )
    first = slice(None, None, 3)
    assert torch.allclose(without.cell_logits[first], zero.cell_logits[first], atol=1e-5)
    assert torch.allclose(some.cell_logits[first], zero.cell_logits[first], atol=1e-5)


def test_frames_that_lie_apart_are_decoded_as_if_alone() -> None:
    """From `apart_from` on each frame begins anew, so their order and neighbours do not matter."""
    network = build(PROPAGATING, 0.3)
    template, features = seen_by(network)
    with torch.no_grad():
        apart = network.match(template, features, network.initial_state(template), apart_from=0)[0]
        alone = network.match(template.repeated(3), features, network.initial_state(template.repeated(3)))[0]
        beside = network.match(template, features, network.initial_state(template), apart_from=1)[0]
    for field in fields(RamOutput):
        assert torch.allclose(getattr(apart.ram, field.name), getattr(alone.ram, field.name), atol=1e-5)
    assert torch.allclose(apart.ram.cell_logits, beside.ram.cell_logits, atol=1e-5)


def test_frames_at_once_equal_frame_by_frame() -> None:
    network = build(PROPAGATING, 0.3)
    template, features = seen_by(network)
    with torch.no_grad():
        whole = network.match(template, features, network.initial_state(template))[0]
        state = network.initial_state(template)
        for time in range(3):
            part, state = network.match(template, features[torch.tensor([time, time + 3])], state)
            rows = slice(time, None, 3)
            assert torch.allclose(part.ram.cell_logits, whole.ram.cell_logits[rows], atol=1e-5)
            assert torch.allclose(part.ram.mask_logits, whole.ram.mask_logits[rows], atol=1e-5)
