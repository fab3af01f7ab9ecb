"""Poses for a video, computed once, by a process that may die; the second time they come from a cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
from filelock import FileLock

from egohieraloc.config import SfmConfig
from egohieraloc.errors import GeometryError, OutputError
from egohieraloc.geometry import sfm
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.job import SfmJob, read_job, write_job
from egohieraloc.geometry.reconstruction import Reconstruction, load, save
from egohieraloc.geometry.selection import sharpness
from egohieraloc.types import Floats, Frame, NotLocalized, Rgb

Progress = Callable[[str, float], None]  # the stage's name and the share of it that is done
MIN_FRAMES = 3
_JPEG_QUALITY = 95


@dataclass(frozen=True, eq=False)
class Anchor:
    """An image taken from a known position in metres, such as a render of a scan."""

    rgb: Rgb
    camera: Camera
    center_world: Floats  # (3,)


def reconstruct(
    frames: Iterable[Frame],
    *,
    cache: str | Path,
    key: str,
    config: SfmConfig | None = None,
    focal_px: float | None = None,
    anchors: Sequence[Anchor] = (),
    progress: Progress | None = None,
) -> Reconstruction | NotLocalized:
    """Camera poses and sparse points of a video; from the folder `cache` when `key` was done before.

    `key` is a file name that stands for the video's content and all settings that matter.

    `frames` are only read when they are needed. `focal_px` is the focal length in pixels where it is known.
    With five or more `anchors` the answer is in their frame, in metres, when enough of them could be
    registered; else in a unit of its own (`unit` says which). A stopped or killed run leaves its features and
    matches, and the next one goes on from there.
    """
    config = config or SfmConfig()
    stored = Path(cache) / f"{key}.npz"
    with suppress(GeometryError):  # absent or damaged: made again
        return load(stored)
    with _alone(stored):
        with suppress(GeometryError):  # another process may have made it meanwhile
            return load(stored)
        folder = Path(cache) / f"{key}.work"
        job = _prepare(folder, frames, config, focal_px, anchors)
        if len(job.frame_index) < MIN_FRAMES:
            shutil.rmtree(folder)
            return NotLocalized(
                f"{len(job.frame_index)} frames are too few for camera poses", 0, len(job.frame_index)
            )
        reason = _run(folder, config.max_time_s, progress or (lambda stage, share: None))
        if reason is not None:
            return NotLocalized(reason, 0, len(job.frame_index))
        whole = load(folder / "result.npz")
        save(stored, whole)
        shutil.rmtree(folder)
        return whole


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until no other process works on this file."""
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise OutputError(
            f"Cannot write to {path.parent}: {error}. Choose a folder you may write to."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _prepare(
    folder: Path,
    frames: Iterable[Frame],
    config: SfmConfig,
    focal_px: float | None,
    anchors: Sequence[Anchor],
) -> SfmJob:
    """Write images and job.json (last, so that it stands for a whole folder), or find them written."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        job = read_job(folder)
        if job.config == config and job.focal_px == focal_px:
            return job
    shutil.rmtree(folder, ignore_errors=True)
    try:
        (folder / "images").mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"Cannot write to {folder}: {error}. Choose a folder you may write to.") from error
    rows: list[tuple[int, float, float]] = []
    full_size = size = (0, 0)
    for frame in frames:
        height, width = frame.rgb.shape[:2]
        if not rows:
            full_size, size = (width, height), _reduced(width, height, config.max_image_side)
        elif (width, height) != full_size:
            raise GeometryError(
                f"All frames must have one size: frame {frame.index} is {width}x{height}, "
                f"the first one {full_size[0]}x{full_size[1]}."
            )
        small = frame.rgb if size == full_size else cv2.resize(frame.rgb, size, interpolation=cv2.INTER_AREA)
        _write(folder, len(rows), small)
        rows.append((frame.index, frame.time_s, sharpness(small)))
    for position, anchor in enumerate(anchors, len(rows)):
        if anchor.camera != anchors[0].camera:
            raise GeometryError(
                "All anchors must have one camera: render them with the same size and focal length."
            )
        _write(folder, position, anchor.rgb)
    index, time_s, sharp = zip(*rows, strict=True) if rows else ((), (), ())
    job = SfmJob(
        frame_index=index,
        time_s=time_s,
        sharpness=sharp,
        size=size,
        full_size=full_size,
        focal_px=focal_px,
        config=config,
        anchor_camera=anchors[0].camera if anchors else None,
        anchor_center=tuple(tuple(float(v) for v in anchor.center_world) for anchor in anchors),
    )
    write_job(folder, job)
    return job


def _write(folder: Path, position: int, rgb: Rgb) -> None:
    path = folder / "images" / SfmJob.name(position)
    quality = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    if not cv2.imwrite(str(path), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), quality):
        raise OutputError(f"Cannot write {path}. Is the disk full?")


def _run(folder: Path, max_time_s: float, progress: Progress) -> str | None:
    """Run the process to its end; the reason when it did not bring a result."""
    for name in ("result.npz", "failure.json"):
        (folder / name).unlink(missing_ok=True)
    command = [sys.executable, "-m", sfm.__name__, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        timer = threading.Timer(max_time_s, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                with suppress(ValueError, KeyError, TypeError):  # other libraries print too
                    report = json.loads(line)
                    progress(report["stage"], float(report["share"]))
            code = process.wait()
        finally:
            late = not timer.is_alive()
            timer.cancel()
            process.kill()
            process.wait()
    if (folder / "result.npz").exists():
        return None
    if (folder / "failure.json").exists():
        return str(json.loads((folder / "failure.json").read_text(encoding="utf-8"))["reason"])
    if late:
        return f"camera poses took longer than {max_time_s:g} s; what was computed is kept for the next try"
    return f"the camera pose process ended early (code {code}); its last words are in {folder / 'log.txt'}"


def _reduced(width: int, height: int, max_side: int) -> tuple[int, int]:
    share = min(1.0, max_side / max(width, height))
    return max(1, round(width * share)), max(1, round(height * share))
