"""Camera poses of a video: what is read is told, and can be stopped."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from egohieraloc import poses
from egohieraloc.config import SfmConfig
from egohieraloc.poses import camera_poses, whole_video_samples
from egohieraloc.types import NotLocalized, SampledVideo, VideoInfo, VideoSource


class Video:
    content_hash = "abc"
    focal_px = None

    def frames(self, indices: Any) -> Any:
        rgb = np.zeros((24, 32, 3), np.uint8)
        return (SimpleNamespace(index=int(i), time_s=i / 10, rgb=rgb) for i in indices)


def test_reading_is_told_and_two_frames_are_too_few(tmp_path: Path) -> None:
    told: list[Any] = []
    found = camera_poses(
        Video(), np.arange(2), tmp_path, SfmConfig(), progress=lambda *step: told.append(step)
    )  # type: ignore[arg-type]
    assert found == NotLocalized("2 frames are too few for camera poses", 0, 2)
    assert told == [("poses: reading", 0, 2), ("poses: reading", 1, 2)]


def test_reading_can_be_stopped(tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        camera_poses(Video(), np.arange(5), tmp_path, SfmConfig(), progress=stop)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("job.json"))  # what is there does not pass for whole


def test_another_query_time_finds_the_same_poses() -> None:
    """All samples of the video get one, whatever was searched; frames chosen by hand are taken as given."""

    class Sampled(Video):
        def sample_indices(self, fps: float) -> Any:
            return np.arange(0, 100, round(10 / fps))

    def searched(frames: Any) -> SampledVideo:
        info = VideoInfo(32, 24, Fraction(10), 100)
        return SampledVideo(VideoSource("v"), info, 5.0, frames, frames / 10)

    for until in (10, 31, 50):
        samples = whole_video_samples(Sampled(), searched(np.arange(0, until, 2)))  # type: ignore[arg-type]
        np.testing.assert_array_equal(samples, np.arange(0, 100, 2))
    odd = np.array([3, 7, 9])
    np.testing.assert_array_equal(whole_video_samples(Sampled(), searched(odd)), odd)  # type: ignore[arg-type]


def test_poses_are_found_again_whatever_their_making_may_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[Path] = []
    monkeypatch.setattr(poses, "reconstruct", lambda frames, path, **options: paths.append(path))
    for config in (SfmConfig(), SfmConfig(num_threads=3, max_time_s=9.0), SfmConfig(overlap=9)):
        camera_poses(Video(), np.arange(5), tmp_path, config)  # type: ignore[arg-type]
    assert paths[0] == paths[1] != paths[2]
