"""The network's encoder, decoder and DPM in OpenVINO, for x86 processors; torch is the reference.

A file beside the weights, `mini.openvino` beside `mini.safetensors`, holds encoder and decoder as OpenVINO
graphs, made once by `egohieraloc quantize`. Each takes the place of the modules it was made of; it is refused
where these have changed since. The DPM has no weights: its graph is made when it is needed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from egohieraloc.config import DpmConfig
from egohieraloc.documents import parse_json
from egohieraloc.errors import ConfigError, EgoHieraLocError, WeightsError
from egohieraloc.files import atomic_path
from egohieraloc.models.dpm import Dpm
from egohieraloc.models.graphs import MOST_SHAPES, FrameGraph, PartGraph, compile_model, core
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.ram import Ram, RamOutput
from egohieraloc.processor import without_tiles

if TYPE_CHECKING:
    from egohieraloc.models.weights import Weights

SUFFIX = ".openvino"
FORMAT = 1
ABOUT = "about.json"
PARTS = ("encoder", "decoder")
CELL_LAYER = "__module.ram.cell/aten::_convolution/Convolution"  # reads the cells, as masks do
MAX_BYTES = 1_000_000_000  # of all parts, unpacked
Engine = Literal["torch", "compiled", "openvino"]


class CompiledEncoder(nn.Module):
    """Backbone and neck. Windows of queries stay in torch: they are few, and all is compared with them."""

    def __init__(self, graph: PartGraph) -> None:
        super().__init__()
        self._graph = FrameGraph(graph.model())

    def prepare(self, height: int, width: int) -> None:
        """Compile it for frames of that size; else the first one does: a question about a video that is
        stored needs none of it."""
        self._graph.prepare([(3, height, width)])

    def forward(self, frames: Tensor) -> FrameFeatures:
        """Maps (shapes in `Neck.forward`) of frames (B, 3, H, W) in [0, 1]."""
        return FrameFeatures(*self._graph([frames]))


class CompiledDpm(Dpm):
    """The Discriminative Parsing Module for one query, in full precision."""

    def __init__(self, config: DpmConfig) -> None:
        super().__init__(config)
        self._compiled = compile_model(_top_k_graph(config.top_k), exact=True)

    def forward(
        self, cells: Tensor, tokens: Tensor, foreground: Tensor, background: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Dpm.forward`; the query is one."""
        if len(tokens) > 1:
            return super().forward(cells, tokens, foreground, background)
        maps = [self.foreground_map(cells, tokens[0], weight[0]) for weight in (foreground, background)]
        return maps[0], torch.sigmoid((maps[0] - maps[1]) / self.config.temperature)

    def foreground_map(self, cells: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
        """As `Dpm.foreground_map`."""
        member = weight > 0
        tokens, weight = tokens[member], weight[member]
        if len(tokens) < self.config.top_k:
            return super().foreground_map(cells, tokens, weight)
        given = [cells.flatten(2).float().contiguous().numpy(), (tokens * weight[:, None]).float().numpy()]
        request = self._compiled.create_infer_request()  # of this thread alone; the model's own is shared
        found = torch.from_numpy(request.infer(given, share_inputs=True)[0])
        return found.view(len(cells), *cells.shape[2:])


class CompiledDecoder(nn.Module):
    """The Regional Adaptation Module."""

    def __init__(self, graph: PartGraph, network: EgoHieraLocNet) -> None:
        super().__init__()
        self.config = network.config.ram
        self._neck = network.config.neck
        self._tokens = sum((size // 16) ** 2 for size in network.config.query_sizes)
        look, outline = _in_two(graph.model())
        most = 2 * MOST_SHAPES + 1  # with queries of one view and two, and the look back's
        self._look = FrameGraph(look, exact=without_tiles(), together=2, most=most)
        self._outline = FrameGraph(outline, exact=without_tiles())

    def prepare(self, height: int, width: int) -> None:
        """Compile it for frames of that many cells and queries of one view, or of two, which complete an
        appearance; for others when they come."""
        for views in (1, 2):
            self.prepare_look(height, width, views)
        fine = ((self._neck.fine8, 2), (self._neck.fine4, 4))
        cells = self.config.width, height, width
        self._outline.prepare([cells, *((channels, k * height, k * width) for channels, k in fine)])

    def prepare_look(self, height: int, width: int, views: int) -> None:
        """Compile what needs no masks, for frames of that many cells and queries of so many views."""
        neck, tokens = self._neck, views * self._tokens
        cells, context = (neck.match, height, width), (neck.context, height // 2, width // 2)
        self._look.prepare([cells, context, (Ram.MAPS, height, width)], [(tokens, neck.match), (tokens, 2)])

    def forward(
        self,
        features: FrameFeatures,
        maps: Tensor,
        tokens: Tensor,
        sets: Tensor,
        *,
        previous: Tensor | None = None,
        outlined: Tensor | None = None,
        presence: bool = False,
    ) -> RamOutput:
        """As `Ram.forward`, for one query; the presence head is not there."""
        if previous is not None or presence or len(tokens) > 1:
            raise ConfigError(
                "The OpenVINO decoder takes one query at a time, has no presence head and remembers no "
                "frame. Use --engine torch."
            )
        cells, cell_logits, boxes, score_logit = self._look(
            [features.match, features.context, maps], [tokens, sets]
        )
        wanted = [cells, features.fine8, features.fine4]
        if outlined is not None:
            wanted = [part.index_select(0, outlined) for part in wanted]
        empty = cell_logits.new_empty(0)
        return RamOutput(self.outline(*wanted), cell_logits, empty, boxes, score_logit, cells)

    def outline(self, cells: Tensor, fine8: Tensor, fine4: Tensor) -> Tensor:
        """As `Ram.outline`."""
        if not len(cells):
            return cells.new_empty(0, *fine4.shape[2:])
        (logits,) = self._outline([cells, fine8, fine4])
        return logits


def part_fingerprints(network: EgoHieraLocNet) -> dict[str, str]:
    """Of all that decides what each part computes."""
    config = network.config
    return {
        "encoder": _fingerprint((config.backbone, config.neck), (network.backbone, network.neck)),
        "decoder": _fingerprint((config.neck, config.ram), (network.ram,)),
    }


def _fingerprint(settings: Sequence[object], modules: Sequence[nn.Module]) -> str:
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=8)
    for module in modules:
        for name, value in module.state_dict().items():
            digest.update(name.encode() + value.cpu().numpy().tobytes())
    return digest.hexdigest()


def write_parts(path: Path, graphs: Mapping[str, PartGraph], network: EgoHieraLocNet) -> None:
    """Write the graphs of a network's parts, by the names in `PARTS`."""
    about = _about(network)
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(ABOUT, json.dumps(about))
        for name in PARTS:
            file.writestr(f"{name}.xml", graphs[name].xml)
            file.writestr(f"{name}.bin", graphs[name].weights)


def _about(network: EgoHieraLocNet) -> dict[str, Any]:
    return {"format": FORMAT, "parts": part_fingerprints(network)}


def read_parts(path: Path, network: EgoHieraLocNet) -> dict[str, PartGraph]:
    """The graphs in a file, which must have been made of this network."""
    try:
        with zipfile.ZipFile(path) as file:
            if sum(member.file_size for member in file.infolist()) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES / 1e6:g} MB")
            about = parse_json(file.read(ABOUT))
            graphs = {name: PartGraph(file.read(f"{name}.xml"), file.read(f"{name}.bin")) for name in PARTS}
    except Exception as error:  # a damaged archive makes zipfile raise half a dozen unrelated types
        raise WeightsError(
            f"{path} cannot be read ({error}). Make it again: `egohieraloc quantize`."
        ) from error
    if about != _about(network):
        raise WeightsError(
            f"{path} was made of other weights or settings of the network. "
            "Make it again with `egohieraloc quantize`, or use --engine torch."
        )
    return graphs


def compile_parts(network: EgoHieraLocNet, graphs: Mapping[str, PartGraph]) -> None:
    """Put the compiled parts in the place of the modules they were made of, the encoder for frames alone."""
    network.frame_encoder = CompiledEncoder(graphs["encoder"])
    network.add_module("dpm", CompiledDpm(network.config.dpm))
    network.add_module("ram", CompiledDecoder(graphs["decoder"], network))


def _in_two(decoder: Any) -> tuple[Any, Any]:
    """The decoder up to its cells, which says where the object is, and from there to the mask."""
    import openvino
    from openvino import opset13 as op

    match, context, fine8, fine4, *others = decoder.get_parameters()
    mask, *said = decoder.get_results()
    (reader,) = (node for node in decoder.get_ops() if node.get_friendly_name().startswith(CELL_LAYER))
    cells = reader.input_value(0)
    given = op.parameter(cells.get_partial_shape(), np.float32)
    look = openvino.Model([op.result(cells), *said], [match, context, *others]).clone()
    for place in cells.get_target_inputs():
        place.replace_source_output(given.output(0))
    return look, openvino.Model([mask], [given, fine8, fine4])


def _top_k_graph(k: int) -> Any:
    """The mean (B, C) of the k highest products of cells (B, D, C) with tokens (N, D)."""
    import openvino
    from openvino import opset13 as op

    cells, tokens = op.parameter([-1, -1, -1], np.float32), op.parameter([-1, -1], np.float32)
    highest = op.topk(op.matmul(tokens, cells, False, False), op.constant(np.int64(k)), 1, "max", "none")
    mean = op.reduce_mean(highest.output(0), op.constant(np.int64(1)), False)
    return openvino.Model([mean], [cells, tokens])


def usable_parts(weights: Weights, device: torch.device, engine: str | None) -> dict[str, PartGraph] | None:
    """What to compile for an engine, the best there is with None; nothing where torch is to run it all."""
    if engine not in (None, *get_args(Engine)):
        raise ConfigError(f"An engine is one of {', '.join(get_args(Engine))}, got '{engine}'.")
    if engine == "compiled" and device.type != "cuda":
        raise ConfigError(f"The engine compiled is for CUDA, not for '{device}'. Leave --engine out.")
    if engine in ("torch", "compiled"):
        return None
    if engine is None and (weights.parts is None or device.type != "cpu"):
        return None
    try:
        return _parts_for(weights, device)
    except EgoHieraLocError as error:
        if engine is not None:
            raise
        warnings.warn(f"{error} Torch is used instead.", RuntimeWarning, stacklevel=2)
        return None


def _parts_for(weights: Weights, device: torch.device) -> dict[str, PartGraph]:
    if device.type != "cpu":
        raise ConfigError(f"The engine openvino runs on the processor, not on '{device}'. Use --device cpu.")
    if platform.machine().lower() not in ("x86_64", "amd64") or platform.system() == "Darwin":
        raise ConfigError("The engine openvino is for x86 processors under Linux and Windows.")
    if weights.parts is None:
        raise WeightsError(
            f"There is no {SUFFIX} file beside these weights. Make one: `egohieraloc quantize`."
        )
    try:
        core()
    except ImportError as error:
        raise ConfigError(
            f"The engine openvino cannot be loaded ({error}). `pip install openvino` makes answers faster."
        ) from error
    return read_parts(weights.parts, weights.network)
