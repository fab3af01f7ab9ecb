"""Settings: frozen, one class per part, nested. A part receives its own settings only.

Each field names the paper's symbol. Presets are Python expressions; `override` applies one TOML file or
`section.key=value` words, and an unknown key is an error that names the nearest one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The shared feature network with four stages at strides 4, 8, 16 and 32."""

    name: str = (
        "efficientnet_lite1"  # or efficientnet_lite0/2, resnet101, pvt_v1_{tiny..large}, pvt_v2_b{0..5}
    )
    collapse: bool = True  # PVT: DCM, keys and values at reduced resolution (varphi_i)
    feed_forward: bool = True  # PVT: the FFN of each layer
    position: bool = True  # PVT: position embeddings (v1) or position-giving convolutions (v2)
    stages: int = 4  # 3 leaves the last stage out
