"""The network as a whole: three verbs, presets, and switches that do what they say."""

from __future__ import annotations

import dataclasses
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from clips import clip_batch
from egohieraloc.config import PRESETS, NetworkConfig, preset
from egohieraloc.errors import ConfigError
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, MatchOutput, QueryTemplate
from egohieraloc.settings import override
from egohieraloc.training.losses import LossWeights, weighted_sum
from egohieraloc.training.objective import clip_terms

TINY = preset("tiny")


def build(*words: str) -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(override(TINY, words)).eval()


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    return build()


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor, Tensor]:
    """Two query windows, their boxes and two runs of three frames."""
    batch = clip_batch(TINY, clips=2, times=3)
    return batch.query, batch.query_box / batch.query.shape[-1], batch.frames.flatten(0, 1)


def template_of(network: EgoHieraLocNet, query: Tensor, box: Tensor) -> QueryTemplate:
    seen = network.encode_query(query, box, torch.ones_like(query[:, :1]))
    count = len(query)
    return network.template(
        seen, (seen.mask_logits[:, None] > 0).float(), torch.full((count,), 0.5), torch.arange(count) % 3
    )


def assert_same(one: object, other: object) -> None:
    """All tensors of two values agree up to rounding."""
    if isinstance(one, Tensor):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):  # type: ignore[call-overload]
            assert_same(a, b)
    else:
        for f in fields(one):  # type: ignore[arg-type]
            assert_same(getattr(one, f.name), getattr(other, f.name))


def part(value: object, index: slice) -> object:
    """The same value with every tensor cut along its first dimension."""
    if isinstance(value, Tensor):
        return value[index]
    if isinstance(value, tuple):
        return tuple(part(v, index) for v in value)
    return dataclasses.replace(  # type: ignore[type-var]
        value,
        **{f.name: part(getattr(value, f.name), index) for f in fields(value)},  # type: ignore[arg-type]
    )


@torch.no_grad()
def test_shapes_of_the_three_verbs(network: EgoHieraLocNet, images: tuple[Tensor, ...]) -> None:
    query, box, frames = images
    features = network.encode_frames(frames)
    assert [m.shape[1:] for m in (features.match, features.context, features.fine8, features.fine4)] == [
        (48, 14, 14),
        (32, 7, 7),
        (8, 28, 28),
        (4, 56, 56),
    ]
    torch.testing.assert_close(features.match.norm(dim=1), torch.ones(6, 14, 14))
    template = template_of(network, query, box)
    assert template.tokens.shape == (2, 8 * 8 + 4 * 4, 48)
    output, state = network.match(template, features, network.initial_state(template))
    assert output.ram.mask_logits.shape == (6, 56, 56)
    assert output.ram.score_logit.shape == (6,)
    assert output.ram.boxes.shape == (6, 4, 14, 14)
    x1, y1, x2, y2 = output.ram.boxes.unbind(1)
    assert (x1 < x2).all()
    assert (y1 < y2).all()
    for each in (output.foreground, output.likelihood, output.response, output.qam.location):
        assert each.shape == (6, 14, 14)
    assert state.position.shape == (2, 2)
    assert network.coarse_logits(features.match[:2], template).shape == (2,)


@torch.no_grad()
def test_frames_at_once_equal_frame_by_frame_with_the_state_carried_on(
    images: tuple[Tensor, ...],
) -> None:
    query, box, frames = images
    network = build("qam.lost_below=-9.0")  # an untrained network finds nothing sure
    template, features = template_of(network, query, box), network.encode_frames(frames)
    together, end = network.match(template, features, network.initial_state(template))
    state = network.initial_state(template)
    for time in range(3):
        output, state = network.match(template, features[torch.tensor([time, 3 + time])], state)
        for run in range(2):
            row = 3 * run + time
            assert_same(part(output, slice(run, run + 1)), part(together, slice(row, row + 1)))
    assert_same(state, end)
    assert state.following.all()
    torch.testing.assert_close(end.position, together.qam.position[2::3])
    alone, _ = network.match(template, features[torch.tensor([2, 5])], network.initial_state(template))
    assert not torch.equal(alone.qam.location, together.qam.location[2::3])  # the past matters


