"""Poses from rendered images with known truth, and what happens when the process does not come back."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pycolmap
import pytest

from box_world import Shot, object_box, object_center, ring, walk
from egohieraloc.config import SfmConfig
from egohieraloc.errors import GeometryError, OutputError
from egohieraloc.geometry import mapping, sfm
from egohieraloc.geometry import sfm_process as module
from egohieraloc.geometry.align import align_to_positions, fit_sim3
from egohieraloc.geometry.camera import Camera
from egohieraloc.geometry.place import place
from egohieraloc.geometry.reconstruction import Reconstruction, load, save
from egohieraloc.geometry.resection import resect_followed
from egohieraloc.geometry.sfm_job import SfmJob
from egohieraloc.geometry.sfm_process import Anchor, reconstruct
from egohieraloc.types import Frame, FramePrediction, Localization3D, NotLocalized

QUICK = SfmConfig(max_features=600, num_threads=1)


def blank_frames(count: int = 4) -> list[Frame]:
    return [Frame(6 * i, i / 5, np.zeros((48, 64, 3), np.uint8)) for i in range(count)]


def must_not_be_read():
    raise AssertionError("the frames were read although the answer was there")
    yield


def replace_process(monkeypatch, script: str) -> None:
    """Let another program run in place of structure from motion."""
    start = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen:
        return start([sys.executable, "-c", script, command[-1]], **options)

    monkeypatch.setattr(module.subprocess, "Popen", popen)


def kept(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def check_place(shots: list[Shot], world: Reconstruction) -> None:
    """Within 3 % of its distance and 2 degrees, with depth from the points of the reconstruction alone."""
    seen = [(shot.frame, box) for shot in shots if (box := object_box(shot))]
    track = [FramePrediction(frame.index, k, frame.time_s, 1.0, box) for k, (frame, box) in enumerate(seen)]
    answer = place(track, world, query_time_s=shots[-1].frame.time_s)
    assert isinstance(answer, Localization3D), answer
    wanted = shots[-1].pose.to_cam(object_center())
    cosine = answer.displacement @ wanted / np.linalg.norm(answer.displacement) / np.linalg.norm(wanted)
    assert np.linalg.norm(answer.displacement - wanted) < 0.03 * np.linalg.norm(wanted)
    assert np.degrees(np.arccos(cosine)) < 2


def test_a_rendered_walk_is_posed_and_its_object_is_placed(tmp_path):
    shots = walk(16)
    stages: list[str] = []
    found = reconstruct(
        [shot.frame for shot in shots],
        tmp_path / "walk.npz",
        config=QUICK,
        progress=lambda stage, done, total: stages.append(stage),
    )
    assert isinstance(found, Reconstruction), found
    assert found.num_posed >= 0.95 * len(shots)
    assert {"features", "matching", "mapping"} <= set(stages)
    truth = {shot.frame.index: shot.pose.center_world for shot in shots}
    metric, alignment = align_to_positions(found, truth, max_error=0.05)
    assert alignment.rmse < 0.01
    assert found.camera.focal[0] == pytest.approx(280, rel=0.02)
    check_place(shots, metric)
    # The second question costs nothing: the frames are not even read.
    again = reconstruct(must_not_be_read(), tmp_path / "walk.npz", config=QUICK)
    assert isinstance(again, Reconstruction)
    assert kept(tmp_path) == ["walk.npz"]
    # A damaged cache is noticed.
    (tmp_path / "walk.npz").write_bytes(b"damaged")
    with pytest.raises(AssertionError, match="were read"):
        reconstruct(must_not_be_read(), tmp_path / "walk.npz", config=QUICK)


def path_error(found: Reconstruction | NotLocalized, shots: list[Shot]) -> float:
    """Root mean square distance of all camera centres from the true ones after the best Sim3."""
    assert isinstance(found, Reconstruction), found
    assert found.num_posed == len(shots)
    source = np.array([found.poses[shot.frame.index].center_world for shot in shots])
    target = np.array([shot.pose.center_world for shot in shots])
    return float(np.sqrt(((fit_sim3(source, target).points(source) - target) ** 2).sum(1).mean()))


def test_a_walk_that_returns_needs_its_loop(tmp_path):
    """A turn and a fifth, each frame matched with the next two: without frames that look alike it drifts."""
    shots = ring(40, turns=1.2)
    error = {}
    for loops in (4, 0):
        config = SfmConfig(max_features=300, num_threads=1, overlap=2, loop_neighbours=loops)
        found = reconstruct(
            [s.frame for s in shots], tmp_path / f"{loops}.npz", config=config, focal_px=280.0
        )
        error[loops] = path_error(found, shots)
    assert error[4] < 0.01  # of a circle with radius 0.9
    assert error[0] > 4 * error[4]


@pytest.mark.slow
def test_rendered_walk_with_frames_left_for_registration(tmp_path):
    """Must show: 95 % posed, place within 3 % of its distance, direction within 2 degrees."""
    shots = walk(48)
    config = SfmConfig(max_map_frames=30)
    found = reconstruct([shot.frame for shot in shots], tmp_path / "walk.npz", config=config, focal_px=300.0)
    assert isinstance(found, Reconstruction), found
    assert found.num_posed >= 0.95 * len(shots)
    truth = {shot.frame.index: shot.pose.center_world for shot in shots}
    metric, alignment = align_to_positions(found, truth, max_error=0.05)
    assert alignment.rmse < 0.01
    check_place(shots, metric)


@pytest.mark.slow
@pytest.mark.parametrize("known_lens", [True, False])
def test_renders_of_known_position_make_the_path_metric(tmp_path, known_lens):
    """Six renders by another camera, one with a wrong position, are registered into the map first."""
    shots = walk(16)
    other = Camera("PINHOLE", 320, 240, (240.0, 240.0, 160.0, 120.0))
    lens = other if known_lens else None
    renders = walk(14, camera=other)[::2]
    anchors = [Anchor(render.frame.rgb, lens, render.pose.center_world) for render in renders]
    anchors[2] = Anchor(anchors[2].rgb, lens, anchors[2].center_world + 3.0)
    found = reconstruct([s.frame for s in shots], tmp_path / "walk.npz", config=QUICK, anchors=anchors)
    assert isinstance(found, Reconstruction), found
    assert found.unit == "m"
    assert len(found.frames) == 16
    for shot in shots:
        np.testing.assert_allclose(
            found.poses[shot.frame.index].center_world, shot.pose.center_world, atol=0.03
        )
    check_place(shots, found)
    few = reconstruct([s.frame for s in shots], tmp_path / "few.npz", config=QUICK, anchors=anchors[:4])
    assert isinstance(few, Reconstruction)
    assert few.unit == "sfm"


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [SfmConfig(mapper="global"), SfmConfig(calibration_frames=12, focal_factor=1.2)],
    ids=["global", "calibration"],
)
def test_other_ways_to_a_map(tmp_path, config):
    shots = walk(16)
    found = reconstruct([shot.frame for shot in shots], tmp_path / "walk.npz", config=config)
    assert isinstance(found, Reconstruction), found
    assert found.num_posed >= 15
    truth = {shot.frame.index: shot.pose.center_world for shot in shots}
    assert align_to_positions(found, truth, max_error=0.05)[1].rmse < 0.01


@pytest.mark.slow
def test_a_fisheye_walk_with_a_guess_far_off(tmp_path):
    """The guess is 0.9 image widths, more than twice the true 0.41."""
    lens = Camera("SIMPLE_RADIAL_FISHEYE", 320, 240, (130.0, 160.0, 120.0, -0.03))
    shots = walk(20, camera=lens)
    config = SfmConfig(max_features=600, camera_model="SIMPLE_RADIAL_FISHEYE")
    found = reconstruct([shot.frame for shot in shots], tmp_path / "fisheye.npz", config=config)
    assert isinstance(found, Reconstruction), found
    assert found.num_posed >= 19
    np.testing.assert_allclose(found.camera.params, lens.params, rtol=0.02)
    truth = {shot.frame.index: shot.pose.center_world for shot in shots}
    assert align_to_positions(found, truth, max_error=0.05)[1].rmse < 0.01


def test_anchors_share_one_camera(tmp_path):
    cameras = [Camera("PINHOLE", 64, 48, (focal, focal, 32.0, 24.0)) for focal in (50.0, 60.0)]
    anchors = [Anchor(np.zeros((48, 64, 3), np.uint8), camera, np.zeros(3)) for camera in cameras]
    with pytest.raises(GeometryError, match="one camera"):
        reconstruct(blank_frames(), tmp_path / "anchors.npz", anchors=anchors)
    sizes = [Anchor(np.zeros((height, 64, 3), np.uint8), None, np.zeros(3)) for height in (48, 40)]
    with pytest.raises(GeometryError, match="one camera"):
        reconstruct(blank_frames(), tmp_path / "sizes.npz", anchors=sizes)


def test_images_without_features_are_a_reason_not_a_crash(tmp_path):
    answer = reconstruct(blank_frames(), tmp_path / "blank.npz", config=QUICK)
    assert isinstance(answer, NotLocalized)
    assert "no frame has a feature" in answer.reason
    assert answer.num_frames == 4


def test_two_processes_with_one_file_take_turns(tmp_path, monkeypatch):
    log = tmp_path / "log"
    note = f"print(word, file=open({str(log)!r}, 'a'))"
    replace_process(
        monkeypatch,
        f"import time\nfor word in ('begins', 'ends'):\n    {note}\n    time.sleep(0.3)",
    )
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(reconstruct, blank_frames(), tmp_path / "both.npz", config=QUICK) for _ in range(2)
        ]
        assert all(isinstance(answer.result(), NotLocalized) for answer in runs)
    assert log.read_text().split() == ["begins", "ends"] * 2


def test_a_killed_process_is_a_reason_and_the_next_try_goes_on(tmp_path, monkeypatch):
    replace_process(monkeypatch, f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    answer = reconstruct(blank_frames(), tmp_path / "dies.npz", config=QUICK)
    assert isinstance(answer, NotLocalized)
    assert "ended early (code -9)" in answer.reason
    assert (tmp_path / "dies.work" / "log.txt").exists()
    assert SfmJob.read(tmp_path / "dies.work").frame_index == (0, 6, 12, 18)
    again = replace(QUICK, num_threads=2)  # which does not change the poses
    reconstruct(must_not_be_read(), tmp_path / "dies.npz", config=again)  # the images are there


def test_a_run_stopped_among_the_features_goes_on_with_the_same_camera(tmp_path, monkeypatch):
    shots = walk(5)
    replace_process(monkeypatch, "raise SystemExit(1)")
    reconstruct([shot.frame for shot in shots], tmp_path / "stopped.npz", config=QUICK)
    folder = tmp_path / "stopped.work"
    job = SfmJob.read(folder)
    mapping.extract(folder, job, [0, 1])
    mapping.extract(folder, job, range(5))
    database = pycolmap.Database.open(folder / "database.db")
    assert {image.camera_id for image in database.read_all_images()} == {1}
    assert (database.num_images(), database.num_cameras()) == (5, 1)
    database.close()


def test_a_run_killed_at_its_end_goes_on_to_the_same_poses(tmp_path, monkeypatch):
    """The second run finds the calibrated camera and the matches of all stages, and must not profit."""
    replace_process(monkeypatch, "raise SystemExit(1)")
    config = replace(QUICK, max_map_frames=9, calibration_frames=10)
    reconstruct([shot.frame for shot in walk(12)], tmp_path / "killed.npz", config=config)
    folder = tmp_path / "killed.work"
    found = []
    for _ in range(2):
        sfm.main(folder)
        found.append(load(folder / "result.npz"))
        (folder / "result.npz").unlink()
    first, second = found
    assert first.num_posed == 12
    assert first.camera == second.camera
    for one, other in zip(first.frames, second.frames, strict=True):
        assert np.array_equal(one.pose.cam_from_world, other.pose.cam_from_world)
    assert np.array_equal(first.points.xyz_world, second.points.xyz_world)


@pytest.mark.parametrize("matched", [True, False])
def test_frames_that_points_cannot_be_followed_into_are_matched_or_added_to_the_map(
    tmp_path, monkeypatch, matched
):
    shots = walk(16)
    replace_process(monkeypatch, "raise SystemExit(1)")
    config = replace(QUICK, max_map_frames=10)
    reconstruct([shot.frame for shot in shots], tmp_path / "lost.npz", config=config, focal_px=280.0)
    monkeypatch.setattr(sfm, "resect_followed", lambda *_: {})
    if not matched:
        monkeypatch.setattr(sfm, "resect_matched", lambda *_: {})
    sfm.main(tmp_path / "lost.work")
    assert path_error(load(tmp_path / "lost.work" / "result.npz"), shots) < 0.01


def test_a_pose_that_most_followed_points_contradict_is_dropped(tmp_path, monkeypatch):
    replace_process(monkeypatch, "raise SystemExit(1)")
    config = replace(QUICK, max_map_frames=10)
    reconstruct([shot.frame for shot in walk(16)], tmp_path / "wrong.npz", config=config, focal_px=280.0)
    wrong: list[int] = []

    def shifted(*arguments):
        found = resect_followed(*arguments)
        position, frame = next(iter(found.items()))
        tracks = [replace(track, pixels=track.pixels[::-1]) for track in frame.tracks]
        wrong.append(SfmJob.read(tmp_path / "wrong.work").frame_index[position])
        return {**found, position: replace(frame, tracks=tuple(tracks))}

    monkeypatch.setattr(sfm, "resect_followed", shifted)
    sfm.main(tmp_path / "wrong.work")
    found = load(tmp_path / "wrong.work" / "result.npz")
    assert [frame.index for frame in found.frames if frame.pose is None] == wrong
    with pycolmap.Database.open(tmp_path / "wrong.work" / "database.db") as database:
        assert (
            database.num_images() == 10
        )  # points are followed into the other frames: these need no features


def test_small_images_are_doubled_only_where_features_are_few(tmp_path, monkeypatch):
    shots = walk(3)
    replace_process(monkeypatch, "raise SystemExit(1)")
    found = {}
    for limit in (0, 10_000):
        monkeypatch.setattr(mapping, "_FEW_FEATURES", limit)
        config = SfmConfig(num_threads=1)
        reconstruct([shot.frame for shot in shots], tmp_path / f"few{limit}.npz", config=config)
        folder = tmp_path / f"few{limit}.work"
        mapping.extract(folder, SfmJob.read(folder), range(3))
        database = pycolmap.Database.open(folder / "database.db")
        found[limit] = database.num_keypoints()
        database.close()
    assert found[10_000] > 1.3 * found[0] > 0


def test_adjustments_end_when_a_step_hardly_helps(tmp_path, monkeypatch):
    """The mapper's own default goes on for all of its iterations, which costs twice as much."""
    replace_process(monkeypatch, "raise SystemExit(1)")
    reconstruct(blank_frames(), tmp_path / "key.npz", config=QUICK)
    given = []
    monkeypatch.setattr(
        pycolmap, "incremental_mapping", lambda *paths, input_path: given.append(paths[-1]) or {}
    )
    folder = tmp_path / "key.work"
    assert mapping.map_images(folder, SfmJob.read(folder), range(4)) == []
    (options,) = given
    assert 0 < options.ba_global_function_tolerance <= 1e-3
    assert 0 < options.ba_local_function_tolerance <= 1e-3


