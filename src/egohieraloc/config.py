"""Settings: frozen, one class per part, nested. A part receives its own settings only.

Each field names the paper's symbol where it has one. Presets are Python expressions (`PRESETS`); how settings
are read, changed and checked is in `settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from egohieraloc.errors import ConfigError


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
    image_size: int = 448  # PVT v1: side of the images its position embeddings are laid out for


@dataclass(frozen=True, kw_only=True)
class NeckConfig:
    """What is kept of a frame: compact maps at four strides, made without knowing any query.

    A sample of 448 pixels takes 784 bytes on disk for each channel of `match`, 196 of `context`, 1,568 of
    `fine8` and 6,272 of `fine4`; the presets stay under 150 kB.
    """

    width: int = 64  # inner width of the top-down path
    match: int = 96  # D_xi, channels of the descriptors at stride 16
    context: int = 64  # channels at stride 32
    fine8: int = 16  # channels at stride 8
    fine4: int = 4  # channels at stride 4
    signed: bool = True  # False ends CBN_2 with a ReLU, as the paper does: cosines lose half their range


@dataclass(frozen=True, kw_only=True)
class DpmConfig:
    """Discriminative Parsing Module."""

    top_k: int = 3  # K_DPM; the paper's Top-K ablation is qam.candidates
    temperature: float = 0.1  # of the softmax that gives Z; the paper's is 1, which confines Z to [.12, .88]
    foreground: bool = True  # ablation: without O
    likelihood: bool = True  # ablation: without Z

    def __post_init__(self) -> None:
        if self.top_k < 1 or self.temperature <= 0:
            raise ValueError(
                f"top_k must be at least 1 and temperature above 0, got {self.top_k}, {self.temperature}"
            )


@dataclass(frozen=True, kw_only=True)
class DcfConfig:
    """Discriminative correlation filter."""

    ridge: float = 1e-2  # lambda, as a share of the mean feature energy
    sigma: float = 0.1  # of the Gaussian target, as a share of the patch side

    def __post_init__(self) -> None:
        if min(self.ridge, self.sigma) <= 0:
            raise ValueError(f"ridge and sigma must be above 0, got {self.ridge}, {self.sigma}")


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
    confident: bool = False  # the location map keeps the response's height; else each is scaled to [0, 1]
    fallback_gain: float = 1.5  # beta_QAM, at fallback level 2

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise ValueError(f"candidates must be at least 1, got {self.candidates}")
        if not (0 <= self.decay <= 1 and 0 <= self.smoothing <= 1):
            raise ValueError(
                f"decay and smoothing must lie between 0 and 1, got {self.decay}, {self.smoothing}"
            )


@dataclass(frozen=True, kw_only=True)
class RamConfig:
    """Regional Adaptation Module: the decoder."""

    width: int = 96  # channels at stride 16; half of it at 8, a quarter at 4
    attention_layers: int = 2  # cross-attention of frame cells on query tokens; 0 in the paper
    heads: int = 4
    feedback: bool = True  # ablation: without the other stages' features
    propagation: bool = False  # show the decoder what was found in the frame before, moved by the drift
    score: Literal["cell", "presence", "mask"] = "cell"  # of a frame: best cell, presence head, vartheta


@dataclass(frozen=True, kw_only=True)
class QueryMaskConfig:
    """Foreground of the query and the three-level fallback (appendix)."""

    trusted: float = 0.6  # tau_SAM: from here on the mask is used as it is (level 0)
    doubtful: float = 0.4  # from here on softly (level 1), below not at all (level 2)
    # The built-in segmenter's quality is sigmoid(slope * its own logit + steadiness * that of its mask's
    # steadiness + offset): the IoU to be expected, fitted by `egohieraloc calibrate`. SAM's is taken as is.
    slope: float = 1.0
    steadiness: float = 0.0
    offset: float = 0.0
    fallback: Literal["full", "none", "level1", "level2"] = "full"  # ablation


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Everything that shapes the network."""

    input_size: int = 448  # side of a square frame's canvas; of others see video/canvas.py
    square_canvas: bool = False  # every frame's canvas is square, with black borders, as in the paper
    query_sizes: tuple[int, ...] = (224, 96)  # the query window is seen at these sides, largest first
    query_window: float = 1.6  # side of the query window, in longer sides of the query's box
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    neck: NeckConfig = field(default_factory=NeckConfig)
    query_mask: QueryMaskConfig = field(default_factory=QueryMaskConfig)
    dpm: DpmConfig = field(default_factory=DpmConfig)
    dcf: DcfConfig = field(default_factory=DcfConfig)
    qam: QamConfig = field(default_factory=QamConfig)
    ram: RamConfig = field(default_factory=RamConfig)

    def __post_init__(self) -> None:
        sides = (self.input_size, *self.query_sizes)
        if not self.query_sizes or any(side < 32 or side % 32 for side in sides):
            raise ValueError(f"input_size and query_sizes must be multiples of 32, got {sides}")
        if list(self.query_sizes) != sorted(self.query_sizes, reverse=True):
            raise ValueError(f"query_sizes must begin with the largest, got {self.query_sizes}")
        if not self.query_window > 0:
            raise ValueError(f"query_window must be above 0, got {self.query_window}")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How much of a video is looked at closely."""

    fps: float | None = 5.0  # samples a second; None takes every frame
    stride: int = 1  # k-frame skipping: decode every k-th sample, interpolate the boxes between
    shortlist: int = 128  # stretches of 16 samples looked at; in longer videos the memory chooses; 0: all
    coarse_margin: float = 5.0  # logits below the best coarse score that are still decoded
    coarse_neighbours: int = 3  # samples beside them that are decoded too
    max_decoded: int = 200  # of these at most so many, and their neighbours; 0: without limit, and no probes
    probe: int = 6  # promising samples that one probe stands for: decoded are those that may decide; 0: all
    second_look: bool = True  # see the best appearances again, from close by, where the video can be read
    look_back: bool = True  # without a second look: search for the best appearances in the query's image
    look_appearances: int = 5  # so many of them ...
    look_frames: int = 1  # ... a second look in so many frames each ...
    look_shares: tuple[float, ...] = (3.0, 5.0)  # ... in squares so many times as wide as what was found
    propagate_above: float | None = None  # samples that score so high pass their mask on to the next

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"stride must be at least 1, got {self.stride}")
        amounts = (self.coarse_margin, self.coarse_neighbours, self.max_decoded, self.probe, self.shortlist)
        if not all(amount >= 0 for amount in amounts):
            raise ValueError(
                "coarse_margin, coarse_neighbours, max_decoded, probe and shortlist must not be negative, "
                f"got {', '.join(map(str, amounts))}"
            )
        if min(self.look_appearances, self.look_frames, *self.look_shares, 1) < 1 or not self.look_shares:
            raise ValueError(
                "look_appearances, look_frames and look_shares must be at least 1, got "
                f"{self.look_appearances}, {self.look_frames}, {self.look_shares}"
            )


@dataclass(frozen=True, kw_only=True)
class TrackerConfig:
    """Following an object from a box (appendix "VQL-to-VOT Transfer")."""

    template_update: bool = True  # search also for the object as it was last seen with a high score
    update_every: int = 5  # samples
    update_score: float = 0.7  # only frames above it become templates
    min_side_px: float = 8.0  # and only boxes of some size
    propagate_above: float | None = None  # frames that score so high pass their mask on to the next

    def __post_init__(self) -> None:
        if self.update_every < 1:
            raise ValueError(f"update_every must be at least 1, got {self.update_every}")


@dataclass(frozen=True, kw_only=True)
class TemporalConfig:
    """From the scores of all samples to the last appearance."""

    rule: Literal["extend", "paper"] = "extend"
    median: int = 3  # samples; window of the median filter
    paper_share: float = 0.8  # `paper`: an appearance stays above this share of the maximum
    peak_share: float = 0.9  # `extend`: an appearance has a peak above this share of the maximum ...
    extend_share: float = 0.1  # ... and reaches as far as the curve stays above this one
    weighed_share: float = 0.5  # of the highest confidence: where looks are weighed, the last above it wins
    bridge: int = 2  # samples; gaps up to this long do not end an appearance
    complete: float = 0.7  # `extend`: neighbours that score this by query and best sample together join it
    complete_reach: int = 150  # samples beyond either end of what the query found that are looked at for it
    max_alternatives: int = 3

    @property
    def literal(self) -> bool:
        """The paper's rule alone: one look, no threshold of confidence, an appearance as the curve has it."""
        return self.rule == "paper"

    def __post_init__(self) -> None:
        if self.median < 1 or self.median % 2 == 0:
            raise ValueError(f"median must be an odd number of samples, got {self.median}")
        if min(self.bridge, self.max_alternatives, self.complete_reach) < 0:
            raise ValueError(
                "bridge, max_alternatives and complete_reach must not be negative: "
                f"{self.bridge}, {self.max_alternatives}, {self.complete_reach}"
            )
        if not self.complete > 0:
            raise ValueError(f"complete must be above 0 (above 1 leaves it out), got {self.complete}")
        alone = 0 < self.paper_share <= 1 and 0 < self.weighed_share <= 1
        if not (alone and 0 < self.extend_share <= self.peak_share <= 1):
            raise ValueError(
                "shares must be above 0 and at most 1, extend_share at most peak_share, got "
                f"paper {self.paper_share}, peak {self.peak_share}, extend {self.extend_share}, "
                f"weighed {self.weighed_share}"
            )


