"""Settings of the composer: shares are probabilities, pairs are ranges, px are for a 448 x 448 canvas.

On a canvas of another shape they are for a longer side of 448, but for `low_resolution_px` and
`min_visible_px`, which are pixels of any canvas.
"""

from __future__ import annotations

from dataclasses import dataclass

from egohieraloc.training.composer.render import LATTICE_PX

Range = tuple[float, float]
STANDARD_PX = 448
LARGE_WINDOW, SMALL_WINDOW = 3 / 4, 5 / 14  # share of the canvas


@dataclass(frozen=True, kw_only=True)
class ComposerConfig:
    """How composed clips look."""

    query_px: int = 224  # S
    frame_px: int = 448  # F, a multiple of 32
    borders: bool = True  # black up to the square; else a training batch has one aspect, and that its canvas
    clip_frames: int = 2  # T

    solids: int = 0  # objects made in 3D beside the scanned ones, with as many views

    # target
    sprite_share: float = 0.45  # the target is a scanned object, otherwise an object from a photo
    in_place_share: float = 0.55  # a photo object stays in its photo, otherwise it is cut out and pasted
    absent_share: float = 0.35  # the target is nowhere in the clip
    look_alike_share: float = 0.6  # an absent target is replaced by a look-alike, otherwise just missing
    near_view_share: float = 0.7  # a sprite is shown from a view near the query's
    near_sides: float = 0.375  # ... one of this share of all views, the query's own included
    far_sides: float = 0.6  # otherwise one of this share of them, nearest first
    view_change_share: float = 0.3  # a sprite turns to a neighbouring view from one frame to the next
    leave_share: float = 0.15  # clips in which the camera looks away from the target
    leave_frame_share: float = 0.4  # ... and the frames in which it does

    # position and size of the target
    size_px: Range = (22.0, 240.0)  # longer side, log-uniform ...
    usual_size_px: Range = (30.0, 150.0)  # ... in most clips from this range
    usual_size_share: float = 0.75
    edge_share: float = 0.15  # the target is near the border, partly outside
    rotation_deg: float = 25.0  # in most clips, twice the standard deviation
    any_rotation_share: float = 0.08  # rotated by any angle
    aspect_log: float = 0.12  # standard deviation of the log of the side ratio
    shear: float = 0.1  # standard deviation
    perspective: float = 0.08  # standard deviation of the projective terms over the object's half side
    moving_share: float = 0.35  # the target moves in the scene
    motion: float = 0.15  # ... standard deviation, in half canvases

    # background: nine photos side by side
    photo_scale: Range = (0.75, 2.2)  # canvas pixels per photo pixel
    in_place_scale: Range = (1.0, 3.0)  # below 1 the mirrored borders could show the target twice
    one_photo_share: float = 0.35  # the frame shows about one photo only
    one_photo_scale: Range = (1.6, 2.6)
    photo_aspect_log: float = 0.15

    # distractors
    distractors: int = 6  # small objects, each shown with probability `distractor_share`
    distractor_share: float = 0.75
    similar_share: float = 0.5  # share of them that are look-alikes of the target
    beside_share: float = 0.5  # placed next to the target
    rival_share: float = 0.4  # one more look-alike next to the target, of about its size
    neighbours: int = 16  # look-alikes kept for each instance
    twin_similarity: float = 0.985  # photo objects above it may be the same product and are no look-alikes

    # in front of the target
    occluder_share: float = 0.25  # another object
    shape_share: float = 0.15  # a rectangle or an ellipse
    hand_share: float = 0.4  # a hand with its arm
    second_hand_share: float = 0.15
    hand_on_target_share: float = 0.5
    max_covered: float = 0.6  # share of the target; what would cover more is left out
    min_visible_px: float = 56.0  # visible area below which the target counts as absent
    min_visible_share: float = 0.1  # ... or visible share of its whole area

    # camera
    aspects: tuple[tuple[float, float], ...] = ((16 / 9, 0.3), (4 / 3, 0.3), (1.0, 0.3), (3 / 4, 0.1))
    fisheye_share: float = 0.4
    fisheye: Range = (0.08, 0.5)  # radial coefficient: undistorted = r (1 + k r^2)
    circle_share: float = 0.2  # round image on black, on square canvases; always with a fisheye lens
    circle: Range = (0.92, 1.12)  # its radius, in half canvases
    pan: Range = (0.01, 0.6)  # travel over the clip, half canvases, log-uniform
    zoom_log: float = 0.1  # standard deviations over the clip
    roll_deg: float = 6.0
    tilt: float = 0.04  # projective terms
    shake: float = 0.015
    shadow: Range = (0.0, 0.6)  # darkness of contact shadows

    # light and sensor of the frames
    layer_gain_log: float = 0.15  # light on each pasted object
    exposure_log: float = 0.18
    brightest_log: float = 0.15  # upper limit of the gain, so that nothing washes out
    dark_share: float = 0.15
    dark: Range = (0.35, 0.7)
    tint_log: float = 0.04
    gamma_log: float = 0.18
    contrast_log: float = 0.1
    saturation: Range = (0.75, 1.2)
    flicker_log: float = 0.05  # exposure from frame to frame
    vignette: Range = (0.0, 0.35)
    motion_blur_share: float = 0.45
    motion_blur_px: Range = (2.0, 34.0)  # length, log-uniform
    swirl: float = 0.02  # rotation during the exposure, radians, standard deviation
    defocus_share: float = 0.35
    defocus_px: Range = (0.5, 2.2)  # sigma
    noise: Range = (0.0, 0.05)
    low_resolution_px: tuple[int, ...] = (192, 256, 352)  # of the whole canvas
    low_resolution_share: float = 0.1  # of the frames, for each resolution
    compression_share: float = 0.45
    compression: Range = (0.3, 3.0)  # scale of the quantisation table, log-uniform

    # query
    crop_only_share: float = 0.35  # black outside the box
    box_jitter: float = 0.05  # standard deviation of each side, in box sides
    loose_box_share: float = 0.25  # boxes drawn larger than the object
    loose_box: Range = (0.0, 0.15)
    query_rotation_deg: float = 8.0
    query_hand_share: float = 0.15
    query_blur_share: float = 0.3
    query_resolution_px: tuple[int, ...] = (48, 64, 88, 120, 160)  # of the query window
    query_resolution_share: float = 0.13  # for each resolution
    query_compression_share: float = 0.5
    query_compression: Range = (0.2, 1.5)

    @property
    def unit(self) -> float:
        """Pixels of this canvas per pixel of the standard one."""
        return self.frame_px / STANDARD_PX

    @property
    def large_window_px(self) -> int:
        """Side of the part of the canvas that a target or a rival is drawn in."""
        return LATTICE_PX * round(self.frame_px * LARGE_WINDOW / LATTICE_PX)

    @property
    def small_window_px(self) -> int:
        """Side of the part of the canvas that a small distractor is drawn in."""
        return LATTICE_PX * round(self.frame_px * SMALL_WINDOW / LATTICE_PX)

    @property
    def similar(self) -> int:
        """How many of the distractors are look-alikes of the target."""
        return round(self.distractors * self.similar_share)
