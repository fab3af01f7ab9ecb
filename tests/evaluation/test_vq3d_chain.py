"""VQ3D from clips to its five figures, on a rendered scan: with our poses as with the true ones."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.data.ego4d_3d import read_clip_poses
from egohieraloc.evaluation import run_vq3d
from egohieraloc.geometry import sfm_process
from scan_tree import BLANK, ScanTree, StandInDepth, write_scan_tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SFM = ["--set", "sfm.max_features=600", "--set", "sfm.camera_model=SIMPLE_RADIAL_FISHEYE"]
POINTS = 2.0  # of a percentage
METRES, RADIANS = 0.03, 0.02


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def pose(tree: ScanTree, name: str, *more: str) -> str:
    annotations, clips = str(tree.root / "vq3d_val.json"), str(tree.root / "clips")
    return call(
        "poses", "--annotations", annotations, "--clips", clips, "--out", str(tree.root / name), *more
    )


def figures(tree: ScanTree, *more: str) -> dict[str, float]:
    out, tracks = tree.root / "out.jsonl", str(tree.root / "tracks.jsonl")
    out.unlink(missing_ok=True)
    call("eval", "vq3d", *tree.common, "--tracks", tracks, "--out", str(out), *more)
    scores = json.loads(out.with_suffix(".results.json").read_text())["results"]["scores"]
    return {
        name: scores[name] for name in ("success", "success_star", "distance_m", "angle_1_rad", "coverage")
    }


def check_near(found: dict[str, float], wanted: dict[str, float]) -> None:
    for name in ("success", "success_star", "coverage"):
        assert found[name] == pytest.approx(wanted[name], abs=POINTS), name
    assert found["distance_m"] == pytest.approx(wanted["distance_m"], abs=METRES)
    assert found["angle_1_rad"] == pytest.approx(wanted["angle_1_rad"], abs=RADIANS)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> ScanTree:
    """With `poses.json`, made from the clips and the images of the scan."""
    tree = write_scan_tree(tmp_path_factory.mktemp("scan"))
    shown = pose(tree, "poses.json", "--scans", str(tree.root / "scans"), *SFM)
    assert f"Clip {BLANK} has no poses: no frame has a feature" in shown
    assert "2 of 3 clips have poses: 32 of their 32 frames" in shown
    return tree


def ours(tree: ScanTree) -> list[str]:
    return ["--poses", str(tree.root / "poses.json")]


def test_the_figures_with_our_poses_are_those_with_true_poses(tree: ScanTree) -> None:
    wanted = figures(tree, *tree.true_poses, *tree.true_depth)
    assert wanted["success"] == wanted["coverage"] == pytest.approx(100 * 10 / 15)  # but for the blank clip
    check_near(figures(tree, *ours(tree), *tree.true_depth), wanted)


def test_as_printed_with_a_depth_network(tree: ScanTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's fusion: true poses and metric depth; ours with relative depth fitted to their points."""
    wanted = figures(tree, "--paper", *tree.true_poses, *tree.true_depth)
    network = StandInDepth(tree.shots)
    monkeypatch.setattr(run_vq3d.DepthNetwork, "from_pretrained", lambda name, device: network)
    clips = ["--clips", str(tree.root / "clips"), "--depth-model", "stand-in"]
    check_near(figures(tree, "--paper", *ours(tree), *clips), wanted)


def test_known_frames_align_as_images_of_the_scan_do(tree: ScanTree) -> None:
    """Every other frame of the true path, in place of images."""
    known = json.loads((tree.root / "poses_true.json").read_text())
    for clip in known.values():
        clip["good_poses"] = [n % 2 == 0 for n in range(len(clip["good_poses"]))]
    (tree.root / "known.json").write_text(json.dumps(known))
    pose(tree, "aligned.json", "--known", str(tree.root / "known.json"), *SFM)
    wanted = figures(tree, *tree.true_poses, *tree.true_depth)
    check_near(figures(tree, "--poses", str(tree.root / "aligned.json"), *tree.true_depth), wanted)


def test_what_is_done_is_not_done_again(tree: ScanTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other threads, on a cluster: structure from motion is looked up. The blank clip is tried again."""
    before = (tree.root / "poses.json").read_text()
    started = []
    run = sfm_process._run
    monkeypatch.setattr(
        sfm_process, "_run", lambda folder, *more: started.append(folder) or run(folder, *more)
    )
    pose(tree, "poses.json", "--scans", str(tree.root / "scans"), *SFM, "--set", "sfm.num_threads=2")
    assert len(started) == 1
    assert (tree.root / "poses.json").read_text() == before
    pytest.importorskip("ray")
    pose(tree, "poses.json", "--scans", str(tree.root / "scans"), *SFM, "--ray", "local")
    assert (tree.root / "poses.json").read_text() == before
    assert read_clip_poses(tree.root / "poses.json")[BLANK].problem
