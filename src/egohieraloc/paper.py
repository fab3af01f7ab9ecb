"""The paper's method as printed: one switch (`--paper`, and `paper = true` in a recipe) as changed settings.

Our defaults differ where something else measures better; docs/paper.md has every difference. Settings given
beside the switch win over it.
"""

from __future__ import annotations

from collections.abc import Iterable

NETWORK = (
    "square_canvas=true",  # frames are padded to 448 x 448
    "ram.score=mask",  # vartheta, the mask's confidence, is the temporal score
    "dpm.temperature=1.0",  # Z is the softmax of the two cosines themselves
    "qam.mode=paper",  # the printed recursion
    "qam.area_power=1.0",  # candidates by R * A
)
INFERENCE = (
    "search.shortlist=0",  # every sample is looked at, in long videos too ...
    "search.coarse_margin=1e9",  # ... and decoded, whatever its logit ...
    "search.max_decoded=0",  # ... however many there are
    "temporal.rule=paper",  # the last interval above 0.8 of the maximum, whatever its confidence
    "temporal.paper_share=0.8",
    "temporal.median=5",
    "temporal.bridge=0",
    "tracker.propagate_above=0.7",  # appendix B: a followed object's mask is propagated from frame to frame
    "sfm.camera_model=SIMPLE_RADIAL_FISHEYE",
    "sfm.anchor_error_m=30.0",  # robust_alignment_max_error of model_aligner
    "place.fusion.literal=true",
    "place.max_pose_gap_s=0.0",  # no frame takes the pose of another
)
PAPER = (*(f"network.{word}" for word in NETWORK), *INFERENCE)


def settings_for(words: Iterable[str] | None, *, paper: bool) -> tuple[str, ...]:
    """The settings of a command: those of the switch, then those given."""
    return (*(PAPER if paper else ()), *(words or ()))
