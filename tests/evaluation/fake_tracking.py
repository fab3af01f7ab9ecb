"""Small EgoTracks and TREK-150 trees with images, and a network with random weights."""

import json
from pathlib import Path

import fake_ego4d
import numpy as np
import torch

from egohieraloc.config import preset
from egohieraloc.images import write_image
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights

NUM_FRAMES = fake_ego4d.FRAMES * 6  # of an exported clip, at 30 a second
CROP_FRAMES = {"1": 38, "2": 50, "3": 75}  # two of them on one grid of every sixth frame
TRUTH = [(4 + 3 * n, 10, 16, 16) for n in range(7)]


def save_tiny(path: Path) -> Path:
    """Weights that know nothing: answers are arbitrary, and always the same."""
    torch.manual_seed(0)
    save_weights(path, EgoHieraLocNet(preset("tiny")))
    return path


def make_egotracks(root: Path) -> tuple[Path, Path]:
    """Annotations of two clips, and the folder that holds the first of them."""

    def box(frame: int) -> dict[str, float]:
        return {"exported_clip_frame_number": frame, "x": 10.0, "y": -2.0, "width": 16.0, "height": 16.0}

    sets = {
        query_set: {
            "is_valid": True,
            "object_title": "object",
            "visual_crop": box(frame),
            "visual_clip": [],
            "lt_track": [box(frame + 6), box(frame)],
        }
        for query_set, frame in CROP_FRAMES.items()
    }
    clips = [
        {"clip_uid": f"c{n}", "exported_clip_uid": f"e{n}", "annotations": [{"query_sets": sets}]}
        for n in range(2)
    ]
    path = root / "egotracks_val.json"
    path.write_text(json.dumps({"videos": [{"video_uid": "v", "split": "val", "clips": clips}]}))
    fake_ego4d.render(root / "clips" / "e0.mp4", 0, repeats=6)
    return path, root / "clips"


def make_trek150(root: Path) -> Path:
    """Two sequences; the second has neither images nor anchors."""
    for name in ("P01-P01_01-1", "P02-P02_02-2"):
        (root / name).mkdir(parents=True)
        lines = "\n".join(",".join(map(str, box)) for box in TRUTH)
        (root / name / "groundtruth_rect.txt").write_text(lines)
    first = root / "P01-P01_01-1"
    (first / "anchors.txt").write_text("0,0\n4,0\n4,1\n")
    (first / "anchors_hoi.txt").write_text("2,5,0\n")
    (first / "attributes.txt").write_text("FM\n")
    for number, (x, y, width, height) in enumerate(TRUTH):
        image = np.full((64, 96, 3), 120, np.uint8)
        image[y : y + height, x : x + width] = (220, 40, 40)
        write_image(first / "img" / f"frame_{number + 100:010d}.jpg", image)
    return root
