"""Run a system over a benchmark: its answers go to a prediction file, which is then scored.

A clip is opened once (and encoded once) however many queries it has. Every answer is on disk before the next
query is answered, so a run that was stopped can be resumed and ends with the same file.
"""

from __future__ import annotations

import os
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from egohieraloc.data.base import ClipQueries, HasKey, QueryKey, Track
from egohieraloc.errors import DataError
from egohieraloc.evaluation.predictions import Answer, PlaceAnswer, PredictionLog, TrackAnswer, write_own
from egohieraloc.evaluation.workers import OpenClip, answer_clips, answer_in_processes, answer_on_ray
from egohieraloc.files import write_json
from egohieraloc.progress import Progress, no_progress
from egohieraloc.versions import versions


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out, which does not change its answers."""

    workers: int = 1  # processes on this machine
    ray_address: str | None = None  # of a Ray cluster to use instead; "local" starts one
    resume: bool = False  # continue a run that was stopped, instead of refusing to overwrite it


def run_benchmark(
    clips: Sequence[ClipQueries[HasKey]],
    open_clip: OpenClip[Answer],
    path: str | Path,
    *,
    about: Mapping[str, Any],
    execution: Execution | None = None,
    progress: Progress = no_progress,
) -> dict[QueryKey, Answer]:
    """Answer every query and write our prediction file. `about` is its header, see `run_info`."""
    path, execution = Path(path), execution or Execution()
    unfinished = path.with_name(path.name + ".unfinished")
    _check_start(path, unfinished, resume=execution.resume)
    order = [query.key for clip in clips for query in clip.queries]
    benchmark = str(about.get("benchmark", ""))
    with PredictionLog(unfinished, about) as log:
        progress(benchmark, len(log.answers), len(order))
        todo = [_without(clip, log.answers) for clip in clips]
        for clip in todo:
            if clip.clip_uid is None:
                for query in clip.queries:
                    log.add(no_answer(benchmark, query.key, "the annotation file gives this clip no video"))
        answerable = [clip for clip in todo if clip.queries and clip.clip_uid is not None]
        with closing(_answers(answerable, open_clip, execution)) as answers:
            for answer in answers:
                log.add(answer)
                progress(benchmark, len(log.answers), len(order))
    missing = [key for key in order if key not in log.answers]
    if missing:
        raise DataError(f"{len(missing)} queries were not answered, the first is {missing[0]}.")
    ordered = {key: log.answers[key] for key in order}
    write_own(path, about, ordered.values())
    unfinished.unlink(missing_ok=True)
    return ordered


def run_info(benchmark: str, *, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Header of a prediction file and of its results: what was run, with which versions."""
    return {"benchmark": benchmark, "config": dict(config), "seed": seed, "versions": versions()}


def write_results(path: str | Path, about: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    write_json(path, {**about, "results": scores})


def no_answer(benchmark: str, key: QueryKey, reason: str) -> Answer:
    """An answer that says why there is none."""
    if benchmark == "vq3d":
        return PlaceAnswer(key, None, reason=reason)
    return TrackAnswer(key, Track.empty(), 0.0, reason=reason)


def _check_start(path: Path, unfinished: Path, *, resume: bool) -> None:
    existing = next((p for p in (unfinished, path) if p.exists()), None)
    if existing is not None and not resume:
        raise DataError(
            f"{existing} exists already. Resume that run (--resume), remove it, or give another --out."
        )
    if resume and path.exists() and not unfinished.exists():
        os.replace(path, unfinished)


def _without(clip: ClipQueries[HasKey], answered: Container[QueryKey]) -> ClipQueries[HasKey]:
    return replace(clip, queries=tuple(q for q in clip.queries if q.key not in answered))


def _answers(
    clips: Sequence[ClipQueries[HasKey]], open_clip: OpenClip[Answer], execution: Execution
) -> Generator[Answer, None, None]:
    if execution.ray_address is not None:
        return answer_on_ray(clips, open_clip, execution.ray_address)
    if execution.workers > 1:
        return answer_in_processes(clips, open_clip, min(execution.workers, len(clips)))
    return answer_clips(clips, open_clip)
