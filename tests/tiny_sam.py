"""A random SAM checkpoint small enough for tests."""

from __future__ import annotations

from pathlib import Path


def save_tiny_sam(folder: Path) -> None:
    import transformers

    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 64,
            "patch_size": 16, "output_channels": 16, "window_size": 2, "global_attn_indexes": [0],
            "mlp_dim": 16, "num_pos_feats": 8,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 16},
        mask_decoder_config={
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 16,
            "iou_head_hidden_dim": 16,
        },
    )  # fmt: skip
    transformers.SamModel(config).save_pretrained(folder)
    image_processor = transformers.SamImageProcessor(
        size={"longest_edge": 64}, pad_size={"height": 64, "width": 64},
        mask_size={"longest_edge": 16}, mask_pad_size={"height": 16, "width": 16},
    )  # fmt: skip
    transformers.SamProcessor(image_processor).save_pretrained(folder)
