"""Makes the demo: a rendered walk through a furnished room, an image of one object in it, and the truth.

Needs Debian's blender, python3-numpy, sweethome3d-furniture, libegl1 and libgl1-mesa-dri, and besides this
package moderngl from PyPI.

    python tools/demo_clip/make_clip.py --out src/egohieraloc/demo --work /tmp/demo_clip

`--depth DIR` also writes the true depth of every sample (16-bit PNG, millimetres along the optical axis).
All seeds are fixed, but Blender may cut a few triangles differently from run to run.
What is in `--work` already is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import walk
from numpy.typing import NDArray
from render import Renderer

HERE = Path(__file__).parent
SAMPLE_FPS = 5
SMALLEST_PX = 60  # of the target in sight, below which it does not count as seen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the room and the single frames")
    parser.add_argument("--depth", type=Path, help="folder for the true depth of every sample")
    options = parser.parse_args()
    for folder in (options.out, options.work, options.depth):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
    room, still = options.work / "room.npz", options.work / "query.png"
    blender("--room", room, samples=12)
    blender("--query", still, samples=100)
    renderer = Renderer(room)
    encode(options.out / "walk.mp4", frames(renderer, options.work))
    cv2.imwrite(str(options.out / "query.jpg"), cv2.imread(str(still)), [cv2.IMWRITE_JPEG_QUALITY, 92])
    truth = measure(renderer, options.depth) | {"query": json.loads(still.with_suffix(".json").read_text())}
    (options.out / "truth.json").write_text(json.dumps(truth) + "\n")


def blender(option: str, path: Path, *, samples: int) -> None:
    if not path.exists():
        script = ["blender", "-b", "--python-exit-code", "1", "-P", str(HERE / "bake.py")]
        subprocess.run([*script, "--", option, str(path), "--samples", str(samples)], check=True)


def frames(renderer: Renderer, folder: Path) -> Iterator[NDArray[np.uint8]]:
    """The frames of the clip, BGR, kept as images in `folder`."""
    for number, time_s in enumerate(walk.times_s()):
        path = folder / f"{number:05d}.png"
        if not path.exists():
            cv2.imwrite(str(path), renderer.frame(time_s)[..., ::-1])
        yield cv2.imread(str(path))


def encode(path: Path, pictures: Iterable[NDArray[np.uint8]]) -> None:
    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("libx264", rate=Fraction(walk.FPS))
        stream.width, stream.height, stream.pix_fmt = walk.WIDTH, walk.HEIGHT, "yuv420p"
        stream.options = {"crf": "26", "preset": "slow", "g": "45"}
        for bgr in pictures:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(bgr, format="bgr24")))
        file.mux(stream.encode())


def measure(renderer: Renderer, depth_folder: Path | None) -> dict:
    """The truth, in the form `egohieraloc.demo` documents."""
    poses = walk.cam_from_world(walk.times_s())
    samples = []
    for frame in range(0, walk.NUM_FRAMES, walk.FPS // SAMPLE_FPS):
        depth, mask = renderer.depth_and_mask(poses[frame])
        seen = int(mask.sum()) >= SMALLEST_PX
        whole = renderer.depth_and_mask(poses[frame], alone=True, margin=400)[1].sum() if seen else 1
        samples.append(
            {
                "frame": frame,
                "box": box_of(mask) if seen else None,
                "visible": round(seen * mask.sum() / whole, 3),
            }
        )
        if depth_folder:
            cv2.imwrite(str(depth_folder / f"{frame:05d}.png"), np.round(depth * 1000).astype(np.uint16))
    low, high = renderer.target_bounds
    return {
        "unit": "m",
        "camera": {
            "model": "PINHOLE",
            "width": walk.WIDTH,
            "height": walk.HEIGHT,
            "params": [walk.FOCAL_PX, walk.FOCAL_PX, walk.WIDTH / 2, walk.HEIGHT / 2],
        },
        "frames": [
            {
                "frame": frame,
                "time_s": round(frame / walk.FPS, 6),
                "cam_from_world": np.round(pose, 6).tolist(),
            }
            for frame, pose in enumerate(poses)
        ],
        "target": {
            "name": "teddy bear",
            "center_world": np.round((low + high) / 2, 4).tolist(),
            "size_world": np.round(high - low, 4).tolist(),
        },
        "sample_fps": SAMPLE_FPS,
        "samples": samples,
    }


def box_of(mask: NDArray[np.bool_]) -> list[int]:
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return [int(columns[0]), int(rows[0]), int(columns[-1] + 1), int(rows[-1] + 1)]


if __name__ == "__main__":
    main()
