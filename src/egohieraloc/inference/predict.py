"""The border between torch and NumPy: images in, packed features, scores, boxes and masks out."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from egohieraloc.errors import ConfigError
from egohieraloc.inference.chunks import CHUNK
from egohieraloc.inference.cuts import mean_descriptors
from egohieraloc.inference.mask_box import box_from_mask
from egohieraloc.inference.packing import PackedFeatures, pack, unpack, unpack_match
from egohieraloc.inference.query_window import QueryWindow, cut_window
from egohieraloc.models.compiled import CompiledDecoder, CompiledEncoder, compile_parts, usable_parts
from egohieraloc.models.fold import fold_norms, fuse_for_cuda
from egohieraloc.models.jit import compile_encoder
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import MatchOutput, QueryFeatures, QueryTemplate
from egohieraloc.models.qam import QamState
from egohieraloc.models.query_mask import MaskProvider, fallback_level, segmenter_quality
from egohieraloc.models.ram import cell_score
from egohieraloc.models.weights import Weights
from egohieraloc.query import Query
from egohieraloc.types import Box, Bytes, QueryMask, Rgb
from egohieraloc.video.letterbox import Letterbox

BATCHES = {"cpu": 16, "cuda": 128}
ENCODE_BATCHES = {"cuda": 128}  # a processor is no faster with more than a chunk
STRIDE, MASK_STRIDE = 16, 4  # pixels of the canvas in a cell of descriptors, and of a mask
LOOK_BACK_BATCH = 2  # candidates encoded at a time for a look back: more save little and take much memory


@dataclass(frozen=True, eq=False)
class SearchTemplate:
    """What is searched for."""

    template: QueryTemplate

    def beside(self, other: SearchTemplate | None) -> SearchTemplate:
        """What looks like either is searched for."""
        if other is None:
            return self
        return SearchTemplate(QueryTemplate.joined([self.template, other.template]))


@dataclass(frozen=True, eq=False)
class PreparedQuery(SearchTemplate):
    """A query ready to be searched for, and to be searched."""

    mask: QueryMask
    views: FrameFeatures  # its images, one a view


@dataclass(frozen=True, eq=False)
class CanvasMaps:
    """The maps behind one sample's score; positions and lengths are canvas pixels."""

    foreground: NDArray[np.float32]  # (h, w) O
    likelihood: NDArray[np.float32]  # (h, w) Z
    response: NDArray[np.float32]  # (h, w) of the correlation filter
    location: NDArray[np.float32]  # (h, w) QAM
    position: NDArray[np.float32]  # (2,)
    semi_axes: NDArray[np.float32]  # (2,)
    drift: NDArray[np.float32]  # (2,)


@dataclass(frozen=True, eq=False)
class Decoded:
    """What the network says of one sample, on the letterboxed canvas."""

    score: float
    box: Box  # in canvas pixels
    mask: Bytes  # (4h, 4w) probability * 255 on the canvas, in cells of MASK_STRIDE
    maps: CanvasMaps
    scene: NDArray[np.float32] | None = None  # (D,) the sample's mean descriptor, where it is known
    cells: NDArray[np.float32] | None = None  # (C, h, w) where box and mask are rough: `Predictor.outlined`


def choose_device(name: str | None = None) -> torch.device:
    """The device of that name, or the best there is."""
    if name:
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"Device '{name}' cannot be used here: {error}") from error
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def over_views(logits: Tensor) -> float:
    """One logit for those (n,) of a query's views: the mean of the odds' roots, squared.

    An object is like some of its views, so the likeliest counts most; but each view is one more chance for
    something else to be like it, so one alone does not count as much as all.
    """
    return float(2 * (torch.logsumexp(logits.float() / 2, 0) - math.log(len(logits))))


