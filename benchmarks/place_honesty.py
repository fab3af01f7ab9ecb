"""Is a place in space right, flagged as uncertain, or wrong without a word? Over real clips, from RGB alone.

    python benchmarks/place_honesty.py --hololens DIR --ego DIR [--cache DIR] [--verbose]

--hololens: the walk of `place_real.py` with true poses and seven labelled objects, cut into clips of 60
frames (12 s): standing, turning, walking. An answer is right when it is off by no more than its stated
uncertainty, plus that of the labels.
--ego: head-worn clips at 5 frames a second with hand-made boxes (`annotations.json`, `videos/`, and the spans
of their uncut parts in `README.md`): hands at work, little walking, no truth in space. There the place comes
from the first 60 % of a track, and is right when the boxes of the rest show it there: its image lies within
half a box diagonal of their centres, or within its uncertainty.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.camera import CameraPose
from egohieraloc.geometry.place import describe, place
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.geometry.sfm_process import reconstruct
from egohieraloc.images import read_image
from egohieraloc.types import Box, Floats, Frame, FramePrediction, Localization3D, NotLocalized
from place_real import FRAMES_PER_S, our_box

CLIP_FRAMES, CLIP_STEP, MIN_TRACK = 60, 40, 5
LABEL_ERROR_M = 0.1  # of the labelled centres, at most
EARLY_SHARE = 0.6
NEAR_SHARE = 0.5  # of a box diagonal

Track = tuple[FramePrediction, ...]


@dataclass(frozen=True, eq=False)
class Clip:
    """Uncut frames of one camera: `paths[i]` is frame `first + i`."""

    name: str
    first: int
    paths: tuple[Path, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.paths) - 1

    def frames(self) -> Iterator[Frame]:
        for index, path in enumerate(self.paths, self.first):
            yield Frame(index, index / FRAMES_PER_S, read_image(path))


@dataclass(frozen=True)
class Verdict:
    """What became of one question: the answer in words, and whether it was right."""

    name: str
    kind: str  # right, wrong or none
    flagged: bool
    words: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hololens", type=Path)
    parser.add_argument("--ego", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("runs/place_honesty"))
    parser.add_argument("--verbose", action="store_true", help="a line for each question")
    options = parser.parse_args()
    for name, folder, ask in (("walk", options.hololens, walk), ("ego", options.ego, head_worn)):
        if folder is None:
            continue
        verdicts = []
        for verdict in ask(folder, options.cache):
            verdicts.append(verdict)
            if options.verbose:
                flag = "flagged" if verdict.flagged else ""
                print(f"{verdict.name:42} {verdict.kind:6} {flag:8} {verdict.words}", flush=True)
        report(name, verdicts)


def report(name: str, verdicts: Sequence[Verdict]) -> None:
    counts = Counter((verdict.kind, verdict.flagged) for verdict in verdicts)
    print(
        f"{name}: {len(verdicts)} questions; right {counts['right', False]}, "
        f"right but flagged {counts['right', True]}, wrong and flagged {counts['wrong', True]}, "
        f"wrong without a word {counts['wrong', False]}, no place {counts['none', False]}, "
        f"flagged and without a later box {counts['none', True]}"
    )


def poses(clip: Clip, cache: Path) -> Reconstruction | NotLocalized:
    return reconstruct(clip.frames(), cache / f"{clip.name}.npz", config=SfmConfig())


def walk(data: Path, cache: Path) -> Iterator[Verdict]:
    """The seven objects in each clip of the walk that shows them at least five times."""
    images = sorted((data / "rgb").glob("*.jpg"))
    rows = np.loadtxt(data / "poses.txt")
    rotations = Rotation.from_quat(rows[:, 4:]).as_matrix()
    truth = {
        int(row[0]): CameraPose(np.column_stack([rotation, row[1:4]]))
        for row, rotation in zip(rows, rotations, strict=True)
    }
    objects = json.loads((data / "objects.json").read_text())["objects"]
    for first in range(0, len(images) - CLIP_FRAMES // 2, CLIP_STEP):
        clip = Clip(f"hololens_{first}", first, tuple(images[first : first + CLIP_FRAMES]))
        for instance in objects:
            boxes = {int(i): our_box(box) for i, box in instance["last_appearance"]["boxes"].items()}
            track = track_in(clip, boxes)
            if len(track) >= MIN_TRACK:
                found = poses(clip, cache)
                yield judged_by_truth(f"{clip.name} {instance['id']}", clip, track, found, instance, truth)


def judged_by_truth(
    name: str,
    clip: Clip,
    track: Track,
    found: Reconstruction | NotLocalized,
    instance: dict,
    truth: dict[int, CameraPose],
) -> Verdict:
    answer = found if isinstance(found, NotLocalized) else asked(track, found, clip)
    if isinstance(answer, NotLocalized) or isinstance(found, NotLocalized):
        return Verdict(name, "none", False, answer.reason if isinstance(answer, NotLocalized) else "")
    metres = scale(found, truth)
    true = truth[answer.query_frame].to_cam(np.array(instance["center_world"]))
    error_m = float(np.linalg.norm(metres * answer.displacement - true))
    stated_m = metres * answer.uncertainty
    kind = "right" if error_m <= stated_m + LABEL_ERROR_M else "wrong"
    words = f"off by {error_m:.2f} m of {np.linalg.norm(true):.2f} m, stated {stated_m:.2f} m"
    return Verdict(name, kind, bool(answer.doubts), "; ".join([words, *answer.doubts]))


def scale(found: Reconstruction, truth: dict[int, CameraPose]) -> float:
    """Metres in a unit of the path, by how far the cameras spread."""
    ours = np.array([pose.center_world for pose in found.poses.values()])
    true = np.array([truth[index].center_world for index in found.poses])
    spread = [float(np.sqrt(((c - c.mean(0)) ** 2).sum(1).mean())) for c in (true, ours)]
    return spread[0] / max(spread[1], 1e-12)


def head_worn(data: Path, cache: Path) -> Iterator[Verdict]:
    """Every labelled track that lies in an uncut part of its video."""
    parts = uncut_parts((data / "README.md").read_text(encoding="utf-8"))
    for question in json.loads((data / "annotations.json").read_text(encoding="utf-8")):
        boxes = {
            row["frame"]: Box(row["x1"], row["y1"], row["x2"], row["y2"])
            for row in question["response_track"] or ()
        }
        for first, last in parts.get(question["video"], ()):
            if boxes and first <= min(boxes) and max(boxes) <= last:
                folder = data / "videos" / question["video"]
                paths = tuple(folder / f"{i:05d}.jpg" for i in range(first, last + 1))
                clip = Clip(f"{question['video']}_{first}", first, paths)
                yield judged_by_later_boxes(question, track_in(clip, boxes), clip, poses(clip, cache))


def uncut_parts(readme: str) -> dict[str, list[tuple[int, int]]]:
    """The spans of frames of each video that come from one clip, from the table of search videos."""
    rows = re.findall(r"^\| (\w+) \| \d+x\d+ \| \d+ \| (.*) \|$", readme, re.MULTILINE)
    return {
        name: [(int(a), int(b)) for a, b in re.findall(r"-> (\d+)\.\.(\d+)", spans)] for name, spans in rows
    }


def judged_by_later_boxes(
    question: dict, track: Track, clip: Clip, found: Reconstruction | NotLocalized
) -> Verdict:
    name = f"{clip.name} {question['object']}"
    early = track[: max(2, round(EARLY_SHARE * len(track)))]
    answer = found if isinstance(found, NotLocalized) else asked(early, found, clip)
    if isinstance(answer, NotLocalized) or isinstance(found, NotLocalized):
        return Verdict(name, "none", False, answer.reason if isinstance(answer, NotLocalized) else "")
    late = [p for p in track[len(early) :] if p.frame_index in found.poses]
    misses = [miss(answer, p, found) for p in late]
    kind = "none" if not misses else "right" if np.median(misses) <= 1 else "wrong"
    words = f"{describe(answer)}; later boxes miss it by {np.median(misses) if misses else np.nan:.2f}"
    return Verdict(name, kind, bool(answer.doubts), "; ".join([words, *answer.doubts]))


def miss(answer: Localization3D, prediction: FramePrediction, found: Reconstruction) -> float:
    """How far a box's centre lies from the answer's image, as a share of what may be: half a diagonal or the
    image of the uncertainty."""
    in_camera: Floats = found.poses[prediction.frame_index].to_cam(answer.point_world)
    at = found.camera.project(in_camera)[0]
    if not np.isfinite(at).all():
        return float("inf")
    diagonal = float(np.hypot(prediction.box.width, prediction.box.height))
    distance = float(np.linalg.norm(in_camera))
    allowed = max(NEAR_SHARE * diagonal, answer.uncertainty / distance * found.camera.focal[0])
    return float(np.linalg.norm(at - prediction.box.center)) / allowed


def track_in(clip: Clip, boxes: dict[int, Box]) -> Track:
    return tuple(
        FramePrediction(i, i, i / FRAMES_PER_S, 1.0, box)
        for i, box in sorted(boxes.items())
        if clip.first <= i <= clip.last
    )


def asked(track: Track, found: Reconstruction, clip: Clip) -> Localization3D | NotLocalized:
    return place(track, found, query_time_s=clip.last / FRAMES_PER_S)


if __name__ == "__main__":
    main()
