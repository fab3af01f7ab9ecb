"""Batches of footage, loaded ahead by worker processes; each training process loads its own part only."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import cv2
import torch
from torch.utils.data import DataLoader

from egohieraloc.children import safe_start
from egohieraloc.training.batches import ClipBatch
from egohieraloc.training.footage.clips import FootageClips
from egohieraloc.training.footage.footage import Footage, FootageConfig
from egohieraloc.training.footage.frame_store import FrameStore
from egohieraloc.training.footage.from_ego4d import Ego4dFootage
from egohieraloc.training.footage.from_visor import VisorFootage
from egohieraloc.training.footage.pseudo_masks import MaskCache

AHEAD = 2  # batches that each worker prepares
AS_UINT8 = ("query", "query_mask", "frames", "masks", "distractor_masks")


def ego4d_footage(config: FootageConfig, data: Path) -> Ego4dFootage:
    masks = MaskCache(data / config.pseudo_masks)
    store = FrameStore(data / config.frames)
    return Ego4dFootage(data / config.annotations, data / config.clips, masks, store)


def open_footage(config: FootageConfig, data: Path) -> list[Footage]:
    """The data sets to train on; fails if their masks are missing."""
    ego4d = ego4d_footage(config, data)
    ego4d.require_masks()
    if config.visor_share == 0:
        return [ego4d]
    images = data / config.visor_images
    return [ego4d, VisorFootage(data / config.visor, images, dense=config.visor_dense)]


class LoadedClips:
    """A `ClipSource`: the clips of each step with the given indices in its batch.

    Steps are expected in order; any other step restarts the workers.
    """

    def __init__(
        self, clips: FootageClips, indices: Sequence[int], *, workers: int, device: torch.device
    ) -> None:
        self._clips, self._indices, self._workers, self._device = clips, indices, workers, device
        self._next = -1
        self._loaded: Iterator[ClipBatch] = iter(())

    def __call__(self, step: int) -> ClipBatch:
        if step != self._next:
            with safe_start():
                self._loaded = iter(self._loader(step))
        self._next = step + 1
        values = vars(next(self._loaded))
        moved = {name: value.to(self._device, non_blocking=True) for name, value in values.items()}
        return ClipBatch(**moved | {name: moved[name].float() / 255 for name in AS_UINT8})

    def _loader(self, start: int) -> DataLoader[ClipBatch]:
        return DataLoader(
            self._clips,  # type: ignore[arg-type]
            batch_sampler=([(step, index) for index in self._indices] for step in count(start)),
            num_workers=self._workers,
            collate_fn=ClipBatch.cat,
            prefetch_factor=AHEAD if self._workers else None,
            multiprocessing_context=_worker_context() if self._workers else None,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=_start_worker,
            generator=torch.Generator(),  # otherwise the loader uses the run's global one
        )


def _worker_context() -> BaseContext:
    """Start workers without forking this process, which the threads of OpenCV and CUDA would not survive."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([FootageClips.__module__])
    return context


def _start_worker(worker: int) -> None:
    """OpenCV in one thread per worker, as there are many workers; and a watch over the training process.

    Workers are children of a server, so nothing else ends them when that process is killed.
    """
    cv2.setNumThreads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
