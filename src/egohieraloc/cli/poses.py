"""`egohieraloc poses`: the camera poses that `egohieraloc eval vq3d` reads, from the clips themselves."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from egohieraloc import threads
from egohieraloc.cli import common, score
from egohieraloc.config import SfmConfig
from egohieraloc.data.base import ClipQueries
from egohieraloc.data.ego4d_3d import PlaceQuery, read_vq3d
from egohieraloc.errors import DataError
from egohieraloc.evaluation.run_poses import PoseClips, PosedClip, clips_to_pose, write_pose_file
from egohieraloc.evaluation.workers import answer_clips, answer_in_processes, answer_on_ray
from egohieraloc.paper import settings_for
from egohieraloc.progress import progress_bars
from egohieraloc.settings import override

FILLED_S = 0.5


@dataclass(frozen=True, kw_only=True)
class PosesConfig:
    """What --set can change."""

    sfm: SfmConfig = field(default_factory=SfmConfig)


def poses(
    annotations: Annotated[Path, typer.Option(help="VQ3D's annotations: they name the clips and scans.")],
    clips: Annotated[Path, typer.Option(help="Folder with <clip>.mp4, or a folder of frames for each clip.")],
    out: Annotated[Path, typer.Option(help="Pose file; maps go to the folder of that name beside it.")],
    scans: Annotated[
        Path | None,
        typer.Option(help="<scan>/: five or more images of the scan with cameras.json or positions.txt."),
    ] = None,
    known: Annotated[
        Path | None, typer.Option(help="A pose file with some frames of the clips, to align to.")
    ] = None,
    fill_gaps: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Interpolate between posed frames at most so many seconds apart; 0.5, none with --paper.",
        ),
    ] = None,
    split: score.Split = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with a clip at a time.")] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to run on; 'local' starts one.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of structure from motion, e.g. sfm.overlap=20. Repeatable."
        ),
    ] = None,
    paper: common.Paper = False,
) -> None:
    """Find the camera poses of VQ3D's clips, in metres of their scans. Can be run again."""
    if scans is None and known is None:
        raise DataError("Say what ties the clips to their scans: --scans DIR, --known FILE, or both.")
    if out.suffix != ".json":
        raise DataError(f"The pose file must be called NAME.json, got {out}.")
    wanted = clips_to_pose(read_vq3d(annotations, split=split))
    if not wanted:
        raise DataError("There are no queries. Are these the annotations of the benchmark and split?")
    sfm = override(PosesConfig(), _words(settings, paper=paper)).sfm
    if sfm.num_threads < 0:
        sfm = replace(sfm, num_threads=1 if ray else max(1, threads.usable_cores() // workers))
    filled_s = (0.0 if paper else FILLED_S) if fill_gaps is None else fill_gaps
    maker = PoseClips(
        clips=common.folder(clips),
        out=out.with_suffix("").resolve(),
        sfm=sfm,
        scans=scans and common.folder(scans),
        known=known and common.file(known),
        max_gap_s=filled_s,
    )
    found = _run(wanted, maker, workers, ray)
    _tell(found)
    write_pose_file(out.resolve(), maker.out, found)
    typer.echo(f"Poses are in {out}, maps in {out.with_suffix('')}.")


def _words(settings: Sequence[str] | None, *, paper: bool) -> list[str]:
    """The paper's settings of structure from motion, then those given."""
    printed = [word for word in settings_for((), paper=paper) if word.startswith("sfm.")]
    return [*printed, *(settings or ())]


def _run(
    clips: Sequence[ClipQueries[PlaceQuery]], maker: PoseClips, workers: int, ray: str | None
) -> list[PosedClip]:
    found: list[PosedClip] = []
    try:
        with progress_bars() as progress, closing(_posed(clips, maker, workers, ray)) as posed:
            progress("clips", 0, len(clips))
            for clip in posed:
                found.append(clip)
                progress("clips", len(found), len(clips))
    except KeyboardInterrupt:
        typer.echo("Stopped. What was computed is kept; run the same command to go on.", err=True)
        raise
    order = [clip.name for clip in clips]
    return sorted(found, key=lambda clip: order.index(clip.name))


def _posed(
    clips: Sequence[ClipQueries[PlaceQuery]], maker: PoseClips, workers: int, ray: str | None
) -> Generator[PosedClip, None, None]:
    if ray is not None:
        return answer_on_ray(clips, maker, ray, gpu_share=0)
    if workers > 1:
        return answer_in_processes(clips, maker, min(workers, len(clips)))
    return answer_clips(clips, maker)


def _tell(found: Sequence[PosedClip]) -> None:
    """Every clip without poses, and how many frames of the others have one."""
    posed = [clip for clip in found if not clip.reason]
    for clip in found:
        if clip.reason:
            typer.echo(f"Clip {clip.name} has no poses: {clip.reason}")
    if not posed:
        raise DataError(f"None of the {len(found)} clips has poses.")
    frames, with_pose = sum(clip.num_frames for clip in posed), sum(clip.num_posed for clip in posed)
    typer.echo(
        f"{len(posed)} of {len(found)} clips have poses: {with_pose} of their {frames} frames "
        f"({100 * with_pose / frames:.1f} %)."
    )
