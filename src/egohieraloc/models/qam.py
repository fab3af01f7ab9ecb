"""Query-aware Module: candidate peaks of the filter's response, followed over time by an ellipse.

A pure `step(state, response) -> (state, output)`; B runs side by side, T frames, H W cells, positions are
(x, y).

Departures from the paper (mode `fixed`): drift is the movement of the candidate itself and the refined
position is the candidate, because the printed recursion lags behind for ever; the ellipse weighs candidates
round the predicted position, because in the printed distance it has no effect; its axes keep their meaning
(a along x, b along y); a weak peak forgets the state. Mode `paper` is the printed recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from egohieraloc.config import QamConfig

try:  # Triton comes with CUDA builds of torch alone
    from egohieraloc.models import fused
except ImportError:
    fused = None  # type: ignore[assignment]


IN_ONE_FRAME = np.zeros((3, 3, 3), bool)  # which of the cells round one, in its frame and those beside it ...
IN_ONE_FRAME[1] = True  # ... are joined with it


@dataclass(frozen=True)
class QamState:
    """What is remembered of the frames before."""

    position: Tensor  # (B, 2) refined position p_mod
    drift: Tensor  # (B, 2) cumulative deformation Omega
    semi_axes: Tensor  # (B, 2) of the ellipse: a along x, b along y, in cells
    following: Tensor  # (B,) bool: False before the first and after a lost frame
    cells: Tensor  # (B, H, W) in [0, 1]: the object in the frame before, with propagation; else (B, 1, 1)

    def __len__(self) -> int:
        return len(self.position)

    def rows(self, index: list[int]) -> QamState:
        """The state of some of the runs; a run may be given several times."""
        return QamState(*(getattr(self, f.name)[index] for f in fields(self)))

    @staticmethod
    def joined(states: Sequence[QamState]) -> QamState:
        """Runs of several states side by side."""
        return QamState(*(torch.cat([getattr(state, f.name) for state in states]) for f in fields(QamState)))


@dataclass(frozen=True)
class QamOutput:
    """Where the object is thought to be."""

    candidate: Tensor  # (B, 2) p_can
    position: Tensor  # (B, 2) p_mod
    peak: Tensor  # (B,) response at the candidate
    location: Tensor  # (B, H, W) normalised response under a Gaussian of the ellipse's size
    semi_axes: Tensor  # (B, 2) of the ellipse, in cells
    drift: Tensor  # (B, 2) Omega, in cells

    @staticmethod
    def interleaved(frames: list[QamOutput]) -> QamOutput:
        """The outputs of T frames of B runs, frame after frame, as those of B*T frames, run by run."""
        return QamOutput(
            *(torch.stack([getattr(o, f.name) for o in frames], 1).flatten(0, 1) for f in fields(QamOutput))
        )


def initial_state(semi_axes: Tensor) -> QamState:
    """No object seen yet; semi_axes (B, 2): half of the query's width and height, in cells."""
    zeros = torch.zeros_like(semi_axes)
    lost = torch.zeros_like(zeros[:, 0], dtype=torch.bool)
    return QamState(zeros, zeros, semi_axes.clamp(min=0.5), lost, zeros[:, :1, None])


def connected_components(mask: Tensor) -> Tensor:
    """Labels (B, H, W) of the 8-connected components of a boolean mask; 0 is background.

    A component's label is its highest cell number.
    """
    if mask.is_cuda and fused is not None:
        return fused.connected_components(mask)
    if mask.device.type == "cpu":
        return torch.from_numpy(_labelled(mask.numpy()))
    return _joined_by_pointers(mask)