def test_other_settings_start_afresh(tmp_path, monkeypatch):
    replace_process(monkeypatch, "raise SystemExit(1)")
    reconstruct(blank_frames(), tmp_path / "key.npz", config=QUICK)
    reconstruct(blank_frames(5), tmp_path / "key.npz", config=SfmConfig(overlap=3))
    assert len(SfmJob.read(tmp_path / "key.work").frame_index) == 5


def test_killed_from_outside_in_the_middle(tmp_path, monkeypatch):
    """The real process, killed while it works."""
    started: list[subprocess.Popen] = []
    start = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen:
        started.append(start(command, **options))
        return started[0]

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    answer = reconstruct(
        [shot.frame for shot in walk(8)],
        tmp_path / "killed.npz",
        config=QUICK,
        progress=lambda stage, done, total: started[0].kill(),
    )
    assert isinstance(answer, NotLocalized)
    assert "ended early (code -9)" in answer.reason
    assert not (tmp_path / "killed.npz").exists()


def test_too_slow_is_a_reason(tmp_path, monkeypatch):
    replace_process(monkeypatch, "import time; time.sleep(60)")
    answer = reconstruct(blank_frames(), tmp_path / "slow.npz", config=SfmConfig(max_time_s=0.5))
    assert isinstance(answer, NotLocalized)
    assert "longer than 0.5 s" in answer.reason


