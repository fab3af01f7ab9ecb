"""Laws of the Query-aware Module: candidates, and the recursion that must not lag behind them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import Tensor

from egohieraloc.config import QamConfig
from egohieraloc.models import qam
from egohieraloc.models.qam import QamOutput, QamState, connected_components, initial_state, step

FIXED, PAPER = QamConfig(), QamConfig(mode="paper")


def blobs(*objects: tuple[float, float, float, float, float], height: int = 24, width: int = 160) -> Tensor:
    """Response (1, H, W) with a Gaussian (x, y, sigma_x, sigma_y, height) for each object."""
    y, x = torch.arange(height)[:, None], torch.arange(width)[None]
    total = torch.zeros(height, width)
    for cx, cy, sx, sy, top in objects:
        total = torch.maximum(
            total, top * torch.exp(-((x - cx) ** 2) / (2 * sx**2) - (y - cy) ** 2 / (2 * sy**2))
        )
    return total[None]


def patches(*objects: tuple[int, int, int, int, float]) -> Tensor:
    """Response (1, 24, 32) with flat rectangles (left, top, width, height, value), each with a peak."""
    response = torch.zeros(1, 24, 32)
    for left, top, width, height, value in objects:
        response[0, top : top + height, left : left + width] = 0.9 * value
        response[0, top, left] = value
    return response


def start(a: float = 3.0, b: float = 3.0, batch: int = 1) -> QamState:
    return initial_state(torch.tensor([[a, b]]).expand(batch, 2).contiguous())


def follow(responses: list[Tensor], config: QamConfig, state: QamState | None = None) -> list[QamOutput]:
    state = state or start()
    outputs = []
    for response in responses:
        state, output = step(state, response, config)
        outputs.append(output)
    return outputs


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 13), st.integers(1, 13), st.floats(0.05, 0.95))
def test_components_are_scipys_eight_connected_ones(seed: int, rows: int, columns: int, share: float) -> None:
    masks = np.random.default_rng(seed).random((2, rows, columns)) < share
    found = connected_components(torch.from_numpy(masks))
    assert torch.equal(found, qam._joined_by_pointers(torch.from_numpy(masks)))
    for mask, labels in zip(masks, found.numpy(), strict=True):
        expected, count = ndimage.label(mask, np.ones((3, 3)))
        assert ((labels > 0) == mask).all()
        pairs = {(int(a), int(b)) for a, b in zip(labels[mask], expected[mask], strict=True)}
        assert len(pairs) == count == len({a for a, _ in pairs})


def test_a_component_longer_than_one_round_of_spreading_is_one() -> None:
    """A snake through 17 x 40 cells: 359 steps from end to end."""
    mask = torch.zeros(1, 17, 40, dtype=torch.bool)
    mask[:, ::2] = True
    for row in range(1, 17, 2):
        mask[0, row, -1 if row % 4 == 1 else 0] = True
    for labels in (connected_components(mask), qam._joined_by_pointers(mask)):
        assert labels[mask].unique().tolist() == [17 * 40]


def test_a_step_is_followed_at_once() -> None:
    responses = [blobs((100, 12, 4, 4, 1))] + 6 * [blobs((120, 12, 4, 4, 1))]
    found = [float(o.position[0, 0]) for o in follow(responses, FIXED)]
    assert found == [100, 120, 120, 120, 120, 120, 120]


def test_the_printed_recursion_stays_behind_a_step_for_ever() -> None:
    """docs/paper.md Q10: stuck at 108 instead of 120."""
    responses = [blobs((100, 12, 4, 4, 1))] + 8 * [blobs((120, 12, 4, 4, 1))]
    outputs = follow(responses, PAPER)
    assert [float(o.position[0, 0]) for o in outputs] == [100] + 8 * [108]
    assert float(outputs[-1].candidate[0, 0]) == 120


def test_constant_velocity_is_followed_without_lag_and_predicted() -> None:
    responses = [blobs((20 + 2 * i, 12, 4, 4, 1)) for i in range(30)]
    state = start()
    for i, response in enumerate(responses):
        state, output = step(state, response, FIXED)
        assert output.position[0].tolist() == [20 + 2 * i, 12]
    torch.testing.assert_close(state.drift, torch.tensor([[2.0, 0.0]]), atol=1e-4, rtol=0)


def test_the_printed_recursion_falls_behind_a_moving_target_by_a_cell_a_frame() -> None:
    """docs/paper.md Q10: 29 cells after 29 frames at 2 cells a frame."""
    outputs = follow([blobs((20 + 2 * i, 12, 4, 4, 1)) for i in range(30)], PAPER)
    lag = [float(o.candidate[0, 0] - o.position[0, 0]) for o in outputs]
    assert lag[-1] == pytest.approx(29, abs=1)
    assert lag[15] == pytest.approx(15, abs=1)


def test_in_the_printed_distance_the_ellipse_changes_nothing() -> None:
    """docs/paper.md Q9: axes above half a cell cannot move the minimum."""
    responses = [blobs((60 + 3 * i, 12, 5, 3, 1)) for i in range(8)]
    with_ellipse = [o.position.tolist() for o in follow(responses, PAPER)]
    without = [o.position.tolist() for o in follow(responses, QamConfig(mode="paper", ellipse=False))]
    assert with_ellipse == without


def test_a_tall_object_keeps_a_tall_ellipse() -> None:
    responses = 12 * [blobs((60, 12, 2, 7, 1))]
    for config, tall in ((FIXED, True), (PAPER, False)):
        state = start(2, 7)
        for response in responses:
            state, _ = step(state, response, config)
        assert bool(state.semi_axes[0, 1] > 2 * state.semi_axes[0, 0]) is tall


def test_axes_converge_to_half_the_component() -> None:
    state = start(1, 1)
    response = patches((4, 3, 9, 5, 1.0))
    for _ in range(40):
        state, _ = step(state, response, FIXED)
    torch.testing.assert_close(state.semi_axes, torch.tensor([[4.5, 2.5]]), atol=1e-3, rtol=0)
    before = start(1, 1)
    after, _ = step(before, response, FIXED)
    torch.testing.assert_close(after.semi_axes, torch.tensor([[0.7 + 0.3 * 4.5, 0.7 + 0.3 * 2.5]]))


def test_candidates_are_ranked_by_response_times_area() -> None:
    """0.8 * 12 cells beats 1.0 * 4 cells; by response alone the small one wins."""
    response = patches((2, 2, 2, 2, 1.0), (20, 10, 4, 3, 0.8))
    for config, expected in (
        (QamConfig(area_power=1), [20, 10]),
        (FIXED, [20, 10]),
        (QamConfig(area_power=0), [2, 2]),
        (QamConfig(multi_peak=False), [2, 2]),
    ):
        assert follow([response], config)[0].candidate[0].tolist() == expected, config


def test_a_square_root_of_the_area_lets_a_diffuse_blob_lose() -> None:
    """docs/paper.md Q8: with the paper's R * A the large weak one wins."""
    response = patches((2, 2, 2, 2, 1.0), (12, 8, 5, 4, 0.3))
    assert follow([response], QamConfig(area_power=1, sensitivity=0.2))[0].candidate[0].tolist() == [12, 8]
    assert follow([response], QamConfig(sensitivity=0.2))[0].candidate[0].tolist() == [2, 2]
    assert float(follow([response], QamConfig(sensitivity=0.2))[0].peak) == 1


