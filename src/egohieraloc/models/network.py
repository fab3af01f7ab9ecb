"""The paper's figure: one network, three verbs.

`encode_frames` knows nothing of queries, `encode_query` is run once per query, `match` joins the two and
carries the Query-aware Module's state from frame to frame.

B batch, T time, N query tokens, D descriptor channels; windows and frames are RGB in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from egohieraloc.config import NetworkConfig
from egohieraloc.models import dcf, propagation, qam
from egohieraloc.models.backbone import build_backbone
from egohieraloc.models.blocks import area_pool
from egohieraloc.models.dpm import Dpm
from egohieraloc.models.neck import FrameFeatures, Neck
from egohieraloc.models.qam import QamOutput, QamState
from egohieraloc.models.query_mask import QueryMaskHead, token_sets
from egohieraloc.models.ram import Ram, RamOutput


@dataclass(frozen=True)
class QueryFeatures:
    """A query window as the network sees it, before its foreground is decided."""

    scales: tuple[FrameFeatures, ...]  # the window (B images) at each of `query_sizes`, largest first
    box: Tensor  # (B, 4) xyxy in [0, 1] of the window
    visible: Tensor  # (B, 1, h, w) at stride 16: share of each cell that shows the image, not padding
    mask_logits: Tensor  # (B, S/4, S/4) the built-in head's foreground; S the largest of `query_sizes`
    quality_logit: Tensor  # (B,) how far the head trusts it

    def __getitem__(self, index: slice) -> QueryFeatures:
        """Some of the windows."""
        return QueryFeatures(
            tuple(scale[index] for scale in self.scales),
            self.box[index],
            self.visible[index],
            self.mask_logits[index],
            self.quality_logit[index],
        )


@dataclass(frozen=True)
class QueryTemplate:
    """What is looked for, made once per query. S scales, N tokens of all of them."""

    tokens: Tensor  # (B, N, D) unit descriptors of all scales
    foreground: Tensor  # (B, N) weights, M_O
    background: Tensor  # (B, N) weights, M_B
    filters: tuple[Tensor, ...]  # one (B, D, h, w) per scale, of that scale's h x w cells
    semi_axes: Tensor  # (B, S, 2) of the object at each scale, in cells
    gain: Tensor  # (B,) beta_QAM at fallback level 2, else 1

    @property
    def sets(self) -> Tensor:
        """(B, N, 2) foreground and background weights."""
        return torch.stack([self.foreground, self.background], -1)

    def repeated(self, times: int) -> QueryTemplate:
        """Each query `times` times, as queries of their own."""

        def repeat(x: Tensor) -> Tensor:
            return x.repeat_interleave(times, 0)

        return QueryTemplate(
            repeat(self.tokens),
            repeat(self.foreground),
            repeat(self.background),
            tuple(repeat(f) for f in self.filters),
            repeat(self.semi_axes),
            repeat(self.gain),
        )

    @classmethod
    def joined(cls, views: Sequence[QueryTemplate]) -> QueryTemplate:
        """Several views of each object as one: the tokens and filters of all of them.

        Filters are sorted by scale, then by view, so that the middle one is of the middle scale.
        """
        filters = [each for view in views for each in view.filters]
        order = sorted(range(len(filters)), key=lambda number: -filters[number].shape[-1])
        return cls(
            torch.cat([view.tokens for view in views], 1),
            torch.cat([view.foreground for view in views], 1),
            torch.cat([view.background for view in views], 1),
            tuple(filters[number] for number in order),
            torch.cat([view.semi_axes for view in views], 1)[:, order],
            torch.stack([view.gain for view in views]).amin(0),
        )


@dataclass(frozen=True)
class MatchOutput:
    """What the network says of B*T frames, with the maps that explain it; see `EgoHieraLocNet.match`."""

    ram: RamOutput
    foreground: Tensor  # O
    likelihood: Tensor  # Z
    response: Tensor  # of the correlation filter, best scale
    qam: QamOutput


class EgoHieraLocNet(nn.Module):
    """Backbone, DPM, QAM and RAM."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone)
        self.neck = Neck(self.backbone.channels, config.neck)
        self.query_mask = QueryMaskHead(config.neck, config.ram.width)
        self.dpm = Dpm(config.dpm)
        self.ram = Ram(config.neck, config.ram)
        self.coarse = nn.Parameter(torch.tensor([10.0, -5.0]))  # logit of a frame from its best similarity
        self.frame_encoder: nn.Module | None = None  # for frames in the place of backbone and neck

    def encode_frames(self, frames: Tensor) -> FrameFeatures:
        """Maps (shapes in `Neck.forward`) of frames (B, 3, H, W) in [0, 1], sides multiples of 32."""
        if self.frame_encoder is None:
            return self._encode(frames)
        features: FrameFeatures = self.frame_encoder(frames)
        return features

    def _encode(self, images: Tensor) -> FrameFeatures:
        features: FrameFeatures = self.neck(self.backbone(images))
        return features

    def encode_query(self, window: Tensor, box: Tensor, visible: Tensor) -> QueryFeatures:
        """Encode query windows (B, 3, S, S) and predict their foreground.

        box: (B, 4) xyxy in [0, 1] of the window; visible: (B, 1, S, S), 0 where there is only padding.
        """
        scales = tuple(
            self._encode(
                window if size == window.shape[-1] else F.interpolate(window, size=(size, size), mode="area")
            )
            for size in self.config.query_sizes
        )
        grid = scales[0].match
        inside = box_coverage(box, grid.shape[-2], grid.shape[-1])
        mask_logits, quality = self.query_mask(scales[0], inside[:, None])
        seen = area_pool(visible.float(), grid)
        return QueryFeatures(scales, box, seen, mask_logits, quality)

    def template(self, query: QueryFeatures, mask: Tensor, quality: Tensor, level: Tensor) -> QueryTemplate:
        """Templates of B encoded queries with these foregrounds.

        mask: (B, 1, h, w) in [0, 1], of any size; quality: (B,) in [0, 1]; level: (B,) 0 to 2 (fallback).
        """
        tokens, foreground, background, filters, axes = [], [], [], [], []
        size = query.box[:, 2:] - query.box[:, :2]
        for features in query.scales:
            cells = features.match
            height, width = cells.shape[-2:]
            tokens.append(cells.flatten(2).transpose(1, 2))
            coverage = area_pool(mask.float(), cells).flatten(1)
            inside = box_cells(query.box, height, width).flatten(1)
            fg, bg = token_sets(coverage, inside, quality, level)
            seen = area_pool(query.visible, cells).flatten(1) >= 0.5
            foreground.append(fg)
            background.append(bg * (seen | inside))
            patch = cells * dcf.hann_window(height, width, cells.device)
            target = dcf.gaussian_target(height, width, self.config.dcf.sigma * height, cells.device)
            filters.append(dcf.solve_filter(patch, target, self.config.dcf.ridge))
            axes.append(torch.stack([size[:, 0] * width, size[:, 1] * height], 1) / 2)
        gain = torch.where(level == 2, self.config.qam.fallback_gain, 1.0)
        return QueryTemplate(
            torch.cat(tokens, 1),
            torch.cat(foreground, 1),
            torch.cat(background, 1),
            tuple(filters),
            torch.stack(axes, 1),
            gain,
        )

    def as_frame(self, query: QueryFeatures) -> FrameFeatures:
        """Query windows as parts of B frames of which nothing else is known."""
        window, size = query.scales[0], self.config.input_size
        start = (size - 16 * window.match.shape[-1]) // 64 * 32  # about the middle, on the grid of stride 32

        def placed(maps: Tensor, stride: int) -> Tensor:
            before, side = start // stride, maps.shape[-1]
            after = size // stride - before - side
            return F.pad(maps, (before, after, before, after))

        strides = (16, 32, 8, 4)
        maps = (window.match, window.context, window.fine8, window.fine4)
        return FrameFeatures(*map(placed, maps, strides))

    def template_from_frame(self, frame: FrameFeatures, box: Tensor, mask: Tensor) -> QueryTemplate:
        """What a box shows in one frame, from the frame's features: the window of a query, cut out of them.

        box: (1, 4) xyxy in [0, 1] of the frame; mask: (1, 1, h, w) in [0, 1], the object in the frame.
        """
        height, width = frame.match.shape[-2:]
        grid_size = torch.tensor([width, height], device=box.device)
        center, size = (box[:, :2] + box[:, 2:]) / 2 * grid_size, (box[:, 2:] - box[:, :2]) * grid_size
        side = self.config.query_window * size.amax(1, keepdim=True).clamp(min=1)  # all in cells

        def cut(maps: Tensor, cells: int) -> Tensor:
            ramp = (torch.arange(cells, device=box.device) + 0.5) / cells - 0.5
            x, y = (2 * (center + side * ramp[:, None]) / grid_size - 1).unbind(1)
            grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)[None]
            return F.grid_sample(maps.float(), grid, padding_mode="zeros", align_corners=False)

        cells = [side_px // 16 for side_px in self.config.query_sizes]
        empty = box.new_zeros(1, 0)
        scales = tuple(
            FrameFeatures(F.normalize(cut(frame.match, count), dim=1), empty, empty, empty) for count in cells
        )
        visible = cut(torch.ones_like(frame.match[:, :1]), cells[0])
        inner = torch.cat([0.5 - size / side / 2, 0.5 + size / side / 2], 1)
        window = QueryFeatures(scales, inner, visible, empty, empty)
        foreground = (cut(mask, 4 * cells[0]) >= 0.5).float()
        quality, level = torch.ones(1, device=box.device), torch.zeros(1, device=box.device, dtype=torch.long)
        return self.template(window, foreground, quality, level)

    def initial_state(self, template: QueryTemplate) -> QamState:
        """No frame seen yet; the object is expected as large as at the middle scale, of two the smaller."""
        scales = template.semi_axes.shape[1]
        return qam.initial_state(template.semi_axes[:, scales // 2])

    def coarse_logits(self, cells: Tensor, template: QueryTemplate) -> Tensor:
        """Logits (B,) that frames (B, D, H, W) show one query, from descriptors alone."""
        member = template.foreground[0] > 0  # the others would only cost time
        tokens, weight = template.tokens[0, member], template.foreground[0, member]
        return self.coarse_from_map(self.dpm.foreground_map(cells, tokens, weight).float())

    def coarse_from_map(self, foreground: Tensor) -> Tensor:
        """Logits (...,) from O maps (..., H, W): of the mean of the four most similar cells."""
        best = foreground.flatten(-2).topk(4, -1).values.mean(-1)
        return self.coarse[0] * best + self.coarse[1]

    def follow(self, template: QueryTemplate, cells: Tensor, state: QamState) -> QamState:
        """The state after T consecutive frames (T, D, H, W) of one run, as `match` carries it on."""
        response = dcf.respond(cells, template.filters).amax(1)
        return qam.follow(state, response[None], self.config.qam)[0]

    def match(
        self,
        template: QueryTemplate,
        features: FrameFeatures,
        state: QamState,
        *,
        apart_from: int | None = None,
        outlined: Tensor | None = None,
        presence: bool = False,
    ) -> tuple[MatchOutput, QamState]:
        """Look for B queries in B runs of T consecutive frames (features: B*T frames, run by run).

        A template of one query is looked for in all of the runs that the state has.
        apart_from: from this one on, the frames of a run have nothing to do with each other;
        outlined: numbers of the frames whose masks are wanted, None for all; presence: also read that head.

        Every output has B*T rows, run by run; H x W are the pixels of a frame, h x w its cells at stride 16,
        positions (x, y) in cells:

            foreground           (B*T, h, w)      O, mean of the top-K similarities to the foreground, [-1, 1]
            likelihood           (B*T, h, w)      Z, foreground against background, [0, 1]
            response             (B*T, h, w)      of the correlation filter, about 1 on the object
            qam.candidate        (B*T, 2)         p_can, the chosen peak of the response
            qam.position         (B*T, 2)         p_mod, the refined position
            qam.peak             (B*T,)           response at the candidate
            qam.location         (B*T, h, w)      response round the position, [0, 1]
            qam.semi_axes        (B*T, 2)         of the ellipse: a along x, b along y
            qam.drift            (B*T, 2)         Omega, the smoothed movement
            ram.mask_logits      (B*T, H/4, W/4)  of the object's pixels; rows as in `outlined` where given
            ram.cell_logits      (B*T, h, w)      of the object's cells
            ram.boxes            (B*T, 4, h, w)   of the object as each cell predicts it, xyxy in [0, 1]
            ram.presence_logit   (B*T,)           of the presence head; (0,) where it is not read
            ram.score_logit      (B*T,)           of the frame, by `ram.score`; rows as the masks for "mask"
            ram.cells            (B*T, C, h, w)   what a mask is drawn from, then or later

        The state that goes on has B rows: position, drift and semi_axes (B, 2), following (B,).
        """
        config = self.config
        cells = features.match
        foreground, likelihood = self.dpm(cells, template.tokens, template.foreground, template.background)
        response = dcf.respond(cells, template.filters).amax(1)  # the best of the scales
        seen = _Seen(features, foreground, likelihood, response)
        walk = self._walk if config.ram.propagation else self._look
        decoded, followed, state = walk(
            seen, template, state, apart_from=apart_from, outlined=outlined, presence=presence
        )
        return MatchOutput(decoded, foreground, likelihood, response, followed), state

    def _look(
        self,
        seen: _Seen,
        template: QueryTemplate,
        state: QamState,
        *,
        apart_from: int | None,
        outlined: Tensor | None,
        presence: bool,
    ) -> tuple[RamOutput, QamOutput, QamState]:
        """Decode all frames at once: only QAM remembers."""
        fresh = None if apart_from is None else (self.initial_state(template), apart_from)
        responses = seen.response.unflatten(0, (len(state), -1))
        state, followed = qam.follow(state, responses, self.config.qam, fresh=fresh)
        maps = self._maps(seen, followed, template)
        decoded: RamOutput = self.ram(
            seen.features, maps, template.tokens, template.sets, outlined=outlined, presence=presence
        )
        return decoded, followed, state

    def _walk(
        self,
        seen: _Seen,
        template: QueryTemplate,
        state: QamState,
        *,
        apart_from: int | None,
        outlined: Tensor | None,
        presence: bool,
    ) -> tuple[RamOutput, QamOutput, QamState]:
        """Decode frame after frame: what the decoder finds in one is shown to it in the next."""
        times = len(seen.response) // len(state)
        decoded, followed, start = [], [], self.initial_state(template)
        for time in range(times):
            now = seen.rows(slice(time, None, times))
            before = start if apart_from is not None and time >= apart_from else state
            after, here = qam.step(before, now.response, self.config.qam)
            shown = propagation.moved(replace(before, drift=after.drift), now.response)
            frame: RamOutput = self.ram(
                now.features,
                self._maps(now, here, template),
                template.tokens,
                template.sets,
                previous=shown,
                presence=presence,
            )
            state = propagation.corrected(before, after, frame.cell_logits, self.config.qam.decay)
            decoded.append(frame)
            followed.append(here)
        return RamOutput.interleaved(decoded, outlined), QamOutput.interleaved(followed), state

    def _maps(self, seen: _Seen, followed: QamOutput, template: QueryTemplate) -> Tensor:
        """What DPM and QAM say of frames, for the decoder: (B*T, 4, h, w)."""
        dpm, qam_ = self.config.dpm, self.config.qam
        gain = template.gain.repeat_interleave(len(seen.response) // len(template.gain))
        location = followed.location * gain[:, None, None]
        switched = (
            seen.foreground * dpm.foreground,
            seen.likelihood * dpm.likelihood,
            seen.response * qam_.enabled,
            location * qam_.enabled,
        )
        return torch.stack(switched, 1)


@dataclass(frozen=True)
class _Seen:
    """Frames and the maps that need no memory."""

    features: FrameFeatures
    foreground: Tensor
    likelihood: Tensor
    response: Tensor

    def rows(self, index: slice) -> _Seen:
        return _Seen(*(getattr(self, f.name)[index] for f in fields(self)))


def box_coverage(boxes: Tensor, height: int, width: int) -> Tensor:
    """Share (B, H, W) of each cell that boxes (B, 4), xyxy in [0, 1], cover."""
    y = torch.arange(height, device=boxes.device)
    x = torch.arange(width, device=boxes.device)

    def share(low: Tensor, high: Tensor, cells: Tensor, count: int) -> Tensor:
        return (
            torch.minimum(high[:, None] * count, cells + 1) - torch.maximum(low[:, None] * count, cells)
        ).clamp(0, 1)

    x1, y1, x2, y2 = boxes.unbind(1)
    return share(y1, y2, y, height)[:, :, None] * share(x1, x2, x, width)[:, None, :]


def box_cells(boxes: Tensor, height: int, width: int) -> Tensor:
    """Cells (B, H, W) bool of boxes (B, 4): covered at least half as much as the best covered one."""
    share = box_coverage(boxes, height, width)
    return share >= 0.5 * share.amax((1, 2), keepdim=True)