def test_progress_ignores_what_is_not_progress(tmp_path, monkeypatch):
    replace_process(
        monkeypatch,
        'print(\'hello\'); print(\'[1]\'); print(\'{"stage": "matching", "done": 3, "total": 8}\')',
    )
    heard = []
    reconstruct(blank_frames(), tmp_path / "talk.npz", config=QUICK, progress=lambda *a: heard.append(a))
    assert heard == [("matching", 3, 8)]


def test_few_frames_and_bad_input(tmp_path):
    assert "2 frames are too few" in reconstruct(blank_frames(2), tmp_path / "few.npz").reason
    assert kept(tmp_path) == []
    odd = [*blank_frames(3), Frame(9, 1.0, np.zeros((10, 10, 3), np.uint8))]
    with pytest.raises(GeometryError, match="frame 9 is 10x10"):
        reconstruct(odd, tmp_path / "odd.npz")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Choose a folder"):
        reconstruct(blank_frames(), tmp_path / "file" / "here.npz")


def test_large_frames_are_reduced_and_the_answer_is_in_their_own_pixels(tmp_path):
    shots = walk(8, turn_deg=20.0)
    large = [
        Frame(s.frame.index, s.frame.time_s, np.kron(s.frame.rgb, np.ones((2, 2, 1), np.uint8)))
        for s in shots
    ]
    config = SfmConfig(max_features=600, num_threads=1, max_image_side=320)
    found = reconstruct(large, tmp_path / "large.npz", config=config, focal_px=560.0)
    assert isinstance(found, Reconstruction), found
    assert (found.camera.width, found.camera.height) == (640, 480)
    assert found.camera.focal[0] == pytest.approx(560, rel=0.1)
    rows, pixels = found.observed_in(next(iter(found.poses)))
    pose = next(iter(found.poses.values()))
    error = np.linalg.norm(found.camera.project(pose.to_cam(found.points.xyz_world[rows])) - pixels, axis=1)
    assert np.median(error) < 2
    save(tmp_path / "again.npz", found)
    assert load(tmp_path / "again.npz").num_posed == found.num_posed
