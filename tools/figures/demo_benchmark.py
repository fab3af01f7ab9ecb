"""The bundled demo clip in the formats of the benchmarks, so that `eval` and `figure` can be tried on it.

    python tools/figures/demo_benchmark.py --out demo_benchmark

VQ2D and VQ3D: the teddy bear is the query at three times. TREK-150: each appearance is a sequence.
Every number comes from the clip's exact truth.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from egohieraloc.demo import CLIP, DemoTruth, load_truth
from egohieraloc.files import write_json
from egohieraloc.images import write_image
from egohieraloc.types import Box
from egohieraloc.video.reader import Video

NAME = CLIP.stem
ASKED_S = (12.0, 20.0, 39.0)


def visual_queries(truth: DemoTruth) -> dict[str, Any]:
    """VQ2D: the crop is the clearest view of the whole clip."""
    areas = [box.area * share if box else 0.0 for box, share in zip(truth.boxes, truth.visible, strict=True)]
    sets = {
        str(number): {
            "is_valid": True,
            "object_title": truth.target_name,
            "query_frame": round(asked_s * truth.sample_fps),
            "visual_crop": _box(truth, int(np.argmax(areas))),
            "response_track": [_box(truth, sample) for sample in _last_seen(truth, asked_s)],
        }
        for number, asked_s in enumerate(ASKED_S, 1)
    }
    annotation = {"annotation_uid": "demo", "query_sets": sets}
    return _video([annotation])


def place_queries(truth: DemoTruth) -> dict[str, Any]:
    """VQ3D: both annotators drew the true box. The file's axes are those of the scan turned about z."""
    x, y, z = truth.target_center_world
    width, depth, height = truth.target_size_world
    box = {
        "position": {"x": -y, "y": x, "z": z},
        "dimension": {"x": depth, "y": width, "z": height},
        "rotation": {"x": 0.0, "y": 0.0, "z": 0.0},
    }
    entry = {"object_title": truth.target_name, "3d_annotation_1": box, "3d_annotation_2": box}
    sets = {str(number): entry for number in range(1, len(ASKED_S) + 1)}
    return _video([{"annotation_uid": "demo", "query_sets": sets}])


def camera_files(truth: DemoTruth) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Poses of the samples, the lens, and which VQ2D query a VQ3D query has."""
    poses = truth.cam_from_world[list(truth.sample_frames)]
    lens = {"f": truth.focal_px, "cx": truth.width / 2, "cy": truth.height / 2, "k1": 0.0, "k2": 0.0}
    links = {str(n): {"ai": 0, "qset_id": str(n)} for n in range(1, len(ASKED_S) + 1)}
    return (
        {NAME: {"camera_poses": poses.tolist(), "good_poses": [True] * len(poses)}},
        {"room": {f"('{truth.width}', '{truth.height}')": lens}},
        {NAME: {NAME: {"0": links}}},
    )


def write_sequences(truth: DemoTruth, folder: Path) -> None:
    """TREK-150: one folder per appearance."""
    images = {frame.index: frame.rgb for frame in Video.open(CLIP).frames(truth.sample_frames)}
    for number, (first, last) in enumerate(truth.appearances, 1):
        sequence = folder / f"demo-{number}"
        samples = range(first, last + 1)
        boxes = [box for sample in samples if (box := truth.boxes[sample]) is not None]
        for place, sample in enumerate(samples, 1):
            write_image(sequence / "img" / f"{place:08d}.jpg", images[truth.sample_frames[sample]])
        lines = [",".join(f"{v:g}" for v in box.xywh) for box in boxes]
        (sequence / "groundtruth_rect.txt").write_text("\n".join(lines))
        (sequence / "anchors.txt").write_text(f"0,0\n{len(boxes) - 1},1\n")
        (sequence / "attributes.txt").write_text(",".join(sorted(attributes(boxes))))


def attributes(boxes: list[Box]) -> set[str]:
    """TREK-150's attributes that boxes alone decide: they are compared with the first one."""
    areas = np.array([box.area for box in boxes]) / boxes[0].area
    shapes = np.array([box.width / box.height for box in boxes]) / (boxes[0].width / boxes[0].height)
    centers = np.array([box.center for box in boxes])
    steps = np.linalg.norm(np.diff(centers, axis=0), axis=1)
    sides = np.array([max(box.width, box.height) for box in boxes[1:]])
    found = {
        "SC": ((areas < 0.5) | (areas > 2)).any(),  # scale change
        "ARC": ((shapes < 0.5) | (shapes > 2)).any(),  # aspect ratio change
        "FM": (steps > sides).any(),  # fast motion
        "LR": min(box.area for box in boxes) < 1000,  # low resolution
    }
    return {name for name, has in found.items() if has}


def _last_seen(truth: DemoTruth, asked_s: float) -> range:
    first, last = [run for run in truth.appearances if run[1] < asked_s * truth.sample_fps][-1]
    return range(first, last + 1)


def _box(truth: DemoTruth, sample: int) -> dict[str, float]:
    box = truth.boxes[sample]
    if box is None:
        raise ValueError(f"the target is not in sight at sample {sample}")
    x, y, width, height = box.xywh
    size = {"original_width": truth.width, "original_height": truth.height}
    return {"frame_number": sample, "x": x, "y": y, "width": width, "height": height, **size}


def _video(annotations: list[dict[str, Any]]) -> dict[str, Any]:
    clip = {"clip_uid": NAME, "clip_fps": 5.0, "annotations": annotations}
    return {"videos": [{"video_uid": NAME, "split": "val", "scan_uid": "room", "clips": [clip]}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo_benchmark"))
    out = parser.parse_args().out
    truth = load_truth()
    write_json(out / "vq2d.json", visual_queries(truth))
    write_json(out / "vq3d.json", place_queries(truth))
    for name, content in zip(("poses", "intrinsics", "mapping"), camera_files(truth), strict=True):
        write_json(out / f"{name}.json", content)
    write_sequences(truth, out / "trek150")
    print(f"The demo clip as a benchmark is in {out}.")


if __name__ == "__main__":
    main()