@torch.no_grad()
def test_two_queries_at_once_equal_each_alone(network: EgoHieraLocNet, images: tuple[Tensor, ...]) -> None:
    query, box, frames = images
    features = network.encode_frames(frames)
    seen = network.encode_query(query, box, torch.ones_like(query[:, :1]))
    mask, quality, level = (
        (seen.mask_logits[:, None] > 0).float(),
        torch.tensor([0.5, 0.3]),
        torch.tensor([1, 2]),
    )
    template = network.template(seen, mask, quality, level)
    together, _ = network.match(template, features, network.initial_state(template))
    for run in range(2):
        one = slice(run, run + 1)
        alone = network.encode_query(query[one], box[one], torch.ones_like(query[one, :1]))
        single = network.template(alone, mask[one], quality[one], level[one])
        assert_same(single, part(template, one))
        output, _ = network.match(single, features[3 * run : 3 * run + 3], network.initial_state(single))
        assert_same(output, part(together, slice(3 * run, 3 * run + 3)))


@torch.no_grad()
def test_encoding_knows_nothing_of_queries(network: EgoHieraLocNet, images: tuple[Tensor, ...]) -> None:
    """Only images go in, a question in between changes nothing, and no part made for queries is run."""
    query, box, frames = images
    before = network.encode_frames(frames[:1])
    template = template_of(network, query[:1], box[:1])
    network.match(template, before, network.initial_state(template))
    used: list[str] = []
    handles = [
        getattr(network, name).register_forward_hook(lambda *_, name=name: used.append(name))
        for name in ("backbone", "neck", "query_mask", "ram")
    ]
    after = network.encode_frames(frames[:1])
    for handle in handles:
        handle.remove()
    assert used == ["backbone", "neck"]
    for f in fields(FrameFeatures):
        assert torch.equal(getattr(before, f.name), getattr(after, f.name))


@torch.no_grad()
def test_response_is_the_best_of_the_scales(network: EgoHieraLocNet, images: tuple[Tensor, ...]) -> None:
    query, box, frames = images
    template, features = template_of(network, query[:1], box[:1]), network.encode_frames(frames[:1])
    state = network.initial_state(template)
    both = network.match(template, features, state)[0].response
    each = [
        network.match(dataclasses.replace(template, filters=(f,)), features, state)[0].response
        for f in template.filters
    ]
    torch.testing.assert_close(both, torch.maximum(*each), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("tiny", 0.1, 1), ("mini", 4, 8), ("base", 15, 30), ("large", 60, 150)]
)
def test_presets_have_the_size_they_should(name: str, least: float, most: float) -> None:
    with torch.device("meta"):
        network = EgoHieraLocNet(preset(name))
    millions = sum(p.numel() for p in network.parameters()) / 1e6
    assert least < millions < most, millions


def test_presets_are_checked_by_name() -> None:
    assert set(PRESETS) == {"tiny", "mini", "base", "large"}
    with pytest.raises(ConfigError, match=r"No preset is called 'huge'. There are: tiny, mini, base, large"):
        preset("huge")


@pytest.mark.parametrize("words", [(), ("ram.attention_layers=0",), ("backbone.stages=3",)])
def test_every_parameter_gets_a_gradient(words: tuple[str, ...]) -> None:
    network = build(*words).train()
    batch = clip_batch(TINY, clips=3, times=1)
    terms, _ = clip_terms(network, batch, torch.tensor([[0.1, 0.5], [0.3, 0.5], [0.9, 0.5]]))
    weighted_sum(terms, LossWeights()).backward()
    without = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not without


def test_masks_count_by_their_trust() -> None:
    """Mask losses of clips that are not trusted vanish; the others' overlap is that of the trusted alone."""
    network = build().eval()
    batch, chance = clip_batch(TINY, clips=2, times=1), torch.full((2, 2), 0.6)
    with torch.no_grad():
        alone, _ = clip_terms(network, batch.take(slice(1)), chance[:1])
        half, _ = clip_terms(network, dataclasses.replace(batch, trust=torch.tensor([1.0, 0.0])), chance)
        whole, _ = clip_terms(network, batch, chance)
    torch.testing.assert_close(half["dice"], alone["dice"])
    torch.testing.assert_close(half["mask"], alone["mask"] / 2)
    assert abs(half["query_mask"] - whole["query_mask"]) > 0.05


def logits(network: EgoHieraLocNet, template: QueryTemplate, features: FrameFeatures) -> Tensor:
    return network.match(template, features, network.initial_state(template))[0].ram.mask_logits


@pytest.mark.parametrize(
    ("switch", "maps"), [("dpm.foreground", [0]), ("dpm.likelihood", [1]), ("qam.enabled", [2, 3])]
)
@torch.no_grad()
def test_switched_off_maps_reach_the_decoder_as_zeros(
    switch: str, maps: list[int], images: tuple[Tensor, ...]
) -> None:
    query, box, frames = images
    given: list[Tensor] = []
    for words in ((), (f"{switch}=false",)):
        network = build(*words)
        network.ram.register_forward_pre_hook(lambda _, inputs: given.append(inputs[1]))
        template = template_of(network, query[:1], box[:1])
        logits(network, template, network.encode_frames(frames[:1]))
    on, off = given
    others = [m for m in range(4) if m not in maps]
    torch.testing.assert_close(off[:, others], on[:, others])
    assert (off[:, maps] == 0).all()
    assert all(on[:, m].abs().max() > 0 for m in maps)


