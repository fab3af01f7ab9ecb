"""OpenVINO graphs on the processor."""

from __future__ import annotations

import atexit
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from egohieraloc.threads import usable_cores

Shape = tuple[int, ...]
MOST_SHAPES = 7  # of frames whose graphs stay compiled
MOST_AT_ONCE = 8  # frames: each takes memory of its own, and a chunk of features has no more


@dataclass(frozen=True)
class PartGraph:
    """An OpenVINO graph as it is stored."""

    xml: bytes
    weights: bytes

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(self.xml + self.weights, digest_size=8).hexdigest()

    def model(self) -> Any:
        return core().read_model(self.xml, self.weights)


class FrameGraph:
    """A graph that runs one frame (or `together`) on each core, several side by side.

    Cores that share a frame wait for each other in every layer, the longer the busier they are. Shapes are
    fixed: with open ones a frame takes longer, and OpenVINO prepares itself for each that it meets.
    """

    def __init__(
        self, model: Any, *, exact: bool = False, together: int = 1, most: int = MOST_SHAPES
    ) -> None:
        """`exact`: in full precision also where the processor is faster in less; `together`: so many frames
        on one core, for a graph of many small layers; `most`: shapes that stay ready."""
        self._model, self._exact, self._together, self._most = model, exact, together, most
        self._ready: dict[tuple[Shape, ...], Future[Any]] = {}
        self._choosing = threading.Lock()  # what is ready
        self._turn = threading.Lock()  # to run: each call takes all cores

    def prepare(self, frames: Sequence[Shape], query: Sequence[Shape] = ()) -> Future[Any]:
        """Compile it, once, beside whatever else is done, for values of a frame and of a query of these
        shapes without their first side."""
        shapes = (*((self._together, *shape) for shape in frames), *((1, *shape) for shape in query))
        with self._choosing:
            pending = self._ready.pop(shapes, None)
            if pending is None or _is_unusable(pending):
                pending = compiler().submit(self._compiled, shapes)
            self._ready[shapes] = pending  # the one used last comes last
            if len(self._ready) > self._most:
                self._ready.pop(next(iter(self._ready))).cancel()
        return pending

    def _compiled(self, shapes: Sequence[Shape]) -> Any:
        import openvino

        model = self._model.clone()
        model.reshape({place: list(shape) for place, shape in enumerate(shapes)})
        at_once = min(usable_cores(), MOST_AT_ONCE)
        options = {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": at_once}
        return openvino.AsyncInferQueue(compile_model(model, exact=self._exact, **options), at_once)

    def __call__(self, frames: Sequence[Tensor], query: Sequence[Tensor] = ()) -> list[Tensor]:
        """What it makes of values of frames (B, ...) and of those of a query (1, tokens, ...)."""
        # NumPy brings images into this order in a quarter of torch's time.
        rows, shared = (
            [np.ascontiguousarray(value.float().numpy()) for value in values] for values in (frames, query)
        )
        count, made = len(rows[0]), dict[int, list[Any]]()

        def keep(request: Any, start: int) -> None:
            made[start] = [tensor.data[: count - start].copy() for tensor in request.output_tensors]

        queue = self.prepare([row.shape[1:] for row in rows], [value.shape[1:] for value in shared]).result()
        starts = range(0, count, self._together)
        with self._turn:
            queue.set_callback(keep)
            try:
                for start in starts:
                    some = [row[start : start + self._together] for row in rows]
                    if count - start < self._together:  # the last one fills up
                        some = [np.resize(row, (self._together, *row.shape[1:])) for row in some]
                    queue.start_async([*some, *shared], start, share_inputs=True)
            finally:
                queue.wait_all()  # also when interrupted: frames under way read `rows`, and call `keep`
        columns = zip(*(made[start] for start in starts), strict=True)
        return [torch.from_numpy(np.concatenate(column)) for column in columns]


def compile_model(model: Any, *, exact: bool = False, **options: Any) -> Any:
    """`exact`: in full precision also where the processor is faster in less."""
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": usable_cores()} | options
    if exact:
        options["INFERENCE_PRECISION_HINT"] = "f32"
    return core().compile_model(model, "CPU", options)


@cache
def compiler() -> ThreadPoolExecutor:
    """What compiles graphs."""
    pool = ThreadPoolExecutor(usable_cores())
    # Else the end of a program waits for all that is in it, which concurrent.futures asks for in the same
    # way; what `atexit` calls comes too late.
    at_end = getattr(threading, "_register_atexit", atexit.register)
    at_end(partial(pool.shutdown, cancel_futures=True))
    return pool


def stop_compiling() -> None:
    """Graphs that nobody has begun to compile are left, as at the end of the program."""
    compiler().shutdown(cancel_futures=True)
    compiler.cache_clear()


def _is_unusable(pending: Future[Any]) -> bool:
    return pending.done() and (pending.cancelled() or pending.exception() is not None)


@cache
def core() -> Any:
    import openvino

    return openvino.Core()
