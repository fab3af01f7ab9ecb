"""Run a system over a benchmark: predictions go to a file, the file is scored.

A clip is opened once (and encoded once) however many queries it has. Every answer is on disk before the next
query is asked, so that a stopped run goes on where it was and ends with the same file. Clips may be spread
over processes of this machine or over a Ray cluster; the code that answers is the same.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from egohieraloc.data.base import ClipQueries, HasKey, QueryKey, Track, TrackingPass
from egohieraloc.errors import DataError, EgoHieraLocError, MissingExtraError
from egohieraloc.evaluation.predictions import Answer, PlaceAnswer, PredictionLog, TrackAnswer, write_own
from egohieraloc.files import write_json
from egohieraloc.types import Floats

Ask = Callable[[Any], Answer]
Follow = Callable[[TrackingPass], tuple[Floats, Floats]]
RETRIES = 3  # of a clip whose worker on a Ray cluster died
GPU_SHARE = 0.25  # of a GPU, for each clip in work on a Ray cluster that has some
PACKAGES = ("egohieraloc", "numpy", "torch", "opencv-python-headless", "av", "pycolmap")


class OpenClip(Protocol):
    """What a system is to this module: given a clip, it gets ready (decodes, encodes) and answers queries.

    With several workers it is sent to other processes, so it must be picklable: a class, not a closure.
    """

    def __call__(self, clip: ClipQueries[Any]) -> AbstractContextManager[Ask]: ...


def run(
    clips: Sequence[ClipQueries[HasKey]],
    open_clip: OpenClip,
    path: str | Path,
    *,
    about: Mapping[str, Any],
    workers: int = 1,
    ray_address: str | None = None,
    resume: bool = False,
    show_progress: bool = False,
) -> dict[QueryKey, Answer]:
    """Answer every query and write our prediction file. `about` is its header, see `run_info`."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".unfinished")
    _check_start(path, unfinished, resume)
    order = [query.key for clip in clips for query in clip.queries]
    with PredictionLog(unfinished, about) as log, _progress(show_progress) as progress:
        todo = [_without(clip, log.answers.keys()) for clip in clips]
        task = progress.add_task(
            str(about.get("benchmark", "")), total=len(order), completed=len(log.answers)
        )
        for clip in todo:
            if clip.clip_uid is None:
                for query in clip.queries:
                    log.add(no_answer(about, query.key, "the annotation file gives this clip no video"))
        askable = [clip for clip in todo if clip.queries and clip.clip_uid is not None]
        with closing(_answers(askable, open_clip, workers, ray_address)) as answers:
            for answer in answers:
                log.add(answer)
                progress.update(task, completed=len(log.answers))
    missing = [key for key in order if key not in log.answers]
    if missing:
        raise DataError(f"{len(missing)} queries were not answered, the first is {missing[0]}.")
    ordered = {key: log.answers[key] for key in order}
    write_own(path, about, ordered.values())
    unfinished.unlink()
    return ordered