class Predictor:
    """A network on a device, run by an engine. Keeps no state of its own between calls."""

    def __init__(
        self,
        weights: Weights,
        *,
        device: str | None = None,
        engine: str | None = None,
        provider: MaskProvider | None = None,
    ):
        self.device = choose_device(device)
        self.config = weights.network.config
        self.network = copy.deepcopy(weights.network).to(self.device)
        self.features_fingerprint = weights.features_fingerprint
        self.engine = "torch"
        parts = usable_parts(weights, self.device, engine)
        if parts is not None:
            compile_parts(self.network, parts)
            self.engine = "openvino"
            self.features_fingerprint += f"-{parts['encoder'].fingerprint}"
        fold_norms(self.network)
        if self.device.type == "cuda" and engine != "compiled":
            fuse_for_cuda(self.network, self.device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.calibration = weights.calibration
        self.provider = provider
        self.largest_batch = BATCHES.get(self.device.type, 64)  # samples decoded at a time ...
        self.encode_batch = ENCODE_BATCHES.get(self.device.type, CHUNK)  # ... and encoded
        if engine == "compiled":
            compile_encoder(self.network, self.encode_batch)
            self.engine = engine

    @contextmanager
    def _running(self) -> Iterator[None]:
        # Triton starts its kernels on the current device, not on that of what they are given.
        current = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        with current, torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            yield

    def encode(self, canvases: Sequence[Rgb]) -> PackedFeatures:
        """Features of images (H, W, 3) on canvases of one size."""
        pixels = torch.from_numpy(np.stack(canvases)).to(self.device).permute(0, 3, 1, 2)
        with self._running():
            return pack(self.network.encode_frames(pixels.float().div_(255)))

    def letterbox(self, width: int, height: int) -> Letterbox:
        """From frames of that size to the network's canvas."""
        return Letterbox(width, height, self.config.input_size, square=self.config.square_canvas)

    def prepare_encoding(self, letterbox: Letterbox) -> None:
        """Get ready to encode frames, beside whatever else is done."""
        width, height = letterbox.canvas_size
        if isinstance(self.network.frame_encoder, CompiledEncoder):
            self.network.frame_encoder.prepare(height, width)

    def prepare_search(self, letterbox: Letterbox, *, back: bool = False) -> None:
        """Get ready to search frames, and to look `back`, beside whatever else is done."""
        width, height = letterbox.canvas_size
        if isinstance(self.network.ram, CompiledDecoder):
            self.network.ram.prepare(height // STRIDE, width // STRIDE)
            if back:  # looks back are at squares: see `network.as_frame`
                side = self.config.input_size // STRIDE
                self.network.ram.prepare_look(side, side, views=1)

    def prepare(self, query: Query) -> PreparedQuery:
        """Encode the query and build the template of all its views; the mask is that of the first."""
        views = self._prepare_views(query.views, self.provider)
        if len(views) == 1:
            return views[0]
        template = QueryTemplate.joined([view.template for view in views])
        return PreparedQuery(template, views[0].mask, FrameFeatures.cat([view.views for view in views]))

    def _prepare_views(self, views: Sequence[Query], provider: MaskProvider | None) -> list[PreparedQuery]:
        """Encode views in one go, find the foreground of each."""
        config, qualities, windows = self.config, [], []
        for view in views:
            mask, quality = view.mask, 1.0
            if mask is None and provider is not None:
                provided, quality = provider(view)
                mask = provided if provided.any() else None
            qualities.append(quality)
            cut = replace(view, mask=mask)
            windows.append(cut_window(cut, share=config.query_window, size=config.query_sizes[0]))

        def stacked(values: Iterable[NDArray[Any]]) -> Tensor:
            return torch.from_numpy(np.stack(list(values))).to(self.device).float()

        with self._running():
            features = self.network.encode_query(
                stacked(window.rgb for window in windows).permute(0, 3, 1, 2) / 255,
                stacked(window.box for window in windows),
                stacked(window.visible[None] for window in windows),
            )
            return [
                self._prepare_view(features[number : number + 1], window, quality)
                for number, (window, quality) in enumerate(zip(windows, qualities, strict=True))
            ]

    def _prepare_view(self, features: QueryFeatures, window: QueryWindow, quality: float) -> PreparedQuery:
        """Find the foreground of one view, decide the fallback level, build its template."""
        config = self.config
        if window.mask is not None:
            mask = window.mask.astype(np.float32)
        else:
            mask = _numpy(torch.sigmoid(features.mask_logits[0].float()))
            quality = segmenter_quality(float(features.quality_logit[0]), mask, config.query_mask)
        level = fallback_level(quality, config.query_mask)
        foreground = torch.from_numpy((mask >= 0.5).astype(np.float32)).to(self.device)[None, None]
        template = self.network.template(
            features,
            foreground,
            torch.tensor([quality], device=self.device),
            torch.tensor([level], device=self.device),
        )
        shown = np.round(mask * 255).astype(np.uint8)
        seen = QueryMask(shown, window.region, quality, level)
        return PreparedQuery(template, seen, self.network.as_frame(features))

    def template_from_sample(self, packed: PackedFeatures, shown: Decoded) -> SearchTemplate:
        """What one sample shows, to be searched for in its neighbours."""
        height, width = (STRIDE * cells for cells in packed.match.shape[-2:])
        sides = torch.tensor([width, height, width, height], device=self.device)
        box = torch.tensor([shown.box.xyxy], device=self.device, dtype=torch.float32) / sides
        mask = torch.from_numpy(shown.mask).to(self.device)[None, None].float() / 255
        with self._running():
            return SearchTemplate(self.network.template_from_frame(unpack(packed, self.device), box, mask))

    def look_back(self, query: PreparedQuery, found: Sequence[Query]) -> list[float]:
        """The logits that the query's images show each thing found: see `over_views`."""
        nothing = torch.empty(0, dtype=torch.long, device=self.device)
        some = (found[start : start + LOOK_BACK_BATCH] for start in range(0, len(found), LOOK_BACK_BATCH))
        logits = []
        # Many are looked for: no costly segmenter.
        for view in (view for few in some for view in self._prepare_views(few, None)):
            with self._running():
                state = self.network.initial_state(view.template).rows([0] * len(query.views))
                output, _ = self.network.match(view.template, query.views, state, outlined=nothing)
            logits.append(over_views(cell_score(output.ram.cell_logits)))
        return logits

    def coarse(
        self, query: SearchTemplate, match: NDArray[np.int8], scale: NDArray[np.float16]
    ) -> NDArray[np.float32]:
        """Coarse scores (N,) of samples in logits, from their descriptors alone."""
        with self._running():
            cells = unpack_match(match, scale, self.device)
            return _numpy(self.network.coarse_logits(cells, query.template).float())

    @property
    def coarse_gain(self) -> float:
        """Logits of a coarse score per unit of similarity."""
        return float(self.network.coarse[0])

    def tokens(self, query: SearchTemplate) -> NDArray[np.float32]:
        """Descriptors (n, D) of the query's foreground."""
        return _numpy(query.template.tokens[0, query.template.foreground[0] > 0].float())

    def start(self, query: SearchTemplate, *, runs: int = 1) -> QamState:
        """No sample seen yet, in each of so many runs."""
        with torch.inference_mode():
            return self.network.initial_state(query.template).rows([0] * runs)

    @property
    def can_follow(self) -> bool:
        """Whether the state after some samples is known without decoding them."""
        return not self.config.ram.propagation

    def follow(
        self,
        query: SearchTemplate,
        match: NDArray[np.int8],
        scale: NDArray[np.float16],
        state: QamState,
    ) -> QamState:
        """The state of a run after some more samples, which are not decoded, from their descriptors."""
        with self._running():
            cells = unpack_match(match, scale, self.device)
            return self.network.follow(query.template, cells, state)

    def decode(
        self, query: SearchTemplate, packed: PackedFeatures, state: QamState, *, outlined: bool = True
    ) -> tuple[list[Decoded], QamState]:
        """Decode consecutive samples, carrying the state on; several runs of them go side by side.

        packed: B*T samples, run by run, of the B runs that the state has; the answers come in the same order.
        outlined: with their masks, which are half of the work; else see `outlined`.
        """
        numbers = np.arange(len(packed)).reshape(len(state), -1)
        decoded: dict[int, Decoded] = {}
        done = 0
        while done < numbers.shape[1]:
            # Batches are powers of two: kernels keep memory for each size of batch they ever met.
            size = _power_of_two(min(self.largest_batch // len(state), numbers.shape[1] - done))
            rows = numbers[:, done : done + size].ravel()
            some = packed[rows]
            output, state = self.match(query, some, state, outlined=outlined)
            scenes = mean_descriptors(some.match)
            seen = (replace(d, scene=s) for d, s in zip(self._read(output), scenes, strict=True))
            decoded |= zip(rows.tolist(), seen, strict=True)
            done += size
        return [decoded[row] for row in range(len(packed))], state

    def outlined(self, packed: PackedFeatures, seen: Sequence[Decoded]) -> list[Decoded]:
        """Samples that were decoded without masks, with them, as if they had been decoded so at first."""
        with self._running():
            features = unpack(packed, self.device)
            kept = [each.cells for each in seen if each.cells is not None]
            cells = torch.from_numpy(np.stack(kept)).to(self.device)
            logits = self.network.ram.outline(cells.to(features.fine4.dtype), features.fine8, features.fine4)
        return [
            replace(each, box=box or each.box, mask=mask, cells=None)
            for each, (box, mask) in zip(seen, self._outlines(logits), strict=True)
        ]

    def scores(self, query: SearchTemplate, packed: PackedFeatures) -> NDArray[np.float32]:
        """Scores (N,) of samples that have nothing to do with each other: no state, no mask, no box."""
        found = []
        for start in range(0, len(packed), self.largest_batch):
            some = packed[start : start + self.largest_batch]
            output, _ = self.match(query, some, self.start(query, runs=len(some)), outlined=False)
            found.append(_numpy(torch.sigmoid(output.ram.score_logit.float())))
        return np.concatenate(found) if found else np.zeros(0, np.float32)

    def decode_images(self, query: SearchTemplate, canvases: Sequence[Rgb]) -> list[Decoded]:
        """Encode and decode images (H, W, 3) of one size that have nothing to do with each other."""
        decoded: list[Decoded] = []
        for start in range(0, len(canvases), self.largest_batch):
            some = canvases[start : start + self.largest_batch]
            decoded += self.decode(query, self.encode(some), self.start(query, runs=len(some)))[0]
        return decoded

    def match(
        self, query: SearchTemplate, packed: PackedFeatures, state: QamState, *, outlined: bool = True
    ) -> tuple[MatchOutput, QamState]:
        """The network's raw output. Without `outlined` it has no masks, unless the score is made of them."""
        masks = outlined or self.config.ram.score == "mask" or self.config.ram.propagation
        wanted = None if masks else torch.empty(0, dtype=torch.long, device=self.device)
        with self._running():
            features = unpack(packed, self.device, outlines=masks)
            return self.network.match(query.template, features, state, outlined=wanted)

    def _read(self, output: MatchOutput) -> list[Decoded]:
        ram = output.ram
        scores = _numpy(torch.sigmoid(ram.score_logit.float()))
        height, width = (STRIDE * cells for cells in ram.cell_logits.shape[-2:])
        boxes = _numpy(_best_boxes(ram.cell_logits, ram.boxes)) * (width, height, width, height)
        outlines: Iterable[tuple[Box | None, Bytes]] = self._outlines(ram.mask_logits)
        cells: Iterable[NDArray[np.float32] | None] = [None] * len(scores)
        if not len(ram.mask_logits):
            rough = _numpy(torch.sigmoid(ram.cell_logits.float()) * 255).astype(np.uint8)
            outlines = ((None, each.repeat(4, 0).repeat(4, 1)) for each in rough)
            cells = _numpy(ram.cells.float())
        rows = zip(scores, boxes, outlines, self._maps(output), cells, strict=True)
        return [
            Decoded(float(score), box or _sorted_box(said), mask, maps, cells=left)
            for score, said, (box, mask), maps, left in rows
        ]

    def _outlines(self, logits: Tensor) -> Iterator[tuple[Box | None, Bytes]]:
        """The box, where there is one, and the mask of each sample."""
        for mask in _numpy(torch.sigmoid(logits.float())):
            tight = box_from_mask(mask)
            box = Box(*(v * MASK_STRIDE for v in tight.xyxy)) if tight else None
            yield box, (mask * 255).astype(np.uint8)

    def _maps(self, output: MatchOutput) -> Iterator[CanvasMaps]:
        followed = output.qam
        tensors = (
            output.foreground,
            output.likelihood,
            output.response,
            followed.location,
            (followed.position + 0.5) * STRIDE,
            followed.semi_axes * STRIDE,
            followed.drift * STRIDE,
        )
        return (CanvasMaps(*row) for row in zip(*(_numpy(t.float()) for t in tensors), strict=True))


def _power_of_two(most: int) -> int:
    return 1 << max(1, most).bit_length() - 1


def _best_boxes(cell_logits: Tensor, boxes: Tensor) -> Tensor:
    """Boxes (N, 4) in [0, 1] of the cells most likely to lie on the object."""
    best = cell_logits.flatten(1).argmax(1)
    return boxes.flatten(2).gather(2, best[:, None, None].expand(-1, 4, 1))[..., 0]


def _sorted_box(values: NDArray[np.float32]) -> Box:
    x1, y1, x2, y2 = (float(v) for v in values)
    return Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


def _numpy(values: Tensor) -> NDArray[np.float32]:
    return values.cpu().numpy()
