"""A depth network from the `hub` extra: any depth model of transformers, by name or by folder.

The paper uses Depth Anything, whose values are inverse depth up to a scale and a shift; they leave as
`DepthUnit.RELATIVE`, so that nobody can back-project them before they are fitted to a reconstruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from egohieraloc.errors import MissingExtraError, WeightsError
from egohieraloc.types import DepthMap, DepthUnit, Frame

DEFAULT_MODEL = "depth-anything/Depth-Anything-V2-Small-hf"


class DepthNetwork:
    """Frames in, depth maps out: metres where the model's config says "metric", else relative."""

    def __init__(self, network: Any, processor: Any, *, device: str = "cpu") -> None:
        self._network = network.to(device).eval()
        self._processor = processor
        self._device = device
        metric = getattr(network.config, "depth_estimation_type", "relative") == "metric"
        self._unit = DepthUnit.METRIC if metric else DepthUnit.RELATIVE

    @classmethod
    def from_pretrained(cls, name_or_folder: str = DEFAULT_MODEL, *, device: str = "cpu") -> DepthNetwork:
        """Load a model by its hub name (downloaded once) or from a folder."""
        try:
            from transformers import AutoImageProcessor, AutoModelForDepthEstimation
        except ImportError as error:
            raise MissingExtraError("transformers", "hub") from error
        try:
            processor = AutoImageProcessor.from_pretrained(name_or_folder)
            network = AutoModelForDepthEstimation.from_pretrained(name_or_folder)
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"Cannot load a depth model from {name_or_folder!r}: {error}. Give the name of a depth model "
                "on the Hugging Face hub, or a folder written by its save_pretrained."
            ) from error
        return cls(network, processor, device=device)

    def predict(self, frames: Iterable[Frame]) -> Iterator[tuple[int, DepthMap]]:
        """The map of each frame, with its number, at the network's own resolution."""
        for frame in frames:
            yield frame.index, self._one(frame)

    @torch.inference_mode()
    def _one(self, frame: Frame) -> DepthMap:
        inputs = self._processor(images=frame.rgb, return_tensors="pt").to(self._device)
        values = self._network(**inputs).predicted_depth[0].float().cpu().numpy()
        return DepthMap(values.astype(np.float32), self._unit)