def _labelled(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """`connected_components` on the processor: all frames at once, as a volume of separate layers."""
    numbers = np.broadcast_to(np.arange(mask[0].size).reshape(mask[0].shape) + 1, mask.shape)
    labels, count = ndimage.label(mask, IN_ONE_FRAME)
    highest = np.zeros(count + 1, np.int64)
    highest[labels.ravel()] = numbers.ravel()  # the last one stays
    highest[0] = 0
    return np.asarray(highest[labels], np.int64)


def _joined_by_pointers(mask: Tensor) -> Tensor:
    """`connected_components` anywhere else.

    Every cell points to the root of its part; in each round the root of a part follows the highest root among
    the part's neighbours, which leaves at most half of the parts of a component.
    """
    height, width = mask.shape[-2:]
    rounds = (height * width).bit_length()
    inside = mask.flatten(1)
    root = torch.arange(height * width, device=mask.device).expand(inside.shape)
    for _ in range(rounds):
        numbers = ((root + 1) * inside).float().view(-1, 1, height, width)
        highest = F.max_pool2d(numbers, 3, 1, 1).flatten(1).long() - 1
        before, root = root, root.scatter_reduce(1, root, torch.where(inside, highest, root), "amax")
        if torch.equal(before, root):
            break
        for _ in range(rounds):
            root = root.gather(1, root)
    return ((root + 1) * inside).view(-1, height, width)


def step(state: QamState, response: Tensor, config: QamConfig) -> tuple[QamState, QamOutput]:
    """Follow the object by one frame. response: (B, H, W)."""
    return follow(state, response[:, None], config)


def follow(
    state: QamState, responses: Tensor, config: QamConfig, *, fresh: tuple[QamState, int] | None = None
) -> tuple[QamState, QamOutput]:
    """Follow the object over (B, T, H, W); the outputs come as (B*T, ...), run by run.

    What needs no memory is done for all frames at once; only the choice among the peaks goes frame by frame.
    fresh: a state that each frame from some number on begins with, instead of the one before it.
    """
    response = responses.detach().float().flatten(0, 1)
    state, chosen = _choices(state, _find_peaks(response, config), config, fresh)
    location = _location_map(response, chosen.position, chosen.semi_axes.clamp(min=0.5), config)
    return state, QamOutput(
        chosen.candidate, chosen.position, chosen.peak, location, chosen.semi_axes, chosen.drift
    )


@dataclass(frozen=True)
class _Peaks:
    """Candidates in B responses, known without the frames before."""

    response: Tensor  # (B, H, W)
    labels: Tensor  # (B, H, W) of components above the threshold T_v
    score: Tensor  # (B, HW) R * A**area_power at the peaks of the best components, -inf elsewhere

    def rows(self, index: slice) -> _Peaks:
        return _Peaks(self.response[index], self.labels[index], self.score[index])


@dataclass(frozen=True)
class _Move:
    """What one frame decides; see `QamOutput`."""

    candidate: Tensor
    position: Tensor
    peak: Tensor
    semi_axes: Tensor
    drift: Tensor


def _choices(
    state: QamState, peaks: _Peaks, config: QamConfig, fresh: tuple[QamState, int] | None
) -> tuple[QamState, _Move]:
    """The state after the last frame, and what each frame decides."""
    times = len(peaks.response) // len(state.following)
    if peaks.response.is_cuda and fused is not None and config.mode == "fixed" and fresh is None:
        figures, following = fused.advance(state, peaks.response, peaks.labels, peaks.score, config)
        position, peak, semi_axes, drift = figures.split([2, 1, 2, 2], -1)
        after = QamState(position[:, -1], drift[:, -1], semi_axes[:, -1], following, state.cells)
        position = position.flatten(0, 1)
        return after, _Move(position, position, peak.flatten(), semi_axes.flatten(0, 1), drift.flatten(0, 1))
    advance = _paper_advance if config.mode == "paper" else _advance
    moves = []
    for time in range(times):
        if fresh is not None and time >= fresh[1]:
            state = fresh[0]
        state, move = advance(state, peaks.rows(slice(time, None, times)), config)
        moves.append(move)
    return state, _Move(
        *(torch.stack([getattr(m, f.name) for m in moves], 1).flatten(0, 1) for f in fields(_Move))
    )


def _find_peaks(response: Tensor, config: QamConfig) -> _Peaks:
    # T_v; rounding of the mean must not make a component of a constant response.
    threshold = response.mean((1, 2)) + config.sensitivity * response.std((1, 2)) + 1e-6
    labels = connected_components(response > threshold[:, None, None])
    values, owner = response.flatten(1), labels.flatten(1)
    slots = values.new_zeros(len(values), owner.shape[1] + 1)  # by label; slot 0 is the background
    peaks = torch.full_like(slots, -torch.inf).scatter_reduce(1, owner, values, "amax")
    peaks[:, 0] = -torch.inf
    area = slots.scatter_add(1, owner, torch.ones_like(values)).gather(1, owner)
    lowest = peaks.topk(min(config.candidates, peaks.shape[1]), 1).values[:, -1:]
    eligible = (owner > 0) & (values == peaks.gather(1, owner)) & (values >= lowest)
    score = values.clamp(min=1e-6) * area**config.area_power
    return _Peaks(response, labels, score.masked_fill(~eligible, -torch.inf))


def _advance(state: QamState, peaks: _Peaks, config: QamConfig) -> tuple[QamState, _Move]:
    score = peaks.score
    if config.ellipse:
        prior = _ellipse_prior(peaks.response, state, state.position + state.drift, config)
        score = torch.where(score > -torch.inf, score * prior.flatten(1), score)
    candidate, peak, extent = _choose(peaks, score, torch.zeros_like(state.following), config)
    following = state.following[:, None]
    movement = torch.where(following, candidate - state.position, torch.zeros_like(candidate))
    drift = config.decay * state.drift + (1 - config.decay) * movement
    semi_axes = config.smoothing * state.semi_axes + (1 - config.smoothing) * extent / 2
    found = (peak >= config.lost_below)[:, None]
    new = QamState(
        candidate,
        torch.where(found & following, drift, torch.zeros_like(drift)),
        torch.where(found, semi_axes.clamp(min=0.5), state.semi_axes),
        found[:, 0],
        state.cells,
    )
    return new, _Move(candidate, candidate, peak, new.semi_axes, new.drift)


def _choose(
    peaks: _Peaks, score: Tensor, highest: Tensor, config: QamConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Position (B, 2) and response (B,) of the best peak, and the extent (B, 2) of its component.

    Without multi_peak, where `highest` (B,) says so and where there is no peak it is the highest response.
    """
    values = peaks.response.flatten(1)
    best, ranked = values.argmax(1), score.argmax(1)
    if config.multi_peak:
        best = torch.where(highest | (score == -torch.inf).all(1), best, ranked)
    width = peaks.response.shape[-1]
    position = torch.stack([best % width, best // width], 1).float()
    chosen = peaks.labels.flatten(1).gather(1, best[:, None])[:, 0]
    return position, values.gather(1, best[:, None])[:, 0], _component_extent(peaks.labels, chosen)


def _ellipse_prior(response: Tensor, state: QamState, predicted: Tensor, config: QamConfig) -> Tensor:
    """Weights (B, H, W) in (0, 1] that fall with the elliptic distance from the predicted position."""
    y, x = _grid(response)
    a, b = state.semi_axes[:, 0, None, None], state.semi_axes[:, 1, None, None]
    distance = torch.sqrt(
        ((x - predicted[:, 0, None, None]) / a) ** 2 + ((y - predicted[:, 1, None, None]) / b) ** 2
    )
    prior = torch.exp(-config.ellipse_weight * distance / 2)
    return torch.where(state.following[:, None, None], prior, torch.ones_like(prior))


def _component_extent(labels: Tensor, chosen: Tensor) -> Tensor:
    """Width and height (B, 2) of the chosen component in cells: at least 1 (the paper's max - min is 0)."""
    member = (labels == chosen[:, None, None]) & (chosen > 0)[:, None, None]
    return torch.stack([member.any(1).sum(1), member.any(2).sum(1)], 1).clamp(min=1).float()


def _location_map(response: Tensor, position: Tensor, semi_axes: Tensor, config: QamConfig) -> Tensor:
    """The response in [0, 1], under a Gaussian at `position` with the ellipse's axes as sigma."""
    y, x = _grid(response)
    a, b = semi_axes[:, 0, None, None], semi_axes[:, 1, None, None]
    gaussian = torch.exp(
        -0.5 * (((x - position[:, 0, None, None]) / a) ** 2 + ((y - position[:, 1, None, None]) / b) ** 2)
    )
    if config.confident:
        return gaussian * response.clamp(0, 1)
    low, high = response.amin((1, 2), keepdim=True), response.amax((1, 2), keepdim=True)
    return gaussian * (response - low) / (high - low).clamp(min=1e-6)


def _paper_advance(state: QamState, peaks: _Peaks, config: QamConfig) -> tuple[QamState, _Move]:
    """The printed recursion (Eqs. of section 3.3): it lags by construction and is kept for comparison."""
    candidate, peak, extent = _choose(peaks, peaks.score, ~state.following, config)
    following = state.following[:, None]
    movement = torch.where(following, candidate - state.position, torch.zeros_like(candidate))
    drift = torch.where(following, config.decay * state.drift + (1 - config.decay) * movement, movement)
    half = (extent - 1) / 2
    axes = torch.where(
        following, config.smoothing * state.semi_axes + (1 - config.smoothing) * half, state.semi_axes
    )
    axes = axes.sort(1, descending=True).values.clamp(min=1e-6)  # a >= b by swapping
    y, x = _grid(peaks.response)
    shift = torch.floor(drift + 0.5)
    px, py = candidate[:, 0, None, None], candidate[:, 1, None, None]
    distance = torch.hypot(x + shift[:, 0, None, None] - px, y + shift[:, 1, None, None] - py)
    if config.ellipse:
        a, b = axes[:, 0, None, None], axes[:, 1, None, None]
        distance = distance + config.ellipse_weight * torch.sqrt(((x - px) / a) ** 2 + ((y - py) / b) ** 2)
    best = distance.flatten(1).argmin(1)
    width = peaks.response.shape[-1]
    refined = torch.stack([best % width, best // width], 1).float()
    position = torch.where(following, refined, candidate)
    new = QamState(position, drift, axes, torch.ones_like(state.following), state.cells)
    return new, _Move(candidate, position, peak, axes, drift)


def _grid(response: Tensor) -> tuple[Tensor, Tensor]:
    height, width = response.shape[-2:]
    y = torch.arange(height, device=response.device, dtype=torch.float32)[None, :, None]
    x = torch.arange(width, device=response.device, dtype=torch.float32)[None, None, :]
    return y, x
