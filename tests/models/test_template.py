"""Where query, filter and coarse score are joined: the window, the scales, the weights of tokens."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import preset
from egohieraloc.models import dcf
from egohieraloc.models.dpm import similarity_maps
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet, QueryFeatures, QueryTemplate
from egohieraloc.settings import override

TINY = preset("tiny")
HALF_BOX = torch.tensor([[0.25, 0.25, 0.75, 0.75]])  # half as wide and as high as the window


def build(*words: str) -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(override(TINY, words)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    return build()


def window(sides: tuple[int, ...] = (8, 4), *, seed: int = 0) -> QueryFeatures:
    """An encoded query whose descriptors are random at each scale."""
    chance, empty = torch.Generator().manual_seed(seed), torch.zeros(1, 0)
    scales = tuple(
        FrameFeatures(
            F.normalize(torch.randn(1, TINY.neck.match, side, side, generator=chance), dim=1), *[empty] * 3
        )
        for side in sides
    )
    return QueryFeatures(scales, HALF_BOX, torch.ones(1, 1, sides[0], sides[0]), empty, empty)


def template(network: EgoHieraLocNet, query: QueryFeatures, *, level: int = 0) -> QueryTemplate:
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., 2:6, 2:4] = 1
    return network.template(query, mask, torch.tensor([0.45]), torch.tensor([level]))


def test_a_descriptor_counts_less_for_the_filter_the_nearer_it_is_to_the_border(
    network: EgoHieraLocNet,
) -> None:
    """Without a window no cell would be nearer to the border than another: the filter's patch is cyclic."""
    query = window()
    usual = template(network, query).filters[0]

    def influence(row: int, column: int) -> float:
        match = query.scales[0].match.clone()
        match[..., row, column] = -match[..., row, column]
        scales = (dataclasses.replace(query.scales[0], match=match), query.scales[1])
        changed = template(network, dataclasses.replace(query, scales=scales)).filters[0]
        return float((changed - usual).norm() / usual.norm())

    corner, edge, centre = influence(0, 0), influence(0, 4), influence(4, 4)
    assert corner < 0.1 * centre
    assert edge < 0.4 * centre


