"""Poses of VQ3D's clips: tied to the scan by known frames, counted as the annotation counts, gaps told."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.cli import poses as command
from egohieraloc.data.ego4d_3d import read_clip_poses
from egohieraloc.errors import DataError
from egohieraloc.evaluation import run_poses
from egohieraloc.evaluation.run_poses import PoseClips, as_annotated, interpolated
from egohieraloc.geometry.align import Sim3
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, load
from egohieraloc.geometry.reference import PosedImages
from egohieraloc.images import write_image
from egohieraloc.types import NotLocalized

FRAMES = 12
LENS = Camera("SIMPLE_RADIAL_FISHEYE", 32, 24, (20.0, 16.0, 12.0, 0.01))
MAP_FROM_SCAN = Sim3(0.3, Rotation.from_rotvec([0.2, -0.9, 0.4]).as_matrix(), np.array([5.0, 1.0, -2.0]))


def true_pose(n):
    """A walk along an arc that looks around."""
    rotation = Rotation.from_rotvec([0.1 * np.sin(n), 0.1 * n, 0.0]).as_matrix()
    center = np.array([np.cos(0.3 * n), 0.1 * n, np.sin(0.3 * n)])
    return CameraPose.from_rotation(rotation, -rotation @ center)


def in_its_own_frame(video, samples, cache, config, anchors=()):
    """In place of structure from motion: the true path in a frame and unit of its own, without frame 5."""
    poses = [MAP_FROM_SCAN.pose(true_pose(n)) if n != 5 else None for n in range(FRAMES)]
    frames = tuple(PosedFrame(int(i), i / 5, pose) for i, pose in zip(samples, poses, strict=True))
    points = SparsePoints(
        MAP_FROM_SCAN.points([[1.0, 2.0, 3.0]]), np.array([int(samples[3])]), np.array([0]), np.ones((1, 2))
    )
    return Reconstruction(LENS, frames, "sfm", points)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Two clips of twelve small images; known are the poses of some frames, two of them wrongly."""
    monkeypatch.setattr(run_poses, "camera_poses", in_its_own_frame)
    clips = [
        {"clip_uid": name, "annotations": [{}, {"query_sets": {"1": {"object_title": ""}, "2": {}}}]}
        for name in ("a", "b")
    ]
    video = {"video_uid": "v", "split": "val", "scan_uid": "room", "clips": clips}
    (tmp_path / "vq3d.json").write_text(json.dumps({"videos": [video]}))
    for name in ("a", "b"):
        for n in range(FRAMES):
            write_image(tmp_path / "clips" / name / f"{n}.png", np.full((24, 32, 3), 7 * n, np.uint8))
    matrices = [true_pose(n).cam_from_world.tolist() for n in range(FRAMES)]
    matrices[2], matrices[4] = [[0.0] * 4] * 3, true_pose(11).cam_from_world.tolist()
    known = {name: {"good_poses": [n < 9 for n in range(FRAMES)], "camera_poses": matrices} for name in "ab"}
    (tmp_path / "known.json").write_text(json.dumps(known))
    return tmp_path


def call(tree, *more, fails=""):
    words = ["--annotations", tree / "vq3d.json", "--clips", tree / "clips", "--out", tree / "poses.json"]
    result = CliRunner().invoke(app, ["poses", *map(str, [*words, *more])])
    if fails:
        assert isinstance(result.exception, DataError), result.output + repr(result.exception)
        assert fails in str(result.exception)
    else:
        assert result.exit_code == 0, result.output + repr(result.exception)
    return " ".join(result.output.split())


