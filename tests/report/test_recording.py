"""A Rerun recording, read back: all entities are there, on the video's time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from egohieraloc.errors import MissingExtraError
from egohieraloc.geometry.camera import Camera
from egohieraloc.images import write_image
from egohieraloc.report.recording import TIMELINE, write_recording
from egohieraloc.result import Result
from egohieraloc.types import DEVIATIONS_95, Localization3D, NotFound, ResponseTrack, ScoreCurve
from egohieraloc.video.reader import Video
from made_up import SAMPLES, cameras, result, track

IMAGE = "/world/camera/image"


@pytest.fixture
def answer(tmp_path: Path) -> Result:
    """Twelve samples of a video of 1280x960, so that images are shrunk by two; every frame is a sample."""
    for number in range(SAMPLES):
        write_image(tmp_path / "frames" / f"{number:02d}.png", np.full((960, 1280, 3), 10 * number, np.uint8))
    smooth = np.linspace(0, 1, SAMPLES)
    return result(
        video=Video.open(tmp_path / "frames", folder_fps=5).sampled(),
        track=every_frame(track(8, 10, 0.87)),
        alternatives=(every_frame(track(2, 3, 0.6)),),
        curve=ScoreCurve(np.arange(SAMPLES) / 5, smooth, smooth, 0.5, ((8, 10),)),
        cameras=cameras(camera=Camera("PINHOLE", 1280, 960, (900.0, 900.0, 640.0, 480.0))),
    )


def every_frame(made_up: ResponseTrack) -> ResponseTrack:
    """The made-up track counts frames of a file at 15 a second."""
    return replace(made_up, predictions=tuple(replace(p, frame_index=p.sample) for p in made_up))


def entities(path: Path) -> dict[str, list[Any]]:
    """Chunks of the recording by entity."""
    from rerun.chunk import RrdReader

    found: dict[str, list[Any]] = {}
    for chunk in RrdReader(path).stream():
        found.setdefault(chunk.entity_path, []).append(chunk)
    return found


def rows(chunks: list[Any], component: str) -> list[tuple[float, Any]]:
    """Time in seconds and value of every row that has the component, in order of time."""
    found = []
    for batch in (chunk.to_record_batch() for chunk in chunks):
        if component in batch.schema.names and TIMELINE in batch.schema.names:
            times = batch.column(TIMELINE).cast("int64").to_pylist()
            values = batch.column(component).to_pylist()
            found += [(time / 1e9, value) for time, value in zip(times, values, strict=True) if value]
    return sorted(found, key=lambda row: row[0])


def values(chunks: list[Any], component: str) -> list[Any]:
    """The component's value in every row, whenever."""
    batches = [chunk.to_record_batch() for chunk in chunks]
    return [v for b in batches if component in b.schema.names for v in b.column(component).to_pylist()]


def test_everything_is_on_the_videos_time(answer: Result, tmp_path: Path) -> None:
    pytest.importorskip("rerun.chunk")
    path = tmp_path / "out" / "a.rrd"
    write_recording(path, answer)
    assert [p.name for p in path.parent.iterdir()] == ["a.rrd"]
    found = entities(path)
    assert {"/query", "/query/box", "/world/path", "/world/points", "/world/views", "/world/object"} <= set(
        found
    )
    times = [pytest.approx(i / 5) for i in range(SAMPLES)]
    assert [time for time, _ in rows(found[IMAGE], "EncodedImage:blob")] == times
    assert [time for time, _ in rows(found["/world/camera"], "Transform3D:translation")] == times
    _, turn = rows(found["/world/camera"], "Transform3D:mat3x3")[0]
    assert answer.cameras is not None
    assert isinstance(answer.place, Localization3D)
    assert np.reshape(turn[0], (3, 3)) == pytest.approx(answer.cameras.poses[0].rotation)  # column by column
    [lens] = [v for v in values(found["/world/camera"], "Pinhole:image_from_camera") if v]
    matrix = np.reshape(lens[0], (3, 3)).T
    assert matrix.tolist() == [[450, 0, 320], [0, 450, 240], [0, 0, 1]]
    [turn] = [v for v in values(found["/world/object"], "Transform3D:mat3x3") if v]
    [sizes] = [v for v in values(found["/world/object"], "Ellipsoids3D:half_sizes") if v]
    columns = np.reshape(turn[0], (3, 3)).T
    assert np.linalg.det(columns) == pytest.approx(1)
    assert columns * np.square(sizes[0]) @ columns.T == pytest.approx(
        DEVIATIONS_95**2 * answer.place.covariance
    )
    smooth = rows(found["/score/smooth"], "Scalars:scalars")
    assert [(time, value[0]) for time, value in smooth] == [
        (pytest.approx(t), pytest.approx(v))
        for t, v in zip(answer.curve.time_s, answer.curve.smooth, strict=True)
    ]
    boxes = rows(found[f"{IMAGE}/answer"], "Boxes2D:centers")
    assert [(time, value[0]) for time, value in boxes] == [
        (pytest.approx(s / 5), pytest.approx([(60 + s) / 2, 25])) for s in (8, 9, 10)
    ]
    assert [round(5 * time) for time, _ in rows(found[f"{IMAGE}/mask"], "SegmentationImage:buffer")] == [
        8,
        9,
        10,
    ]
    assert [round(5 * time) for time, _ in rows(found[f"{IMAGE}/other"], "Boxes2D:centers")] == [2, 3]
    cleared = [round(5 * time) for time, _ in rows(found[f"{IMAGE}/answer"], "Clear:is_recursive")]
    assert cleared == [0, 1, 2, 3, 4, 5, 6, 7, 11]


def test_a_miss_in_2d_has_no_space(answer: Result, tmp_path: Path) -> None:
    pytest.importorskip("rerun.chunk")
    lost = Result(answer.query, answer.video, NotFound("too weak"), answer.curve)
    write_recording(tmp_path / "a.rrd", lost)
    found = entities(tmp_path / "a.rrd")
    assert "/world/object" not in found
    assert "/world/camera" not in found
    assert len(rows(found[IMAGE], "EncodedImage:blob")) == SAMPLES


def test_the_missing_package_is_named(
    answer: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(
        MissingExtraError, match=r"'rerun-sdk'. Install it with: pip install 'egohieraloc\[viz\]'"
    ):
        write_recording(tmp_path / "a.rrd", answer)
    assert not (tmp_path / "a.rrd").exists()