def test_the_papers_first_frame_takes_the_highest_response() -> None:
    response = patches((2, 2, 2, 2, 1.0), (20, 10, 4, 3, 0.8))
    config = QamConfig(mode="paper", area_power=1)
    first, second = follow([response, response], config)
    assert first.candidate[0].tolist() == [2, 2]
    assert second.candidate[0].tolist() == [20, 10]


def test_only_the_five_highest_peaks_are_candidates() -> None:
    """Five sharp peaks and a sixth, lower but so large that it would win by area."""
    sharp = [(3 * i, 2, 1, 1, 1.0 - 0.01 * i) for i in range(5)]
    response = patches(*sharp, (10, 8, 8, 8, 0.9))
    power = QamConfig(area_power=1)
    assert follow([response], power)[0].candidate[0].tolist() == [0, 2]
    assert follow([response], QamConfig(area_power=1, candidates=6))[0].candidate[0].tolist() == [10, 8]


def test_sensitivity_raises_the_threshold() -> None:
    """The mean plus alpha standard deviations decides what is a component at all."""
    response = patches((2, 2, 1, 1, 1.0), (20, 10, 3, 3, 0.3))
    for alpha, candidates in ((0.5, [20, 10]), (8.0, [2, 2])):
        config = QamConfig(area_power=1, sensitivity=alpha)
        assert follow([response], config)[0].candidate[0].tolist() == candidates


def test_of_two_equal_candidates_the_predicted_one_is_chosen() -> None:
    """It moves right by 6 a frame; then the same object stands 6 to the right and 6 to the left."""
    before = [blobs((40 + 6 * i, 12, 1.5, 1.5, 1)) for i in range(8)]
    both = blobs((88, 12, 1.5, 1.5, 1), (76, 12, 1.5, 1.5, 1))
    assert follow([*before, both], FIXED)[-1].candidate[0].tolist() == [88, 12]
    without = follow([*before, both], QamConfig(ellipse=False))[-1]
    assert without.candidate[0].tolist() == [76, 12]  # the first of two equals


