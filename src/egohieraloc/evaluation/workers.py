"""Clips worked on one after the other, in several processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from egohieraloc.children import end_with_parent, safe_start
from egohieraloc.data.base import ClipQueries, HasKey
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.evaluation.predictions import Answer
from egohieraloc.ray_cluster import ray_cluster

AnswerQuery = Callable[[Any], Answer]
AnswerT = TypeVar("AnswerT", covariant=True)
RETRIES = 3  # of a clip whose worker on a Ray cluster died
GPU_SHARE = 0.25  # of a GPU, for each clip in progress on a Ray cluster that has some


class OpenClip(Protocol[AnswerT]):
    """A system under evaluation: given a clip, it gets ready (decodes, encodes) and answers queries.

    It is sent to other processes, so it must be picklable: a class, not a closure. A process receives it
    once, so what it loads and keeps in itself is loaded once per process.
    """

    def __call__(self, clip: ClipQueries[Any]) -> AbstractContextManager[Callable[[Any], AnswerT]]: ...


def answer_clips(
    clips: Iterable[ClipQueries[HasKey]], open_clip: OpenClip[AnswerT]
) -> Generator[AnswerT, None, None]:
    """In this process, in order."""
    for clip in clips:
        with open_clip(clip) as answer:
            for query in clip.queries:
                yield answer(query)


def answer_in_processes(
    clips: Sequence[ClipQueries[HasKey]], open_clip: OpenClip[AnswerT], workers: int
) -> Generator[AnswerT, None, None]:
    """In processes of this machine. Each has its own pipe: one that dies loses nothing but its clip."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(clips)
    current: dict[Connection, ClipQueries[HasKey]] = {}
    processes = []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=_work, args=(theirs, open_clip), daemon=True))
            with safe_start():
                processes[-1].start()
            theirs.close()
            current[ours] = waiting.popleft()
            ours.send(current[ours])
        while current:
            for connection in wait(list(current)):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv()
                except (EOFError, ConnectionResetError):
                    raise _died(current[connection]) from None
                if isinstance(message, BaseException):
                    raise message
                if message is not None:
                    yield message
                elif waiting:
                    current[connection] = waiting.popleft()
                    connection.send(current[connection])
                else:
                    del current[connection]
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _work(connection: Connection, open_clip: OpenClip[Any]) -> None:
    """Answer the clips that come through the pipe; None says that a clip is done."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    with suppress(EOFError, OSError):  # the run is over
        while True:
            clip = connection.recv()
            try:
                for answer in answer_clips([clip], open_clip):
                    connection.send(answer)
                connection.send(None)
            except Exception as error:
                error.add_note(f"In the worker at clip {clip.name}:\n{traceback.format_exc()}")
                connection.send(error)
                return


def answer_on_ray(
    clips: Sequence[ClipQueries[HasKey]],
    open_clip: OpenClip[AnswerT],
    address: str,
    *,
    gpu_share: float = GPU_SHARE,
) -> Generator[AnswerT, None, None]:
    """On a Ray cluster, which retries the clip of a worker that died; answers received are not repeated."""
    with ray_cluster(address) as ray:
        share = gpu_share if ray.cluster_resources().get("GPU") else 0
        remote = ray.remote(_work_on_ray).options(
            num_returns="streaming", max_retries=RETRIES, num_gpus=share
        )
        pickled = ray.put(pickle.dumps(open_clip))
        running = {remote.remote(clip, pickled): clip for clip in clips}
        while running:
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            try:
                yield ray.get(next(ready))
            except StopIteration:
                del running[ready]
            except ray.exceptions.WorkerCrashedError:
                raise _died(running[ready]) from None


def _work_on_ray(clip: ClipQueries[HasKey], pickled: bytes) -> Generator[Any, None, None]:
    yield from answer_clips([clip], _unpickled(pickled))


@lru_cache(maxsize=1)
def _unpickled(open_clip: bytes) -> OpenClip[Any]:
    """Ray's workers get it with every clip: unpickling it once keeps what it has loaded."""
    system: OpenClip[Any] = pickle.loads(open_clip)
    return system


def _died(clip: ClipQueries[HasKey]) -> EgoHieraLocError:
    return EgoHieraLocError(
        f"The worker at clip {clip.name} died, perhaps for lack of memory. "
        "Continue with --resume, with fewer workers if memory is short."
    )