def test_known_frames_tie_a_clip_to_its_scan(tree):
    shown = call(tree, "--known", tree / "known.json")
    assert "2 of 2 clips have poses: 24 of their 24 frames" in shown
    found = read_clip_poses(tree / "poses.json")["a"]
    assert found.is_good.all()
    for n in set(range(FRAMES)) - {5}:
        np.testing.assert_allclose(found.cam_from_world[n], true_pose(n).cam_from_world, atol=1e-6)
    world = load(tree / found.map_file)
    assert world.unit == "m"
    assert world.camera == LENS
    np.testing.assert_allclose(world.points.xyz_world, [[1.0, 2.0, 3.0]], atol=1e-6)
    written = json.loads((tree / "poses.json").read_text())["a"]
    assert np.array(written["camera_poses"]).shape == (FRAMES, 3, 4)
    assert written["camera"]["model"] == "SIMPLE_RADIAL_FISHEYE"


def test_a_gap_is_filled_where_that_is_wanted(tree):
    call(tree, "--known", tree / "known.json", "--fill-gaps", 0)
    found = read_clip_poses(tree / "poses.json")["a"]
    assert np.flatnonzero(~found.is_good).tolist() == [5]
    assert (found.cam_from_world[5] == 0).all()
    # The paper fills none; a longer gap stays.
    call(tree, "--known", tree / "known.json", "--paper")
    assert not read_clip_poses(tree / "poses.json")["a"].is_good[5]


def test_between_two_frames_the_path_is_straight():
    poses = [CameraPose.from_rotation(np.eye(3), [-float(n), 0.0, 0.0]) for n in range(8)]
    known = [0, 1, 3, 4, 7]
    frames = tuple(PosedFrame(n, n / 5, poses[n] if n in known else None) for n in range(8))
    found = interpolated(Reconstruction(LENS, frames), 0.5)
    assert sorted(found.poses) == [0, 1, 2, 3, 4, 7]  # 5 and 6 lie between frames 0.6 s apart
    np.testing.assert_allclose(found.poses[2].cam_from_world, poses[2].cam_from_world, atol=1e-9)
    nothing = Reconstruction(LENS, frames[5:7])
    assert interpolated(nothing, 0.5) is nothing


def test_frames_are_counted_as_in_the_annotation():
    """A file of 10 frames a second; and one of 2.5, whose frames are shown twice."""
    frames = tuple(PosedFrame(i, i / 10, true_pose(i)) for i in (0, 2, 4))
    points = SparsePoints(np.zeros((1, 3)), np.array([4, 0]), np.array([0, 0]), np.zeros((2, 2)))
    found = as_annotated(Reconstruction(LENS, frames, "sfm", points), np.array([0, 2, 4]))
    assert [(frame.index, frame.time_s) for frame in found.frames] == [(0, 0.0), (1, 0.2), (2, 0.4)]
    assert found.poses[2] is frames[2].pose
    assert found.points.frame.tolist() == [2, 0]
    twice = as_annotated(Reconstruction(LENS, frames, "sfm", points), np.array([0, 0, 4, 4]))
    assert twice.poses[1] is frames[0].pose
    assert twice.points.frame.tolist() == [2, 0]


def test_clips_without_poses_are_listed_and_stop_nothing(tree, monkeypatch):
    def textureless(video, *arguments, **options):
        if video.path.name == "b":
            return NotLocalized("no frame has a feature that could be matched", 0, FRAMES)
        return in_its_own_frame(video, *arguments, **options)

    monkeypatch.setattr(run_poses, "camera_poses", textureless)
    shown = call(tree, "--known", tree / "known.json")
    assert "Clip b has no poses: no frame has a feature that could be matched" in shown
    assert "1 of 2 clips have poses" in shown
    assert read_clip_poses(tree / "poses.json")["b"].problem == "no frame has a feature that could be matched"
    for image in (tree / "clips" / "b").iterdir():
        image.unlink()
    (tree / "clips" / "b").rmdir()
    assert "Clip b has no poses: There is no video at" in call(tree, "--known", tree / "known.json")
    # Where nothing is found, nothing is written.
    (tree / "poses.json").unlink()
    known = json.loads((tree / "known.json").read_text())
    known["a"]["good_poses"] = [n < 4 for n in range(FRAMES)]
    (tree / "few.json").write_text(json.dumps(known))
    call(tree, "--known", tree / "few.json", fails="None of the 2 clips has poses")
    assert not (tree / "poses.json").exists()


