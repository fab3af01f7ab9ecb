"""The encoder and decoder for OpenVINO, made once for each weights file.

Both are quantised to 8 bits (NNCF, after training), with ranges of their activations from photographs: the
decoder's are those of looking for what is in the middle of one photograph in itself and in the next. The
encoder's first layers and depthwise convolutions stay as they are: they hold few of the multiplications and
most of the rounding errors. So does all of the decoder but its attention: boxes and masks are made of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from egohieraloc.errors import ConfigError, MissingExtraError
from egohieraloc.files import scratch_folder
from egohieraloc.inference.predict import Predictor
from egohieraloc.models.compiled import write_parts
from egohieraloc.models.fold import fold_norms
from egohieraloc.models.graphs import PartGraph
from egohieraloc.models.neck import FrameFeatures
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Weights, load_weights
from egohieraloc.query import Query
from egohieraloc.types import Box, Rgb

# Names of layers that are not quantised.
PRECISE_ENCODER = [r".*backbone\.stem.*", r".*backbone\.stages\.0\..*"]
PRECISE_DECODER = [rf".*ram\.{layer}[./].*" for layer in ("enter", "mix", "cell", "box", "decoder")]
DECODED_IMAGES = 100  # of them the ranges of the decoder come from
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


def quantize(path: Path, images: Sequence[Rgb], out: Path) -> None:
    """Write the parts of a weights file, with activation ranges from images of any size."""
    try:
        import nncf
        import openvino
    except ImportError as error:
        raise MissingExtraError(error.name or "nncf", "train") from error
    weights = load_weights(path)
    network = weights.network
    if network.config.ram.propagation:
        raise ConfigError(f"{path} was trained with ram.propagation, which runs in torch alone.")
    plain = copy.deepcopy(network)
    fold_norms(plain)
    size = network.config.input_size
    frames = [_as_input(image, size) for image in images]
    with torch.inference_mode():
        encoder, decoder = _encoder_graph(plain), _decoder_graph(plain)

    def in_8_bits(graph: Any, examples: Sequence[Any], **ignored: Any) -> Any:
        return nncf.quantize(
            graph,
            nncf.Dataset(examples),
            subset_size=len(examples),
            preset=nncf.QuantizationPreset.MIXED,
            ignored_scope=nncf.IgnoredScope(validate=False, **ignored),
        )

    encoder.reshape([1, 3, size, size])  # statistics are collected frame by frame ...
    encoder = in_8_bits(encoder, frames, types=["GroupConvolution"], patterns=PRECISE_ENCODER)
    encoder.reshape([-1, 3, size, size])  # ... and any number of them encoded later
    decoder = in_8_bits(
        decoder, list(_decoder_inputs(weights, images[:DECODED_IMAGES])), patterns=PRECISE_DECODER
    )
    write_parts(out, {"encoder": _stored(openvino, encoder), "decoder": _stored(openvino, decoder)}, network)


def _decoder_inputs(weights: Weights, images: Sequence[Rgb]) -> Iterator[list[Any]]:
    """What the decoder is given when the middle of each image is looked for in it and in the next one."""
    predictor = Predictor(weights, device="cpu", engine="torch")
    given: list[list[Any]] = []

    def keep(_: nn.Module, values: tuple[Any, ...]) -> None:
        features, maps, tokens, sets = values
        tensors = (features.match, features.context, features.fine8, features.fine4, maps, tokens, sets)
        given.append([tensor.float().numpy() for tensor in tensors])

    hook = predictor.network.ram.register_forward_pre_hook(keep)
    for image, other in pairwise([*images, images[0]]):
        height, width = image.shape[:2]
        middle = Box(width / 4, height / 4, 3 * width / 4, 3 * height / 4)
        query = predictor.prepare(Query(image, middle))
        canvases = [_scaled(one, predictor.config.input_size) for one in (image, other)]
        predictor.match(query, predictor.encode(canvases), predictor.start(query, runs=len(canvases)))
        yield given.pop()
    hook.remove()


def _as_input(image: Rgb, size: int) -> Any:
    return np.ascontiguousarray(_scaled(image, size).transpose(2, 0, 1)[None], np.float32) / 255


def _scaled(image: Rgb, size: int) -> Rgb:
    way = cv2.INTER_AREA if size < len(image) else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, (size, size), interpolation=way), np.uint8)


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
    # Traced for square frames; `FrameGraph` gives it the sides of those that come.
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
