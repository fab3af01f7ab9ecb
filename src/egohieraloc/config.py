"""Settings: frozen, one class per part, nested. A part receives its own settings only.

Each field names the paper's symbol. Presets are Python expressions; `override` applies one TOML file or
`section.key=value` words, and an unknown key is an error that names the nearest one.
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


CameraModel = Literal["PINHOLE", "SIMPLE_RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE"]


@dataclass(frozen=True, kw_only=True)
class SfmConfig:
    """Poses from the video itself (appendix "Camera Pose Estimation and Alignment")."""

    camera_model: CameraModel = "SIMPLE_RADIAL"  # paper: SIMPLE_RADIAL_FISHEYE, for wide lenses
    focal_factor: float = 0.9  # first guess of the focal length, in picture widths, where none is known
    calibration_frames: int = 0  # sharp neighbouring frames that give a better one (paper: at most 25)
    mapper: Literal["incremental", "global"] = "incremental"
    max_image_side: int = 1024  # features are found in pictures no larger than this
    max_features: int = 2048  # SIFT features a frame
    max_map_frames: int = 450  # frames the map is built from, the sharpest; others are registered into it
    overlap: int = 15  # sequential matching: reaches this many frames ahead (paper: 15)
    loop_stride: int = 2  # loop detection asks for every n-th frame of the map
    loop_neighbours: int = 10  # and matches it with this many frames that look alike
    min_inliers: int = 30  # 2D-3D matches a frame must keep to have a pose
    max_reprojection_px: float = 4.0  # of a map that is believed (median over a frame's points)
    anchor_error_m: float = 0.5  # how far pictures of known position may be off (paper: 30)
    max_time_s: float = 3600.0  # after that the answer is NotLocalized; what was computed is kept
    num_threads: int = -1  # all cores
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class DepthConfig:
    """Fit of a network's relative inverse depth to the points of the reconstruction."""

    min_points: int = 20  # visible points a frame needs for a fit of its own
    tolerance: float = 0.05  # relative depth error up to which a point supports a fit
    min_inlier_share: float = 0.3  # of the points; below it the fit is not believed
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
    probability_threshold: float = 0.5  # wp
    depth_variance: float | None = None  # sigma_0^2; None: the median over the candidate views
    reprojection_px: float = 10.0  # epsilon_r = max(10, 0.02 * diagonal of the box)
    reprojection_share: float = 0.02
    min_baseline: float = 0.01  # lower clamp of varpi^tri
    min_weight: float = 1e-6  # epsilon_w
    center_error_share: float = 0.08  # error of a box centre, as a share of the box diagonal
    depth_error_share: float = 0.05  # error of a depth beyond its spread in the mask, as a share of it
    thickness_share: float = 0.2  # how far the centre lies behind the visible side, in sizes of the thing
    thickness_error_share: float = 0.3  # (a flat thing 0, a ball 1/3, a cube 1/2)


@dataclass(frozen=True, kw_only=True)
class PlaceConfig:
    """The 3D answer."""

    fusion: FusionConfig = field(default_factory=FusionConfig)
    max_pose_gap_s: float = 2.0  # a frame without pose takes the nearest posed one within this time
    min_region_points: int = 3  # points of the reconstruction a view needs for a depth without network
    region_margin: float = 0.0  # how far around the box such points may lie, in box sides