def test_the_ellipse_reaches_further_along_its_long_axis() -> None:
    """Equal candidates 8 to the right and 8 below: a wide object went right, a tall one down."""
    right, below = (68, 12, 1.5, 1.5, 1.0), (60, 20, 1.5, 1.5, 1.0)
    for axes, expected in (((8.0, 2.0), [68, 12]), ((2.0, 8.0), [60, 20])):
        state = replace(
            initial_state(torch.tensor([axes])),
            position=torch.tensor([[60.0, 12.0]]),
            following=torch.tensor([True]),
        )
        assert step(state, blobs(right, below), FIXED)[1].candidate[0].tolist() == expected


@pytest.mark.parametrize(("response", "expected"), [(0.65, [10, 10]), (0.55, [18, 10])])
def test_two_semi_axes_away_a_candidate_counts_by_exp_of_minus_a_half(
    response: float, expected: list[int]
) -> None:
    """exp(-lambda_e d / 2) with lambda_e = 0.5 and d = 2 is 0.61: a candidate in place wins from there on."""
    state = replace(
        initial_state(torch.full((1, 2), 4.0)),
        position=torch.tensor([[10.0, 10.0]]),
        following=torch.tensor([True]),
    )
    both = patches((10, 10, 3, 3, response), (18, 10, 3, 3, 1.0))
    assert step(state, both, FIXED)[1].candidate[0].tolist() == expected


def test_a_weak_peak_forgets_the_state() -> None:
    state = start(3, 2)
    for i in range(5):
        state, _ = step(state, blobs((40 + 2 * i, 12, 3, 3, 1)), FIXED)
    assert bool(state.following)
    lost, output = step(state, blobs((100, 4, 3, 3, 0.2)), FIXED)
    assert not lost.following
    assert (lost.drift == 0).all()
    torch.testing.assert_close(lost.semi_axes, state.semi_axes)
    assert float(output.peak) == pytest.approx(0.2)
    again, output = step(lost, blobs((20, 8, 3, 3, 1)), FIXED)
    assert bool(again.following)
    assert (again.drift == 0).all()  # no movement from where it was lost to where it came back
    assert output.position[0].tolist() == [20, 8]


@pytest.mark.parametrize("mode", ["fixed", "paper"])
@pytest.mark.parametrize("value", [0.0, 0.3, -1.0])
def test_a_constant_response_says_nothing(mode: str, value: float) -> None:
    config = QamConfig(mode=mode)  # type: ignore[arg-type]
    state = start()
    for _ in range(3):
        state, output = step(state, torch.full((1, 7, 9), value), config)
        assert (output.location == 0).all()
        for f in fields(state):
            assert getattr(state, f.name).float().isfinite().all()


@pytest.mark.parametrize("mode", ["fixed", "paper"])
def test_one_cell_components_keep_a_usable_ellipse(mode: str) -> None:
    config = QamConfig(mode=mode)  # type: ignore[arg-type]
    state = start(0.5, 0.5)
    response = torch.zeros(1, 9, 9)
    response[0, 4, 6] = 1
    for _ in range(60):
        state, output = step(state, response, config)
    assert output.location.isfinite().all()
    assert output.location[0, 4, 6] == 1
    if mode == "fixed":
        torch.testing.assert_close(state.semi_axes, torch.full((1, 2), 0.5))


def test_location_is_the_response_under_a_gaussian_of_the_ellipses_size() -> None:
    response = patches((4, 3, 9, 5, 1.0), (25, 18, 3, 3, 0.7))
    state, output = step(start(4, 2), response, FIXED)
    a, b = state.semi_axes[0]
    near = float(torch.exp(-0.5 * (2 / a) ** 2 - 0.5 * (1 / b) ** 2))
    assert float(output.location[0, 4, 6]) == pytest.approx(0.9 * near, rel=1e-5)
    assert output.location[0, 3, 4] == 1
    assert output.location[0, 18, 25] < 0.01
    assert output.location.min() == 0


@pytest.mark.parametrize("mode", ["fixed", "paper"])
def test_runs_side_by_side_do_not_know_of_each_other(mode: str) -> None:
    config = QamConfig(mode=mode)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    responses = torch.rand(3, 6, 11, 13, generator=generator) ** 4
    responses[1, 3] = 0.1  # one run loses its object
    together = start(2, 3, batch=3)
    alone = [start(2, 3) for _ in range(3)]
    for time in range(6):
        together, output = step(together, responses[:, time], config)
        for run in range(3):
            alone[run], single = step(alone[run], responses[run : run + 1, time], config)
            for f in fields(output):
                torch.testing.assert_close(getattr(output, f.name)[run], getattr(single, f.name)[0])
            for f in fields(together):
                torch.testing.assert_close(getattr(together, f.name)[run], getattr(alone[run], f.name)[0])


def test_the_state_given_is_not_changed() -> None:
    state = start()
    step(state, blobs((50, 12, 3, 3, 1)), FIXED)
    assert (state.position == 0).all()
    assert not state.following.any()
