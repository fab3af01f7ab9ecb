"""Videos read on many machines: a Ray cluster, one task for each segment of a video.

All machines see the same files: the videos, and the folder of features. A task writes the same atomic chunks
that reading on one machine writes, and gives back thumbnails; one whose worker dies is done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from egohieraloc.config import SearchConfig
from egohieraloc.errors import EgoHieraLocError
from egohieraloc.inference.chunks import PHASES, chunks_with
from egohieraloc.localize import Localizer, LocalizerConfig
from egohieraloc.memory.library import Memory
from egohieraloc.memory.thumbnails import slots, to_jpeg, watched
from egohieraloc.progress import Progress, no_progress
from egohieraloc.ray_cluster import ray_cluster
from egohieraloc.types import Rgb, VideoSource
from egohieraloc.video.reader import Video

SEGMENT_SAMPLES = 1024  # some three minutes: a multiple of a stretch, and what is lost with a worker
RETRIES = 3  # of a segment whose worker died
GPU_SHARE = 0.25  # of a GPU, for each segment in work
IN_FLIGHT = 2  # segments handed out for every worker: the others wait here
Thumbnail = tuple[int, float, bytes]  # slot, time in seconds, JPEG


@dataclass(frozen=True)
class System:
    """What a worker needs to make a Localizer of its own."""

    model: str
    device: str | None
    engine: str  # the one of whoever asks: what another one makes are other features
    fps: float | None
    settings: tuple[str, ...]
    cache: Path


@dataclass(frozen=True)
class Segment:
    """Samples first <= sample < last of a video of the library."""

    video_id: str
    source: VideoSource
    first: int
    last: int


def segments(video_id: str, source: VideoSource, count: int) -> list[Segment]:
    """A video of `count` samples, cut up."""
    return [
        Segment(video_id, source, first, min(first + SEGMENT_SAMPLES, count))
        for first in range(0, count, SEGMENT_SAMPLES)
    ]


def read_on_ray(
    memory: Memory,
    videos: Sequence[Video],
    system: System,
    address: str,
    *,
    start: datetime | None = None,
    zone: tzinfo | None = None,
    progress: Progress = no_progress,
) -> None:
    """Read all that is new of some videos on a cluster; `Memory.add` then finds their features there.
    Nothing is noted of them before the cluster is there."""
    with ray_cluster(address) as ray:
        wanted: list[Segment] = []
        for video in videos:
            entry = memory.begin(video, start=start, zone=zone)
            if not entry.ready:
                wanted += segments(entry.id, video.source, len(video.sample_indices(system.fps)))
        for done, (segment, thumbnails) in enumerate(_on_ray(ray, wanted, system), start=1):
            memory.videos.add_thumbnails(segment.video_id, thumbnails)
            progress("encode", done, len(wanted))


def _on_ray(ray: Any, wanted: Sequence[Segment], system: System) -> Iterator[tuple[Segment, list[Thumbnail]]]:
    share = GPU_SHARE if ray.cluster_resources().get("GPU") else 0
    remote = ray.remote(read_segment).options(max_retries=RETRIES, num_gpus=share)
    width = IN_FLIGHT * max(1, int(ray.cluster_resources().get("CPU", 1)))
    left = iter(wanted)
    running: dict[Any, Segment] = {remote.remote(system, s): s for s in islice(left, width)}
    while running:
        (ready, *_), _ = ray.wait(list(running), num_returns=1)
        segment = running.pop(ready)
        try:
            yield segment, ray.get(ready)
        except ray.exceptions.WorkerCrashedError:
            raise EgoHieraLocError(
                f"Workers died {RETRIES + 1} times while they read {segment.source.path}, perhaps for "
                "lack of memory. What was read is kept; run the same command to go on."
            ) from None
        running |= {remote.remote(system, s): s for s in islice(left, 1)}


def read_segment(system: System, segment: Segment) -> list[Thumbnail]:
    """Make the features of a segment where they are missing; its thumbnails. Runs in a worker."""
    localizer, video = _localizer(system), _video(segment.source)
    sampled = video.sampled(system.fps)
    wanted = slots(sampled)
    times_s = dict(zip(sampled.frame_index.tolist(), sampled.time_s.tolist(), strict=True))
    made: dict[int, Thumbnail] = {}

    def see(index: int, rgb: Rgb) -> None:
        if index in wanted:
            made[index] = (wanted[index], times_s[index], to_jpeg(rgb))

    encoded = localizer.encode(watched(video, see), until_s=0.0)  # nothing yet
    encoded.fill(chunks_with(range(segment.first, segment.last, PHASES)))
    return list(made.values())


@lru_cache(maxsize=1)
def _localizer(system: System) -> Localizer:
    config = LocalizerConfig(search=SearchConfig(fps=system.fps))
    return Localizer.from_pretrained(
        system.model,
        device=system.device,
        engine=system.engine,
        config=config,
        settings=system.settings,
        cache=system.cache,
    )


@lru_cache(maxsize=2)
def _video(source: VideoSource) -> Video:
    return Video.reopen(source)