@torch.no_grad()
def test_without_qam_the_filter_has_no_say(images: tuple[Tensor, ...]) -> None:
    query, box, frames = images
    for words, matters in (((), True), (("qam.enabled=false",), False)):
        network = build(*words)
        template, features = template_of(network, query[:1], box[:1]), network.encode_frames(frames[:1])
        other = dataclasses.replace(template, filters=tuple(-f for f in template.filters))
        same = torch.equal(logits(network, template, features), logits(network, other, features))
        assert same is not matters


@torch.no_grad()
def test_without_feedback_the_other_stages_have_no_say(images: tuple[Tensor, ...]) -> None:
    query, box, frames = images
    for words, matters in (((), True), (("ram.feedback=false",), False)):
        network = build(*words)
        template, features = template_of(network, query[:1], box[:1]), network.encode_frames(frames[:1])
        for name in ("context", "fine8", "fine4"):
            other = dataclasses.replace(features, **{name: 3 * getattr(features, name)})
            same = torch.equal(logits(network, template, features), logits(network, template, other))
            assert same is not matters, name


@torch.no_grad()
def test_queries_without_background_do_not_break_attention(
    network: EgoHieraLocNet, images: tuple[Tensor, ...]
) -> None:
    query, box, frames = images
    seen = network.encode_query(query[:1], box[:1], torch.ones_like(query[:1, :1]))
    template = network.template(seen, torch.zeros(1, 1, 8, 8), torch.zeros(1), torch.tensor([2]))
    output: MatchOutput
    output, _ = network.match(template, network.encode_frames(frames[:1]), network.initial_state(template))
    assert output.ram.mask_logits.isfinite().all()
    assert output.ram.score_logit.isfinite().all()


def test_paper_preset_ends_its_descriptors_with_relu() -> None:
    config: NetworkConfig = override(TINY, ["neck.signed=false"])
    torch.manual_seed(0)
    network = EgoHieraLocNet(config).eval()
    with torch.no_grad():
        assert network.encode_frames(torch.rand(1, 3, 64, 64)).match.min() >= 0
        assert build().encode_frames(torch.rand(1, 3, 64, 64)).match.min() < 0
    assert not PRESETS["large"].neck.signed
    assert PRESETS["large"].ram.attention_layers == 0


@torch.no_grad()
def test_a_template_of_a_frame_is_the_window_of_its_features() -> None:
    """Where the window falls on whole cells, tokens are the frame's cells and the mask the frame's mask."""
    network = build().eval()
    frame = network.encode_frames(torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    mask = torch.zeros(1, 1, 56, 56)
    mask[..., 20:36, 24:32] = 1  # cells 5 to 8 down, 6 and 7 across
    box = torch.tensor([[96, 72, 128, 152]]) / 224  # 80 pixels: a window of 128, cells 3 to 10
    template = network.template_from_frame(frame, box, mask)
    large, small = 8 * 8, 4 * 4
    assert template.tokens.shape[1] == large + small
    cells = frame.match[0, :, 3:11, 3:11].flatten(1).T
    torch.testing.assert_close(template.tokens[0, :large], cells, atol=1e-5, rtol=1e-5)
    inside = template.foreground[0, :large].reshape(8, 8) > 0
    wanted = torch.zeros(8, 8, dtype=torch.bool)
    wanted[2:6, 3:5] = True
    assert torch.equal(inside, wanted)
    torch.testing.assert_close(template.semi_axes[0, 0], torch.tensor([1.0, 2.5]))


def test_masks_of_some_frames_only(network: EgoHieraLocNet, images: tuple[Tensor, Tensor, Tensor]) -> None:
    query, box, frames = images
    with torch.no_grad():
        template = template_of(network, query, box)
        features, state = network.encode_frames(frames), network.initial_state(template)
        everything, _ = network.match(template, features, state)
        chosen = torch.tensor([4, 0])
        some, _ = network.match(template, features, state, outlined=chosen)
    assert_same(some.ram.mask_logits, everything.ram.mask_logits[chosen])
    assert_same(dataclasses.replace(some.ram, mask_logits=everything.ram.mask_logits), everything.ram)
