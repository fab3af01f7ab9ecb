"""VQ3D from clips to figures with our own camera poses, beside the same with true poses.

    python benchmarks/vq3d_chain.py [--out DIR] [--clips 4] [--frames 30] [--workers 2] [--scan-only]

The first table is of a rendered room: a scan with images from known places, walks through it with a fisheye
lens, and true 2D tracks of its boxes, so that poses and depth alone differ; one more clip shows nothing and
counts as without poses. Depth is true, or a stand-in for a network: true inverse depth with a scale and a
shift of every image and 3 % noise, fitted to the points of our map. The second table is of the bundled clip,
searched with the shipped weights; nine frames between its samples stand for images of the scan.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.demo import CLIP, FOLDER, load_truth
from egohieraloc.evaluation import run_vq3d
from egohieraloc.files import write_json
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, write_cameras
from egohieraloc.images import write_image
from egohieraloc.video.reader import Video

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "figures")]
FISHEYE = ("--set", "sfm.camera_model=SIMPLE_RADIAL_FISHEYE")
KNOWN_EVERY = 3
IMAGES_OF_DEMO = 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/vq3d_chain"))
    parser.add_argument("--clips", type=int, default=4)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--scan-only", action="store_true", help="the first table alone")
    options = parser.parse_args()
    rendered_scan(options.out / "scan", options.clips, options.frames, options.workers)
    if not options.scan_only:
        bundled_clip(options.out / "demo")


def rendered_scan(root: Path, clips: int, frames: int, workers: int) -> None:
    from scan_tree import StandInDepth, write_scan_tree

    tree = write_scan_tree(root, clips=clips, frames=frames, renders=12)
    inputs = ("--annotations", root / "vq3d_val.json", "--clips", root / "clips", "--workers", workers)
    run("poses", *inputs, "--scans", root / "scans", *FISHEYE, "--out", root / "images.json")
    run("poses", *inputs, "--scans", root / "scans", "--paper", "--out", root / "paper.json")
    run("poses", *inputs, "--known", some_frames(root), *FISHEYE, "--out", root / "known.json")
    network = StandInDepth(tree.shots)
    relative = ("--clips", root / "clips", "--depth-model", "stand-in")
    ours = {name: ("--poses", root / f"{name}.json") for name in ("images", "paper", "known")}
    rows = {
        "true poses, true depth": (*tree.true_poses, *tree.true_depth),
        "ours, by images of the scan, true depth": (*ours["images"], *tree.true_depth),
        f"ours, by one frame in {KNOWN_EVERY}, true depth": (*ours["known"], *tree.true_depth),
        "ours, relative depth": (*ours["images"], *relative),
        "true poses, no depth": tree.true_poses,
        "ours, no depth": ours["images"],
        "`--paper`, true poses, true depth": ("--paper", *tree.true_poses, *tree.true_depth),
        "`--paper`, ours, relative depth": ("--paper", *ours["paper"], *relative),
    }
    asked = (*tree.common, "--tracks", root / "tracks.jsonl")
    with patch.object(run_vq3d.DepthNetwork, "from_pretrained", lambda name, device: network):
        table("rendered scan", {name: figures(root, *asked, *row) for name, row in rows.items()})


def some_frames(root: Path) -> Path:
    """The true poses, with few of them marked good."""
    known = json.loads((root / "poses_true.json").read_text())
    for clip in known.values():
        clip["good_poses"] = [n % KNOWN_EVERY == 0 for n in range(len(clip["good_poses"]))]
    write_json(root / "some_frames.json", known)
    return root / "some_frames.json"


def bundled_clip(root: Path) -> None:
    from demo_benchmark import camera_files, place_queries, visual_queries

    truth = load_truth()
    write_json(root / "vq2d.json", visual_queries(truth))
    write_json(root / "vq3d.json", place_queries(truth))
    for name, content in zip(("poses", "intrinsics", "mapping"), camera_files(truth), strict=True):
        write_json(root / f"{name}.json", content)
    write_images_of_demo(root / "scans" / "room")
    asked = ("--annotations", root / "vq3d.json", "--clips", FOLDER)
    run("poses", *asked, "--scans", root / "scans", "--out", root / "own.json")
    asked += ("--vq2d", root / "vq2d.json", "--mapping", root / "mapping.json")
    rows = {
        "true poses": ("--poses", root / "poses.json", "--intrinsics", root / "intrinsics.json"),
        "ours": ("--poses", root / "own.json"),
    }
    table("bundled clip", {name: figures(root, *asked, *row) for name, row in rows.items()})


def write_images_of_demo(folder: Path) -> None:
    """Frames between two samples, which structure from motion of the samples does not see."""
    truth = load_truth()
    step = len(truth.sample_frames) // IMAGES_OF_DEMO
    numbers = [truth.sample_frames[step * i] + 1 for i in range(IMAGES_OF_DEMO)]
    frames = []
    for frame in Video.open(CLIP).frames(numbers):
        write_image(folder / f"{frame.index}.png", frame.rgb)
        frames.append(PosedFrame(frame.index, frame.time_s, CameraPose(truth.cam_from_world[frame.index])))
    lens = (truth.focal_px, truth.focal_px, truth.width / 2, truth.height / 2)
    camera = Camera("PINHOLE", truth.width, truth.height, lens)
    write_cameras(folder / "cameras.json", Reconstruction(camera, tuple(frames), "m"))


def run(*words: Any) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    print(done.output, file=sys.stderr)
    if done.exit_code:
        sys.exit(f"{' '.join(map(str, words))} failed")


def figures(root: Path, *words: Any) -> dict[str, Any]:
    out = root / "answers.jsonl"
    out.unlink(missing_ok=True)
    run("eval", "vq3d", *words, "--out", out)
    scores: dict[str, Any] = json.loads(out.with_suffix(".results.json").read_text())["results"]["scores"]
    return scores


def table(name: str, rows: dict[str, dict[str, Any]]) -> None:
    queries = next(iter(rows.values()))["num_queries"]
    print(f"\n| {name}, {queries} queries | Succ | Succ* | L2 m | angle | QwP | nearer than 0.5 m |")
    print("|---|---|---|---|---|---|---|")
    for row, scores in rows.items():
        near = dict(scores["success_at"])[0.5]
        percents = [f"{scores[key]:.1f}" for key in ("success", "success_star")]
        errors = [f"{scores[key]:.3f}" for key in ("distance_m", "angle_1_rad")]
        print("|", " | ".join([row, *percents, *errors, f"{scores['coverage']:.1f}", f"{near:.1f}"]), "|")


if __name__ == "__main__":
    main()
