"""All files of an answer: what `Result` writes, and the views of it for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from egohieraloc.errors import VideoError
from egohieraloc.files import atomic_path
from egohieraloc.report.draw import thumbnail, write_curve, write_overlay
from egohieraloc.report.html import Attachments, render_report
from egohieraloc.report.scene import scene_of
from egohieraloc.result import Result, answer_folder
from egohieraloc.types import Floats, ResponseTrack
from egohieraloc.video.reader import Video

HEADLINE_WIDTH_PX = 1280  # of the last frame that shows the object: what the report opens with
MANY_SAMPLES = 500  # beyond it, thumbnails shrink so that the page stays small,
MAX_IMAGES = 1000  # and beyond this many only samples of tracks have their own


def save_report(
    result: Result,
    folder: str | Path,
    *,
    notes: Sequence[str] = (),
    true_point_world: Floats | None = None,
    with_video: bool = True,
) -> Path:
    """Write all files of an answer into a folder, all or none; returns the path of its report.html.

    notes: sentences to show under the answer; with_video: whether its path still holds the video.
    """
    with answer_folder(folder, result.video.source.path) as temporary:
        write_views(result, temporary, notes=notes, true_point_world=true_point_world, with_video=with_video)
        result.write_files(temporary)
    return Path(folder) / "report.html"


def write_views(
    result: Result,
    folder: Path,
    *,
    notes: Sequence[str] = (),
    true_point_world: Floats | None = None,
    with_video: bool = True,
) -> None:
    """Write curve.png, overlay.mp4 and report.html; images of the video only where it can still be read."""
    track = result.track if isinstance(result.track, ResponseTrack) else None
    if len(result.curve.raw):
        write_curve(folder / "curve.png", result.curve, chosen=(track.start, track.end) if track else None)
    thumbnails: tuple[bytes, ...] = ()
    overlay_mp4 = None
    try:
        if not with_video:
            raise VideoError(f"{result.video.source.path} is gone or another video.")
        video = Video.reopen(result.video.source)
        thumbnails = _thumbnails(video, result)
        if track:
            write_overlay(folder / "overlay.mp4", video, track.predictions, fps=result.video.sample_fps)
            overlay_mp4 = (folder / "overlay.mp4").read_bytes()
    except VideoError:
        name = Path(result.video.source.path).name
        notes = (*notes, f"{name} could not be read again as it was: its images are missing.")
    scene = scene_of(result, true_point_world)
    extra = Attachments(thumbnails=thumbnails, overlay_mp4=overlay_mp4, scene=scene, notes=tuple(notes))
    page = render_report(result, extra)
    with atomic_path(folder / "report.html") as temporary:
        temporary.write_text(page, encoding="utf-8")


def _thumbnails(video: Video, result: Result) -> tuple[bytes, ...]:
    """An image per sample; those that have none of their own, or cannot be decoded, take the one before."""
    indices = result.video.frame_index.tolist()
    width, quality = (400, 72) if len(indices) <= MANY_SAMPLES else (160, 60)
    found = [track for track in (result.track, *result.alternatives) if isinstance(track, ResponseTrack)]
    wanted = set(range(0, len(indices), -(-len(indices) // MAX_IMAGES) or 1))
    wanted.update(p.sample for track in found for p in track)
    last = result.track.predictions[-1].frame_index if isinstance(result.track, ResponseTrack) else None
    images = {
        frame.index: thumbnail(frame.rgb, width_px=HEADLINE_WIDTH_PX, quality=85)
        if frame.index == last
        else thumbnail(frame.rgb, width_px=width, quality=quality)
        for frame in video.frames([indices[sample] for sample in sorted(wanted)])
    }
    if indices and not images:
        raise VideoError(f"No sample of {video.path} can be decoded.")
    shown: list[bytes] = []
    for index in indices:
        shown.append(images.get(index) or (shown[-1] if shown else next(iter(images.values()))))
    return tuple(shown)