CameraModel = Literal[
    "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV",
    "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "OPENCV_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SfmConfig:
    """Poses from the video itself (appendix "Camera Pose Estimation and Alignment")."""

    camera_model: CameraModel = "SIMPLE_RADIAL"  # paper: SIMPLE_RADIAL_FISHEYE, for wide lenses
    focal_factor: float = 0.9  # first guess of the focal length, in image widths, where none is known
    calibration_frames: int = 25  # sharp neighbouring frames that give a better one (paper: at most 25)
    mapper: Literal["incremental", "global"] = "incremental"
    max_image_side: int = 1024  # features are found in images no larger than this
    max_features: int = 1500  # SIFT features a frame
    max_frames: int = 3000  # frames that get a pose, evenly spread over the video
    max_map_frames: int = 450  # frames the map is built from, the sharpest; its points give others a pose
    overlap: int = 15  # sequential matching: reaches this many frames ahead (paper: 15)
    loop_stride: int = 2  # loop detection asks for every n-th frame of the map
    loop_neighbours: int = 10  # and matches it with this many frames that look alike
    attach_neighbours: int = 4  # map frames on each side that a frame is matched with where points are lost
    adjust_growth: float = 1.3  # how far the map grows between two adjustments of all of it
    adjust_rounds: int = 3  # rounds of such an adjustment, each without the points that fit badly, at most
    adjust_thinned: bool = True  # whether it leaves out points where others say the same
    min_inliers: int = 30  # 2D-3D matches a frame must keep to have a pose
    max_reprojection_px: float = 4.0  # median over a frame's points; a pose above it is dropped
    anchor_error_m: float = 0.5  # how far images of known position may be off (paper: 30)
    max_time_s: float = 3600.0  # after that the answer is NotLocalized; what was computed is kept
    num_threads: int = -1  # all cores
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class DepthConfig:
    """Fit of a network's relative inverse depth to the points of the reconstruction."""

    min_points: int = 20  # visible points a frame needs for a fit of its own
    tolerance: float = 0.05  # relative depth error up to which a point supports a fit
    min_inlier_share: float = 0.3  # of the points; a fit below it is rejected
    neighbour_s: float = 1.0  # a frame without a fit takes that of the nearest frame within this time


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """Many views, one point: the Geometric-Semantic Joint Confidence (section 3.6)."""

    literal: bool = False  # the paper's form to the letter; False: with the corrections of docs/place.md
    semantic_average: bool = True  # P_ave
    semantic_threshold: bool = True  # P_thr
    semantic_maximum: bool = True  # P_max
    depth: bool = True  # varpi^depth
    reprojection: bool = True  # varpi^reproj
    baseline: bool = True  # varpi^tri
    triangulate: bool = True  # use the rays themselves beside the back-projected points
    mask_threshold: float = 0.3  # a pixel belongs to SM above it; at wp, P_ave and P_thr would be one number
    probability_threshold: float = 0.5  # wp
    depth_variance: float | None = None  # sigma_0^2; None: the median over the candidate views
    reprojection_px: float = 10.0  # epsilon_r = max(10, 0.02 * diagonal of the box)
    reprojection_share: float = 0.02
    min_baseline: float = 0.01  # lower clamp of varpi^tri
    min_weight: float = 1e-6  # epsilon_w
    center_error_share: float = 0.08  # error of a box centre, as a share of the box diagonal
    depth_error_share: float = 0.05  # error of a depth beyond its spread in the mask, as a share of it
    thickness_share: float = 0.2  # how far the centre lies behind the visible side, in sizes of the object
    thickness_error_share: float = 0.3  # (a flat object 0, a ball 1/3, a cube 1/2)


@dataclass(frozen=True, kw_only=True)
class PlaceConfig:
    """The 3D answer."""

    fusion: FusionConfig = field(default_factory=FusionConfig)
    depth: DepthConfig = field(default_factory=DepthConfig)
    max_pose_gap_s: float = 2.0  # a frame without pose takes the nearest posed one within this time; 0: none
    min_region_points: int = 3  # points of the reconstruction a view needs for a depth without network
    region_margin: float = 0.0  # how far around the box such points may lie, in box sides


PRESETS: dict[str, NetworkConfig] = {
    # For tests: small enough to overfit a clip in seconds.
    "tiny": NetworkConfig(
        input_size=224,
        query_sizes=(128, 64),
        backbone=BackboneConfig(name="efficientnet_lite_tiny"),
        neck=NeckConfig(width=32, match=48, context=32, fine8=8, fine4=4),
        ram=RamConfig(width=48, attention_layers=1),
    ),
    # The default: ships with the package, made for a laptop.
    "mini": NetworkConfig(),
    "base": NetworkConfig(
        backbone=BackboneConfig(name="pvt_v2_b1"),
        neck=NeckConfig(width=128, context=96),
        ram=RamConfig(width=160, attention_layers=3),
    ),
    # The paper's network: PVT-L, no cross-attention.
    "large": NetworkConfig(
        backbone=BackboneConfig(name="pvt_v1_large"),
        neck=NeckConfig(width=256, context=96, signed=False),
        ram=RamConfig(width=256, attention_layers=0),
    ),
}


def preset(name: str) -> NetworkConfig:
    """The network settings of that name."""
    if name not in PRESETS:
        raise ConfigError(f"No preset is called '{name}'. There are: {', '.join(PRESETS)}.")
    return PRESETS[name]