def test_what_ties_a_clip_to_its_scan_must_be_there(tree, monkeypatch):
    call(tree, fails="--scans DIR, --known FILE, or both")
    call(tree, "--known", tree / "none.json", fails="There is no file")
    (tree / "scans").mkdir()
    maker = PoseClips(
        clips=tree / "clips", out=tree / "poses", sfm=command.PosesConfig().sfm, scans=tree / "scans"
    )
    assert "There are no images of the scan 'room'" in maker.pose("a", "room").reason
    # Known frames help out where a scan has no images.
    assert "2 of 2" in call(tree, "--scans", tree / "scans", "--known", tree / "known.json")
    (tree / "empty.json").write_text("{}")
    both = PoseClips(
        clips=tree / "clips",
        out=tree / "poses",
        sfm=command.PosesConfig().sfm,
        scans=tree / "scans",
        known=tree / "empty.json",
    )
    assert both.pose("a", "room").reason.endswith("empty.json does not have the clip.")
    # Images that could not be registered leave the map in its own unit.
    monkeypatch.setattr(run_poses, "read_posed_images", lambda folder: PosedImages(()))
    (tree / "scans" / "room").mkdir()
    images = "Not aligned: too few images of its scan could be registered into its map"
    assert maker.pose("a", "room").reason == f"{images}."
    assert replace(both).pose("a", "room").reason.startswith(f"{images}, and ")


def test_a_map_whose_poses_are_all_unreliable_has_none(tree, monkeypatch):
    frames = tuple(PosedFrame(n, n / 5, None) for n in range(FRAMES))
    monkeypatch.setattr(
        run_poses, "camera_poses", lambda *words, **options: Reconstruction(LENS, frames, "m")
    )
    call(tree, "--known", tree / "known.json", fails="None of the 2 clips has poses")


def test_an_id_cannot_lead_out_of_the_folder(tree):
    maker = PoseClips(clips=tree / "clips" / "a", out=tree / "poses", sfm=command.PosesConfig().sfm)
    assert "cannot name a file" in maker.pose("../b", "room").reason
    assert not (tree / "b.npz").exists()


def test_a_pose_file_is_json(tree):
    call(tree, "--known", tree / "known.json", "--out", tree / "poses", fails="NAME.json")


@pytest.mark.parametrize("words", [(), ("--paper",), ("--paper", "--set", "sfm.overlap=9")])
def test_the_printed_settings_are_one_switch(tree, monkeypatch, words):
    made = []
    monkeypatch.setattr(command, "_run", lambda clips, maker, *others: made.append(maker) or [])
    call(tree, "--known", tree / "known.json", "--workers", 2, *words, fails="None of the 0 clips")
    sfm = made[0].sfm
    printed = ("SIMPLE_RADIAL_FISHEYE", 30.0) if words else ("SIMPLE_RADIAL", 0.5)
    assert (sfm.camera_model, sfm.anchor_error_m) == printed
    assert (sfm.calibration_frames, sfm.overlap) == (25, 9 if len(words) > 1 else 15)
    assert made[0].max_gap_s == (0.0 if words else 0.5)
    assert sfm.num_threads >= 1


def test_clips_in_several_processes(tree):
    """Where structure from motion is the real one, and short clips have a reason at once."""
    for name in ("a", "b"):
        for n in range(2, FRAMES):
            (tree / "clips" / name / f"{n}.png").unlink()
    known = ("--known", tree / "known.json", "--workers", 2)
    result = CliRunner().invoke(
        app,
        [
            *("poses", "--annotations", str(tree / "vq3d.json"), "--clips", str(tree / "clips")),
            *("--out", str(tree / "poses.json"), *map(str, known)),
        ],
    )
    assert "Clip a has no poses: 2 frames are too few for camera poses" in result.output
    assert "Clip b has no poses: 2 frames are too few for camera poses" in result.output


def test_poses_need_no_network():
    code = "import sys, egohieraloc.cli.poses; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