@pytest.mark.parametrize(
    ("sizes", "semi_axis"),
    [((128,), 2.0), ((128, 64), 1.0), ((160, 128, 64), 2.0), ((160, 128, 96, 64), 1.5)],
)
def test_the_ellipse_begins_with_half_the_box_at_the_middle_scale(
    sizes: tuple[int, ...], semi_axis: float
) -> None:
    """A box of half the window is two cells wide at 64 pixels; of two middle scales the smaller counts."""
    network = build(f"query_sizes={list(sizes)}")
    state = network.initial_state(template(network, window(tuple(size // 16 for size in sizes))))
    assert state.semi_axes.tolist() == [[semi_axis, semi_axis]]
    assert not state.following.any()


def test_the_coarse_score_is_the_mean_of_the_four_most_similar_cells(network: EgoHieraLocNet) -> None:
    maps = torch.zeros(3, 5, 7)
    maps[0, 2, 3] = 0.8  # a single cell
    maps[1, :2, :2] = 0.2  # four a quarter as similar
    maps[2, 4, :5] = torch.tensor([0.6, 0.5, 0.4, 0.3, 0.2])
    slope, offset = network.coarse.tolist()
    wanted = [0.2 * slope + offset, 0.2 * slope + offset, 0.45 * slope + offset]
    torch.testing.assert_close(network.coarse_from_map(maps), torch.tensor(wanted))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_coarse_score_is_that_of_the_foreground_map(network: EgoHieraLocNet, level: int) -> None:
    """A first look and a close one see the same map O; at level 1 some tokens count only in part."""
    sought = template(network, window(), level=level)
    assert level != 1 or ((sought.foreground > 0) & (sought.foreground < 1)).any()
    cells = F.normalize(
        torch.randn(3, TINY.neck.match, 5, 7, generator=torch.Generator().manual_seed(1)), dim=1
    )
    foreground, _ = similarity_maps(cells, sought.tokens, sought.foreground, sought.background, TINY.dpm)
    torch.testing.assert_close(network.coarse_logits(cells, sought), network.coarse_from_map(foreground))


def test_a_token_of_half_weight_is_half_as_similar(network: EgoHieraLocNet) -> None:
    """Cells that equal the only token: similarity 1, times its weight."""
    token = F.normalize(torch.ones(TINY.neck.match), dim=0)
    cells = token[None, :, None, None].expand(1, -1, 3, 3)
    slope, offset = network.coarse.tolist()
    for weight in (1.0, 0.5):
        sought = dataclasses.replace(
            template(network, window()), tokens=token[None, None], foreground=torch.full((1, 1), weight)
        )
        found = float(network.coarse_logits(cells, sought))
        assert found == pytest.approx(weight * slope + offset, abs=1e-4)


def frame_features(side: int) -> FrameFeatures:
    chance, empty = torch.Generator().manual_seed(2), torch.zeros(1, 0)
    match = F.normalize(torch.randn(1, TINY.neck.match, side, side, generator=chance), dim=1)
    return FrameFeatures(match, empty, empty, empty)


def grids(tokens: Tensor) -> Tensor:
    """Values of the larger scale's tokens (8, 8)."""
    return tokens[0, :64].view(8, 8)


def test_what_lies_beyond_the_frame_is_in_neither_set(network: EgoHieraLocNet) -> None:
    """A box of 5 cells in the corner of a frame of 14: the window of 8 begins 1.5 cells outside."""
    sought = network.template_from_frame(
        frame_features(14), torch.tensor([[0.0, 0.0, 5 / 14, 5 / 14]]), torch.ones(1, 1, 56, 56)
    )
    counted = (grids(sought.foreground) + grids(sought.background)) > 0
    assert not counted[0].any()
    assert not counted[:, 0].any()
    assert counted[2:, 2:].all()


def test_several_views_are_as_similar_as_the_best_of_them() -> None:
    """With the single best token: O and the filter's response are the higher ones of both views."""
    network = build("dpm.top_k=1")
    views = [template(network, window(seed=seed)) for seed in (0, 1)]
    both = QueryTemplate.joined(views)
    cells = F.normalize(
        torch.randn(2, TINY.neck.match, 6, 6, generator=torch.Generator().manual_seed(3)), dim=1
    )

    def seen(sought: QueryTemplate) -> tuple[Tensor, Tensor]:
        wide = sought.repeated(2)
        maps = similarity_maps(cells, wide.tokens, wide.foreground, wide.background, network.config.dpm)
        return maps[0], dcf.respond(cells, wide.filters).amax(1)

    (first, first_response), (second, second_response), (joined, response) = map(seen, (*views, both))
    assert (first > second).any()
    assert (second > first).any()
    torch.testing.assert_close(joined, torch.maximum(first, second))
    torch.testing.assert_close(response, torch.maximum(first_response, second_response), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sides", [(8, 4), (10, 8, 4)])
def test_the_ellipse_of_several_views_begins_at_the_middle_scale_too(sides: tuple[int, ...]) -> None:
    network = build(f"query_sizes={[16 * side for side in sides]}")
    view = template(network, window(sides))
    for count in (1, 2, 3):
        joined = QueryTemplate.joined([view] * count)
        assert torch.equal(network.initial_state(joined).semi_axes, network.initial_state(view).semi_axes)
        assert [f.shape[-1] for f in joined.filters] == [side for side in sides for _ in range(count)]


def test_one_trusted_view_is_enough(network: EgoHieraLocNet) -> None:
    """The gain of fallback level 2 is for objects whose outline is unknown in every view."""
    trusted, doubtful = template(network, window()), template(network, window(), level=2)
    assert float(QueryTemplate.joined([doubtful, doubtful]).gain) == float(doubtful.gain) > 1
    assert float(QueryTemplate.joined([doubtful, trusted]).gain) == 1


def test_views_may_be_joined_one_after_the_other(network: EgoHieraLocNet) -> None:
    """What a sample shows is joined with a query of several views."""
    views = [template(network, window(seed=seed)) for seed in range(3)]
    at_once = QueryTemplate.joined(views)
    later = QueryTemplate.joined([QueryTemplate.joined(views[:2]), views[2]])
    for field in dataclasses.fields(QueryTemplate):
        torch.testing.assert_close(getattr(later, field.name), getattr(at_once, field.name))


@pytest.mark.parametrize("box", [(8.0, 20.0, 100.0, 90.0), (60.0, 0.0, 90.0, 60.0)])
def test_what_a_box_shows_is_the_same_on_a_canvas_with_more_black_beside_it(
    network: EgoHieraLocNet, box: tuple[float, ...]
) -> None:
    """Boxes and masks are shares of a canvas, whatever its shape; beyond it there is nothing."""
    chance = torch.Generator().manual_seed(1)
    height, width = 9, 14  # cells, on a canvas of 224 x 144
    cells = F.normalize(torch.randn(1, TINY.neck.match, height, width, generator=chance), dim=1)
    mask = (torch.rand(1, 1, 4 * height, 4 * width, generator=chance) > 0.5).float()
    empty = torch.zeros(1, 0)

    def cut(rows: int) -> QueryTemplate:
        more = (0, 0, 0, rows)
        shares = torch.tensor([box]) / torch.tensor([width, height + rows, width, height + rows]) / 16
        frame = FrameFeatures(F.pad(cells, more), empty, empty, empty)
        return network.template_from_frame(frame, shares, F.pad(mask, tuple(4 * m for m in more)))

    wide, square = cut(0), cut(width - height)
    torch.testing.assert_close(wide.tokens, square.tokens)
    torch.testing.assert_close(wide.foreground, square.foreground)
    torch.testing.assert_close(wide.filters, square.filters)
    torch.testing.assert_close(wide.semi_axes, square.semi_axes)
