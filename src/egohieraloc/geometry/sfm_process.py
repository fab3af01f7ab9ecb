"""Camera poses of a video, computed by a process that may die, and cached: the second time they are read."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
from filelock import FileLock

from egohieraloc.children import python_environment, python_module
from egohieraloc.config import SfmConfig
from egohieraloc.documents import parse_json, read_json
from egohieraloc.errors import GeometryError, OutputError
from egohieraloc.files import private_folder
from egohieraloc.geometry import sfm
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.reconstruction import Reconstruction, load, save
from egohieraloc.geometry.selection import laplacian_variance
from egohieraloc.geometry.sfm_job import SfmJob
from egohieraloc.progress import Progress, no_progress
from egohieraloc.types import Floats, Frame, NotLocalized, Rgb

MIN_FRAMES = 3
_JPEG_QUALITY = 95


@dataclass(frozen=True, eq=False)
class Anchor:
    """An image taken from a known position in metres, such as a render of a scan."""

    rgb: Rgb
    camera: Camera | None  # None: estimated with the map
    center_world: Floats  # (3,)


def reconstruct(
    frames: Iterable[Frame],
    path: str | Path,
    *,
    config: SfmConfig | None = None,
    focal_px: float | None = None,
    anchors: Sequence[Anchor] = (),
    progress: Progress = no_progress,
) -> Reconstruction | NotLocalized:
    """Camera poses and sparse points of a video; read from the file `path` when it was made before.

    The file's name must stand for the video's content and all settings that matter.

    `frames` are only read when they are needed. `focal_px` is the focal length in pixels where it is known.
    With five or more `anchors` the answer is in their frame, in metres, when enough of them could be
    registered; else in a unit of its own (`unit` says which). A stopped or killed run leaves its features and
    matches in a folder beside `path`, and the next one resumes there.
    """
    config, path = config or SfmConfig(), Path(path)
    with suppress(GeometryError):  # absent or damaged: made again
        return load(path)
    with _locked(path):
        with suppress(GeometryError):  # another process may have made it meanwhile
            return load(path)
        folder = path.with_suffix(".work")
        job = _unfinished_job(folder, config, focal_px, anchors)
        job = job or _new_job(folder, frames, config, focal_px, anchors)
        count = len(job.frame_index)
        if count < MIN_FRAMES:
            shutil.rmtree(folder)
            return NotLocalized(f"{count} frames are too few for camera poses", 0, count)
        reason = _run(folder, config.max_time_s, progress)
        if reason is not None:
            return NotLocalized(reason, 0, count)
        found = load(folder / "result.npz")
        save(path, found)
        shutil.rmtree(folder)
        return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process works on this file, and keep others waiting meanwhile."""
    lock = FileLock(f"{path}.lock")
    try:
        private_folder(path.parent)
        lock.acquire()
    except OSError as error:
        raise OutputError(
            f"Cannot write to {path.parent}: {error}. Choose a folder you may write to."
        ) from error
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class _WrittenFrames:
    """The frames in images/: number, time and sharpness of each; their size there and before."""

    rows: tuple[tuple[int, float, float], ...]
    size: tuple[int, int]
    full_size: tuple[int, int]


def _unfinished_job(
    folder: Path, config: SfmConfig, focal_px: float | None, anchors: Sequence[Anchor]
) -> SfmJob | None:
    """What an earlier run with the same settings and anchors left."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        job = SfmJob.read(folder)
        same = replace(config, num_threads=job.config.num_threads, max_time_s=job.config.max_time_s)
        given = (same, focal_px, anchors[0].camera if anchors else None, _centers(anchors))
        if (job.config, job.focal_px, job.anchor_camera, job.anchor_center) == given:
            return job
    return None


def _centers(anchors: Sequence[Anchor]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in anchor.center_world) for anchor in anchors)


def _new_job(
    folder: Path,
    frames: Iterable[Frame],
    config: SfmConfig,
    focal_px: float | None,
    anchors: Sequence[Anchor],
) -> SfmJob:
    """Write images and, last, job.json: where it is, the folder is complete."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        (folder / "images").mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"Cannot write to {folder}: {error}. Choose a folder you may write to.") from error
    written = _write_frames(folder, frames, config.max_image_side)
    _write_anchors(folder, anchors, first_position=len(written.rows))
    index, time_s, sharpness = zip(*written.rows, strict=True) if written.rows else ((), (), ())
    job = SfmJob(
        frame_index=index,
        time_s=time_s,
        sharpness=sharpness,
        size=written.size,
        full_size=written.full_size,
        focal_px=focal_px,
        config=config,
        anchor_camera=anchors[0].camera if anchors else None,
        anchor_center=_centers(anchors),
    )
    job.write(folder)
    return job


def _write_frames(folder: Path, frames: Iterable[Frame], max_side: int) -> _WrittenFrames:
    rows: list[tuple[int, float, float]] = []
    full_size = size = (0, 0)
    for frame in frames:
        height, width = frame.rgb.shape[:2]
        if not rows:
            full_size, size = (width, height), _reduced(width, height, max_side)
        elif (width, height) != full_size:
            raise GeometryError(
                f"All frames must have one size: frame {frame.index} is {width}x{height}, "
                f"the first one {full_size[0]}x{full_size[1]}."
            )
        small = frame.rgb if size == full_size else cv2.resize(frame.rgb, size, interpolation=cv2.INTER_AREA)
        _write_image(folder, len(rows), small)
        rows.append((frame.index, frame.time_s, laplacian_variance(small)))
    return _WrittenFrames(tuple(rows), size, full_size)


def _write_anchors(folder: Path, anchors: Sequence[Anchor], *, first_position: int) -> None:
    for position, anchor in enumerate(anchors, first_position):
        if (anchor.camera, anchor.rgb.shape) != (anchors[0].camera, anchors[0].rgb.shape):
            raise GeometryError(
                "All anchors must have one camera: render them with the same size and focal length."
            )
        _write_image(folder, position, anchor.rgb)


def _write_image(folder: Path, position: int, rgb: Rgb) -> None:
    path = folder / "images" / SfmJob.name(position)
    quality = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    if not cv2.imwrite(str(path), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), quality):
        raise OutputError(f"Cannot write {path}. Is the disk full?")


def _run(folder: Path, max_time_s: float, progress: Progress) -> str | None:
    """Run the process to its end; the reason when there is no result."""
    for name in ("result.npz", "failure.json"):
        (folder / name).unlink(missing_ok=True)
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            python_module(sfm.__name__, str(folder)),
            stdin=subprocess.PIPE,  # closed when this process ends, see `end_with_input`
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=python_environment(),
        )
        timer = threading.Timer(max_time_s, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                with suppress(ValueError, KeyError, TypeError):  # other libraries print too
                    report = parse_json(line)
                    progress(report["stage"], int(report["done"]), int(report["total"]))
            code = process.wait()
        finally:
            late = not timer.is_alive()
            timer.cancel()
            process.kill()
            process.wait()
    if (folder / "result.npz").exists():
        return None
    if (folder / "failure.json").exists():
        return str(read_json(folder / "failure.json")["reason"])
    if late:
        return f"camera poses took longer than {max_time_s:g} s; what was computed is kept for the next run"
    return f"the camera pose process ended early (code {code}); its log is in {folder / 'log.txt'}"


def _reduced(width: int, height: int, max_side: int) -> tuple[int, int]:
    share = min(1.0, max_side / max(width, height))
    return max(1, round(width * share)), max(1, round(height * share))
