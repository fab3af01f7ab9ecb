"""The paper's mask provider: a Segment Anything model from the `hub` extra, by name or folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import torch
from torch import Tensor

from egohieraloc.errors import MissingExtraError, WeightsError
from egohieraloc.query import Query
from egohieraloc.types import Mask, Rgb

if TYPE_CHECKING:
    from transformers import BatchEncoding

MARGIN = 0.25  # of the longer side: what a bare crop is padded with, SAM needs to see a background


class SamProvider:
    """Prompts SAM with the query's box; its predicted IoU is s_SAM."""

    def __init__(self, source: str | Path = "facebook/sam-vit-base", *, device: str | None = None) -> None:
        try:
            from transformers import SamModel, SamProcessor
        except ImportError as error:
            raise MissingExtraError("transformers", "hub") from error
        try:
            self._processor = SamProcessor.from_pretrained(str(source))
            self._model = SamModel.from_pretrained(str(source)).eval()
            self._model.to(torch.device(device or "cpu"))
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"No SAM model could be loaded from '{source}' ({error}). Give a hub name or a folder."
            ) from error
        self.name = str(source)
        self._seen: tuple[Rgb, int, BatchEncoding, Tensor] | None = None  # the last image and its encoding

    @torch.inference_mode()
    def __call__(self, query: Query) -> tuple[Mask, float]:
        """The best of SAM's three masks on the query image (H, W), and how good it says it is."""
        pad = 0 if query.has_surroundings else round(MARGIN * max(query.image.shape[:2]))
        inputs, embedding = self._look(query.image, pad)
        box = [float(v + pad) for v in query.box.xyxy]
        height, width = inputs["original_sizes"][0].tolist()
        scale = inputs["reshaped_input_sizes"][0].flip(0).repeat(2) / torch.tensor([width, height] * 2)
        boxes = (torch.tensor(box) * scale)[None, None].float().to(self._model.device)
        output = self._model(image_embeddings=embedding, input_boxes=boxes)
        masks = self._processor.image_processor.post_process_masks(
            output.pred_masks.cpu(), inputs["original_sizes"].cpu(), inputs["reshaped_input_sizes"].cpu()
        )[0][0]
        scores = output.iou_scores[0, 0].float().cpu()
        best = int(scores.argmax())
        height, width = query.image.shape[:2]
        mask = np.asarray(masks[best], bool)[pad : pad + height, pad : pad + width]
        return mask, float(scores[best].clamp(0, 1))

    def _look(self, image: Rgb, pad: int) -> tuple[BatchEncoding, Tensor]:
        """The image with a border as SAM takes it, and its encoding: one for all boxes of an image."""
        if self._seen is None or self._seen[0] is not image or self._seen[1] != pad:
            padded = cv2.copyMakeBorder(image, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
            inputs = self._processor(padded, return_tensors="pt")
            embedding = self._model.get_image_embeddings(inputs["pixel_values"].to(self._model.device))
            self._seen = image, pad, inputs, embedding
        return self._seen[2:]
