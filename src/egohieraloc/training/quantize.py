"""The encoder and decoder for OpenVINO, made once for each weights file.

The encoder is quantised to 8 bits (NNCF, after training), with ranges of its activations from photographs.
Its first layers and its depthwise convolutions stay as they are: they hold few of the multiplications and
most of the rounding errors. The decoder, small and run on few samples, stays too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from egohieraloc.errors import ConfigError, MissingExtraError
from egohieraloc.files import scratch_folder
from egohieraloc.models.compiled import PartGraph, write_parts
from egohieraloc.models.fold import fold_norms
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import load_weights
from egohieraloc.types import Rgb

PRECISE = [r".*backbone\.stem.*", r".*backbone\.stages\.0\..*"]  # names of layers that are not quantised
QUERY_TOKENS = 232  # of the example the decoder is traced with; any number will do later


class _Encoder(nn.Module):
    def __init__(self, network: EgoHieraLocNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, frames: Tensor) -> tuple[Tensor, ...]:
        maps = self.network.encode_frames(frames)
        return maps.match, maps.context, maps.fine8, maps.fine4


class _Decoder(nn.Module):
    def __init__(self, network: EgoHieraLocNet) -> None:
        super().__init__()
        self.ram = network.ram

    def forward(
        self,
        match: Tensor,
        context: Tensor,
        fine8: Tensor,
        fine4: Tensor,
        maps: Tensor,
        tokens: Tensor,
        sets: Tensor,
    ) -> tuple[Tensor, ...]:
        said = self.ram(FrameFeatures(match, context, fine8, fine4), maps, tokens, sets)
        return said.mask_logits, said.cell_logits, said.boxes, said.score_logit


def quantize(path: Path, images: Iterable[Rgb], out: Path) -> None:
    """Write the parts of a weights file, with activation ranges from images of any size."""
    try:
        import nncf
        import openvino
    except ImportError as error:
        raise MissingExtraError(error.name or "nncf", "train") from error
    network = load_weights(path).network
    if network.config.ram.propagation:
        raise ConfigError(f"{path} was trained with ram.propagation, which runs in torch alone.")
    plain = copy.deepcopy(network)
    fold_norms(plain)
    size = network.config.input_size
    frames = [_as_input(image, size) for image in images]
    with torch.inference_mode():
        encoder, decoder = _encoder_graph(plain), _decoder_graph(plain)
    encoder.reshape([1, 3, size, size])  # statistics are collected frame by frame ...
    encoder = nncf.quantize(
        encoder,
        nncf.Dataset(frames),
        subset_size=len(frames),
        preset=nncf.QuantizationPreset.MIXED,
        ignored_scope=nncf.IgnoredScope(types=["GroupConvolution"], patterns=PRECISE, validate=False),
    )
    encoder.reshape([-1, 3, size, size])  # ... and any number of them encoded later
    write_parts(out, {"encoder": _stored(openvino, encoder), "decoder": _stored(openvino, decoder)}, network)


def _as_input(image: Rgb, size: int) -> Any:
    scaled = cv2.resize(
        image, (size, size), interpolation=cv2.INTER_AREA if size < len(image) else cv2.INTER_LINEAR
    )
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32) / 255


def _encoder_graph(network: EgoHieraLocNet) -> Any:
    import openvino

    size = network.config.input_size
    return openvino.convert_model(_Encoder(network).eval(), example_input=torch.rand(1, 3, size, size))


def _decoder_graph(network: EgoHieraLocNet) -> Any:
    import openvino

    side = network.config.input_size // 16
    neck = network.config.neck
    example = (
        torch.rand(2, neck.match, side, side),
        torch.rand(2, neck.context, side // 2, side // 2),
        torch.rand(2, neck.fine8, 2 * side, 2 * side),
        torch.rand(2, neck.fine4, 4 * side, 4 * side),
        torch.rand(2, network.ram.MAPS, side, side),
        torch.rand(1, QUERY_TOKENS, neck.match),
        torch.rand(1, QUERY_TOKENS, 2),
    )
    graph = openvino.convert_model(_Decoder(network).eval(), example_input=example)
    # Sides are known: only the number of frames and of tokens is open.
    graph.reshape(
        {place: [-1, *value.shape[1:]] for place, value in enumerate(example[:5])}
        | {5: [1, -1, neck.match], 6: [1, -1, 2]}
    )
    return graph


def _stored(openvino: Any, graph: Any) -> PartGraph:
    with scratch_folder() as name:
        xml = Path(name) / "part.xml"
        openvino.save_model(graph, xml, compress_to_fp16=True)
        return PartGraph(xml.read_bytes(), xml.with_suffix(".bin").read_bytes())
