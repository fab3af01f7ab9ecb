"""The paper's mask provider: a Segment Anything model from the `hub` extra, by name or folder."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch

from egohieraloc.errors import MissingExtraError, WeightsError
from egohieraloc.query import Query
from egohieraloc.types import Mask

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

    @torch.inference_mode()
    def __call__(self, query: Query) -> tuple[Mask, float]:
        """The best of SAM's three masks on the query image (H, W), and how good it says it is."""
        pad = 0 if query.has_surroundings else round(MARGIN * max(query.image.shape[:2]))
        image = cv2.copyMakeBorder(query.image, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
        box = [float(v + pad) for v in query.box.xyxy]
        inputs = self._processor(image, input_boxes=[[box]], return_tensors="pt").to(self._model.device)
        output = self._model(**inputs)
        masks = self._processor.image_processor.post_process_masks(
            output.pred_masks.cpu(), inputs["original_sizes"].cpu(), inputs["reshaped_input_sizes"].cpu()
        )[0][0]
        scores = output.iou_scores[0, 0].float().cpu()
        best = int(scores.argmax())
        height, width = query.image.shape[:2]
        mask = np.asarray(masks[best], bool)[pad : pad + height, pad : pad + width]
        return mask, float(scores[best].clamp(0, 1))