def run_info(benchmark: str, *, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Header of a prediction file and of its results: what was run, with which versions."""
    return {"benchmark": benchmark, "config": dict(config), "seed": seed, "versions": versions()}


def versions() -> dict[str, str]:
    """Of Python, this package and those that numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def write_results(path: str | Path, about: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
    write_json(path, {**about, "results": scores})


def no_answer(about: Mapping[str, Any], key: QueryKey, reason: str) -> Answer:
    if about.get("benchmark") == "vq3d":
        return PlaceAnswer(key, None, reason=reason)
    return TrackAnswer(key, Track.empty(), 0.0, reason=reason)


def answer_by_following(key: QueryKey, passes: Sequence[TrackingPass], follow: Follow) -> TrackAnswer:
    """A tracking benchmark's answer from a tracker that gives boxes (N, 4) and scores (N,) for each pass.

    Where two passes share a frame, which is where both start, the first counts.
    """
    frames, boxes, scores = [], [], []
    for way in passes:
        found_boxes, found_scores = follow(way)
        if found_boxes.shape != (len(way.frames), 4) or found_scores.shape != (len(way.frames),):
            raise EgoHieraLocError(
                f"The tracker gave {found_boxes.shape} boxes for {len(way.frames)} frames."
            )
        frames.append(way.frames)
        boxes.append(found_boxes)
        scores.append(found_scores)
    numbers, first = np.unique(np.concatenate(frames), return_index=True)
    of_frames = np.concatenate(scores)[first]
    track = Track(numbers, np.concatenate(boxes)[first])
    return TrackAnswer(key, track, float(of_frames.max()), frame_scores=of_frames)


def _check_start(path: Path, unfinished: Path, resume: bool) -> None:
    there = next((p for p in (unfinished, path) if p.exists()), None)
    if there is not None and not resume:
        raise DataError(
            f"{there} exists already. Resume that run (--resume), remove it, or give another --out."
        )
    if resume and path.exists() and not unfinished.exists():
        os.replace(path, unfinished)


def _without(clip: ClipQueries[HasKey], answered: Any) -> ClipQueries[HasKey]:
    return replace(clip, queries=tuple(q for q in clip.queries if q.key not in answered))


def _answers(
    clips: Sequence[ClipQueries[HasKey]], open_clip: OpenClip, workers: int, ray_address: str | None
) -> Generator[Answer, None, None]:
    if ray_address is not None:
        return _on_ray(clips, open_clip, ray_address)
    if workers > 1:
        return _in_processes(clips, open_clip, min(workers, len(clips)))
    return (answer for clip in clips for answer in _of_clip(clip, open_clip))


def _of_clip(clip: ClipQueries[HasKey], open_clip: OpenClip) -> Generator[Answer, None, None]:
    with open_clip(clip) as ask:
        for query in clip.queries:
            yield ask(query)


def _in_processes(
    clips: Sequence[ClipQueries[HasKey]], open_clip: OpenClip, workers: int
) -> Generator[Answer, None, None]:
    """Each worker has a pipe of its own: one that dies takes nothing along but its clip."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(clips)
    at: dict[Connection, ClipQueries[HasKey]] = {}
    processes = []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=_serve, args=(theirs, open_clip), daemon=True))
            processes[-1].start()
            theirs.close()
            at[ours] = waiting.popleft()
            ours.send(at[ours])
        while at:
            for connection in wait(list(at)):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv()
                except (EOFError, ConnectionResetError):
                    raise _died(at[connection]) from None
                if isinstance(message, BaseException):
                    raise message
                if message is not None:
                    yield message
                elif waiting:
                    at[connection] = waiting.popleft()
                    connection.send(at[connection])
                else:
                    del at[connection]
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _serve(connection: Connection, open_clip: OpenClip) -> None:
    """Answer the clips that come through the pipe; None says that a clip is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run stops its workers
    with suppress(EOFError, OSError):  # the run is over
        while True:
            clip = connection.recv()
            try:
                for answer in _of_clip(clip, open_clip):
                    connection.send(answer)
                connection.send(None)
            except Exception as error:
                error.add_note(f"In the worker at clip {clip.name}:\n{traceback.format_exc()}")
                connection.send(error)
                return


def _on_ray(
    clips: Sequence[ClipQueries[HasKey]], open_clip: OpenClip, address: str
) -> Generator[Answer, None, None]:
    """Ray repeats the clip of a worker that died, a few times; answers already here do not come again."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "scale") from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=None if address == "local" else address, log_to_driver=False)
    try:
        share = GPU_SHARE if ray.cluster_resources().get("GPU") else 0
        remote = ray.remote(_of_clip).options(num_returns="streaming", max_retries=RETRIES, num_gpus=share)
        running = {remote.remote(clip, open_clip): clip for clip in clips}
        while running:
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            try:
                yield ray.get(next(ready))
            except StopIteration:
                del running[ready]
            except ray.exceptions.WorkerCrashedError:
                raise _died(running[ready]) from None
    finally:
        if started:
            ray.shutdown()


def _died(clip: ClipQueries[HasKey]) -> EgoHieraLocError:
    return EgoHieraLocError(
        f"The worker at clip {clip.name} died; was there too little memory? "
        "Go on with --resume, perhaps with fewer workers."
    )


def _progress(show: bool) -> Any:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, disable=not show)
    return bar if show else nullcontext(bar)
