"""Settings of the composer. Shares are probabilities, pairs are ranges, px belong to a 448 x 448 canvas."""

from __future__ import annotations

from dataclasses import dataclass

Range = tuple[float, float]
STANDARD_PX = 448


@dataclass(frozen=True, kw_only=True)
class ComposerConfig:
    """How composed clips look."""

    query_px: int = 224  # S
    frame_px: int = 448  # F, a multiple of 32
    clip_frames: int = 2  # T

    solids: int = 0  # objects made in 3D beside the scanned ones, seen from as many sides

    # what is asked for
    sprite_share: float = 0.45  # target is a scanned object; otherwise an object of a photo
    in_place_share: float = 0.55  # a photo object stays in its photo, which is warped as a whole
    absent_share: float = 0.35  # the target is nowhere in the clip
    look_alike_share: float = 0.6  # an absent target is replaced by a look-alike; otherwise just missing
    near_view_share: float = 0.7  # a sprite is shown from one of the sides nearest to the query's
    near_sides: float = 0.375  # ... this share of all sides, the query's own included
    far_sides: float = 0.6  # otherwise from this share of them, nearest first
    view_change_share: float = 0.3  # a sprite turns to a neighbouring side from one frame to the next
    leave_share: float = 0.15  # the camera looks away in some frames of the clip
    leave_frame_share: float = 0.4  # ... in each of them

    # place and size of the target
    size_px: Range = (22.0, 240.0)  # longer side, log-uniform ...
    usual_size_px: Range = (30.0, 150.0)  # ... mostly within this
    usual_size_share: float = 0.75
    edge_share: float = 0.15  # the target lies near the border, partly outside
    rotation_deg: float = 25.0  # most clips, either way
    any_rotation_share: float = 0.08  # any angle
    aspect_log: float = 0.12  # standard deviation of the log of the side ratio
    shear: float = 0.1  # standard deviation
    perspective: float = 0.08  # standard deviation of the projective terms over the object's half side
    moving_share: float = 0.35  # the target moves in the scene
    motion: float = 0.15  # ... by so much of the half canvas, standard deviation

    # background: nine photos side by side
    photo_scale: Range = (0.75, 2.2)  # canvas pixels per photo pixel
    in_place_scale: Range = (1.0, 3.0)  # below 1 the mirrored surroundings could show the target again
    one_photo_share: float = 0.35  # the image falls on about one photo only
    one_photo_scale: Range = (1.6, 2.6)
    photo_aspect_log: float = 0.15

    # distractors
    distractors: int = 6  # small ones, each there with `distractor_share`
    distractor_share: float = 0.75
    similar_share: float = 0.5  # look-alikes of the target among them
    beside_share: float = 0.5  # next to the target
    rival_share: float = 0.4  # one more look-alike of the target's own size, beside it
    neighbours: int = 16  # look-alikes kept for each instance
    twin_similarity: float = 0.985  # photo objects more alike than this may be the same product: no negatives

    # in front of the target
    occluder_share: float = 0.25  # another cut-out
    shape_share: float = 0.15  # a rectangle or an ellipse
    hand_share: float = 0.4  # a hand with its arm
    second_hand_share: float = 0.15
    hand_on_target_share: float = 0.5
    max_covered: float = 0.6  # what would cover more of the target is left out
    min_visible_px: float = 56.0  # visible area below which the target counts as absent
    min_visible_share: float = 0.1  # ... and the same as a share of its whole area

    # camera
    aspects: tuple[tuple[float, float], ...] = ((16 / 9, 0.3), (4 / 3, 0.3), (1.0, 0.3), (3 / 4, 0.1))
    fisheye_share: float = 0.4
    fisheye: Range = (0.08, 0.5)  # radial coefficient: undistorted = r (1 + k r^2)
    circle_share: float = 0.2  # black round surround; always with a fisheye
    circle: Range = (0.92, 1.12)  # its radius over the half canvas
    pan: Range = (0.01, 0.6)  # travel over the clip, half canvases, log-uniform
    zoom_log: float = 0.1  # standard deviations over the clip
    roll_deg: float = 6.0
    tilt: float = 0.04  # projective terms
    shake: float = 0.015
    shadow: Range = (0.0, 0.6)  # darkness of contact shadows

    # light and sensor of the frames
    layer_gain_log: float = 0.15  # light on each pasted object
    exposure_log: float = 0.18
    brightest_log: float = 0.15  # more light than this does not happen: it would wash out
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
    low_resolution_px: tuple[int, ...] = (192, 256, 352)  # whole canvas; each in `low_resolution_share`
    low_resolution_share: float = 0.1
    compression_share: float = 0.45
    compression: Range = (0.3, 3.0)  # scale of the quantisation table, log-uniform

    # query
    crop_only_share: float = 0.35  # black outside the box
    box_jitter: float = 0.05  # standard deviation of each side, in box sides
    loose_box_share: float = 0.25  # boxes drawn generously
    loose_box: Range = (0.0, 0.15)
    query_rotation_deg: float = 8.0
    query_hand_share: float = 0.15
    query_blur_share: float = 0.3
    query_resolution_px: tuple[int, ...] = (48, 64, 88, 120, 160)  # canvas; the object is 1/1.6 of it
    query_resolution_share: float = 0.13  # each
    query_compression_share: float = 0.5
    query_compression: Range = (0.2, 1.5)

    @property
    def unit(self) -> float:
        """Pixels of this canvas in one of the standard one."""
        return self.frame_px / STANDARD_PX

    @property
    def similar(self) -> int:
        """How many of the distractors are look-alikes of the target."""
        return round(self.distractors * self.similar_share)
