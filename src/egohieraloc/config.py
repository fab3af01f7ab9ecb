"""Settings: frozen, one class per part, nested. A part receives its own settings only.

Each field names the paper's symbol where it has one. Presets are Python expressions (`PRESETS`); `override`
applies words like `qam.decay=0.4`, and an unknown key is an error that names the nearest one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


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


@dataclass(frozen=True, kw_only=True)
class NeckConfig:
    """What is kept of a frame: compact maps at four strides, made without knowing any query."""

    width: int = 64  # inner width of the top-down path
    match: int = 96  # D_xi, channels of the descriptors at stride 16
    context: int = 64  # channels at stride 32
    fine8: int = 16  # channels at stride 8
    fine4: int = 4  # channels at stride 4
    signed: bool = True  # False ends CBN_2 with a ReLU, as the paper does: cosines lose half their range


@dataclass(frozen=True, kw_only=True)
class DpmConfig:
    """Discriminative Parsing Module."""

    top_k: int = 3  # K_DPM
    temperature: float = 0.1  # of the softmax that gives Z; the paper's is 1, which confines Z to [.12, .88]
    foreground: bool = True  # ablation: without O
    likelihood: bool = True  # ablation: without Z


@dataclass(frozen=True, kw_only=True)
class DcfConfig:
    """Discriminative correlation filter."""

    ridge: float = 1e-2  # lambda, as a share of the mean feature energy
    sigma: float = 0.1  # of the Gaussian target, as a share of the patch side


@dataclass(frozen=True, kw_only=True)
class QamConfig:
    """Query-aware Module: candidates in the filter's response, followed over time by an ellipse."""

    enabled: bool = True  # ablation: without QAM
    mode: Literal["fixed", "paper"] = "fixed"  # `paper` is the literal recursion, which lags
    sensitivity: float = 1.0  # alpha_QAM
    candidates: int = 5  # K_QAM
    multi_peak: bool = True  # ablation: off takes the highest response
    area_power: float = 0.5  # candidates are ranked by R * A**area_power; the paper's is 1
    decay: float = 0.4  # gamma_QAM
    smoothing: float = 0.7  # eta_QAM
    ellipse: bool = True  # ablation: without the ellipse
    ellipse_weight: float = 0.5  # lambda_e
    lost_below: float = 0.25  # a peak response under this forgets the state
    fallback_gain: float = 1.5  # beta_QAM, at fallback level 2


@dataclass(frozen=True, kw_only=True)
class RamConfig:
    """Regional Adaptation Module: the decoder."""

    width: int = 96  # channels at stride 16; half of it at 8, a quarter at 4
    attention_layers: int = 2  # cross-attention of frame cells on query tokens; 0 in the paper
    heads: int = 4
    feedback: bool = True  # ablation: without the other stages' features


@dataclass(frozen=True, kw_only=True)
class QueryMaskConfig:
    """Foreground of the query and the three-level fallback (appendix)."""

    trusted: float = 0.6  # tau_SAM: from here on the mask is used as it is (level 0)
    doubtful: float = 0.4  # from here on softly (level 1), below not at all (level 2)
    fallback: Literal["full", "none", "level1", "level2"] = "full"  # ablation


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Everything that shapes the network."""

    input_size: int = 448  # side of the letterboxed frame
    query_sizes: tuple[int, ...] = (224, 128, 64)  # the query window is seen at these sides, largest first
    query_window: float = 1.6  # side of the query window, in longer sides of the query's box
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    neck: NeckConfig = field(default_factory=NeckConfig)
    query_mask: QueryMaskConfig = field(default_factory=QueryMaskConfig)
    dpm: DpmConfig = field(default_factory=DpmConfig)
    dcf: DcfConfig = field(default_factory=DcfConfig)
    qam: QamConfig = field(default_factory=QamConfig)
    ram: RamConfig = field(default_factory=RamConfig)
