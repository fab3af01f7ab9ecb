"""Camera poses of a video, from the video itself: which samples get one, and the name they are kept under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from egohieraloc.config import SfmConfig
from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.geometry.sfm_process import Anchor, reconstruct
from egohieraloc.progress import Progress, no_progress
from egohieraloc.settings import to_dict
from egohieraloc.types import Frame, Ints, NotLocalized, SampledVideo
from egohieraloc.video.reader import Video


def camera_poses(
    video: Video,
    samples: Ints,
    cache: Path,
    config: SfmConfig,
    *,
    anchors: Sequence[Anchor] = (),
    progress: Progress = no_progress,
) -> Reconstruction | NotLocalized:
    """Poses of the frames `samples` (N,); kept in the cache, so that a second query costs nothing."""
    indices = samples[_spread(len(samples), config.max_frames)]
    same = replace(config, num_threads=-1, max_time_s=0.0)  # neither changes the poses
    key = hashlib.blake2b(f"{video.content_hash} {json.dumps(to_dict(same))}".encode(), digest_size=12)
    key.update(indices.tobytes())
    for anchor in anchors:
        key.update(repr((anchor.camera, anchor.center_world.tolist())).encode() + anchor.rgb.tobytes())
    return reconstruct(
        _counted(video.frames(indices), len(indices), progress),
        cache / "poses" / f"{key.hexdigest()}.npz",
        config=config,
        focal_px=video.focal_px,
        anchors=anchors,
        progress=lambda stage, done, total: progress(f"poses: {stage}", done, total),
    )


def whole_video_samples(video: Video, searched: SampledVideo) -> Ints:
    """Numbers of the frames that get a pose: all samples of the video, also those after the query time, so
    that poses are computed once a video. Frames that were chosen by hand are taken as they are."""
    samples = video.sample_indices(searched.sample_fps)
    return samples if np.isin(searched.frame_index, samples).all() else searched.frame_index


def _counted(frames: Iterable[Frame], count: int, progress: Progress) -> Iterator[Frame]:
    """Tells how many frames were read, and so lets the reading be stopped."""
    for done, frame in enumerate(frames):
        progress("poses: reading", done, count)
        yield frame


def _spread(count: int, most: int) -> Ints:
    """At most so many of `count` samples, evenly spread, the last one (the query time) among them."""
    return np.unique(np.linspace(count - 1, 0, min(count, most)).round().astype(np.int64))
