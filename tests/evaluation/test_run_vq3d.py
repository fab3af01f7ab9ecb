"""VQ3D runs: boxes of a known point, seen by known cameras, must lead back to the point."""

import json
import pickle
from itertools import combinations

import numpy as np
import pytest
from fake_ego4d import FRAMES, HEIGHT, WIDTH, make_tree
from fake_tracking import save_tiny
from typer.testing import CliRunner

from egohieraloc.ablations import ABLATIONS
from egohieraloc.cli.eval import app
from egohieraloc.data.base import QueryKey, Track
from egohieraloc.errors import DataError
from egohieraloc.evaluation import run_vq2d, run_vq3d
from egohieraloc.evaluation.predictions import TrackAnswer, read_places, write_own
from egohieraloc.evaluation.run_poses import PosedClip, write_pose_file
from egohieraloc.evaluation.run_vq3d import MappedQuery, ScanCameras, appearance_from_track
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction, SparsePoints, save
from egohieraloc.types import DepthMap, DepthUnit
from egohieraloc.video.reader import Video

LENS = {"f": 60.0, "cx": 48.0, "cy": 32.0, "k1": 0.02, "k2": 0.0}
POINTS = {"1": np.array([0.9, 0.1, 2.0]), "2": np.array([1.4, -0.2, 2.5])}  # in the scan
POSES = [np.column_stack([np.eye(3), [-0.1 * n, 0, 0]]) for n in range(FRAMES)]  # walking along x
SEEN = range(4, 12)


def call(*words, fails=""):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if fails:
        assert isinstance(result.exception, DataError), result.output + repr(result.exception)
        assert fails in str(result.exception)
    else:
        assert result.exit_code == 0, result.output + repr(result.exception)
    return " ".join(result.output.split())


def annotated(point):
    """A box at a point of the scan, in the annotation's turned frame."""
    place = {"x": -point[1], "y": point[0], "z": point[2]}
    return {
        "position": place,
        "dimension": dict.fromkeys("xyz", 0.2),
        "rotation": dict.fromkeys("xyz", 0.0),
    }


def box_of(query_set, frame):
    camera = Camera("RADIAL_FISHEYE", WIDTH, HEIGHT, tuple(LENS.values()))
    x, y = camera.project(CameraPose(POSES[frame]).to_cam(POINTS[query_set]))[0]
    return x - 4, y - 4, x + 4, y + 4


class World:
    """The files of a benchmark that asks for two objects, and tracks that see both well."""

    def __init__(self, root):
        self.root = root
        self.vq2d, self.clips = make_tree(root, num_clips=1)
        sets = {q: {"object_title": "", "3d_annotation_1": annotated(p)} for q, p in POINTS.items()}
        for one in sets.values():
            one["3d_annotation_2"] = one["3d_annotation_1"]
        clip = {"clip_uid": "clip-0", "annotations": [{"query_sets": sets}]}
        video = {"video_uid": "video-0", "split": "val", "scan_uid": "room", "clips": [clip]}
        self.annotations = self.write("vq3d_val.json", {"version": "1", "videos": [video]})
        link = {q: {"ai": 1, "qset_id": q} for q in POINTS}  # the annotation's place differs in the two files
        self.mapping = self.write("mapping.json", {"video-0": {"clip-0": {"0": link}}})
        self.intrinsics = self.write("intrinsics.json", {"room": {f"('{WIDTH}', '{HEIGHT}')": LENS}})
        self.give_poses([True] * FRAMES)
        self.give_tracks(SEEN)

    def write(self, name, content):
        (self.root / name).write_text(json.dumps(content))
        return self.root / name

    def give_poses(self, good, clip="clip-0"):
        content = {clip: {"good_poses": good, "camera_poses": [p.tolist() for p in POSES]}}
        self.poses = self.write(f"poses-{clip}-{sum(good)}.json", content)

    def give_tracks(self, frames):
        answers = [
            TrackAnswer(
                QueryKey("clip-0", "annotation-0", q),
                Track.from_boxes(list(frames), [box_of(q, n) for n in frames]),
                0.9,
            )
            for q in POINTS
        ]
        self.tracks = self.root / "tracks.jsonl"
        write_own(self.tracks, {"benchmark": "vq2d"}, answers)

    def give_map(self, points):
        """Poses as `egohieraloc poses` writes them, of a clip of half the size; no file says the lens."""
        camera = Camera("RADIAL_FISHEYE", WIDTH, HEIGHT, tuple(LENS.values()))
        frames = tuple(PosedFrame(n, n / 5, CameraPose(pose)) for n, pose in enumerate(POSES))
        found = Reconstruction(camera, frames, "m", points).resized(WIDTH // 2, HEIGHT // 2)
        save(self.root / "maps" / "clip-0.npz", found)
        write_pose_file(self.root / "maps.json", self.root / "maps", [PosedClip("clip-0", FRAMES, FRAMES)])
        self.poses, self.intrinsics = self.root / "maps.json", None

    def words(self, out, *more):
        lens = () if self.intrinsics is None else ("--intrinsics", self.intrinsics)
        return [
            *("vq3d", "--annotations", self.annotations, "--vq2d", self.vq2d, "--mapping", self.mapping),
            *("--poses", self.poses, *lens, "--out", out, *more),
        ]

    def lift(self, *more):
        """The answers to both queries from `tracks`."""
        out = self.root / "places.jsonl"
        out.unlink(missing_ok=True)
        self.shown = call(*self.words(out, "--tracks", self.tracks, *more))
        return [read_places(out)[QueryKey("clip-0", "#0", q)] for q in POINTS]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_given_tracks_need_no_network(world, monkeypatch):
    """The weights are read for their settings alone, and only where the run starts."""
    monkeypatch.setattr(run_vq2d, "Localizer", None)
    assert world.lift()[0].reason == ""
    alone = world.lift("--workers", 2)
    assert alone[0].point_world == pytest.approx(POINTS["1"], abs=0.02)


def test_weights_are_loaded_once(world, tmp_path, monkeypatch):
    loaded = []
    load = run_vq2d.load_weights
    monkeypatch.setattr(run_vq2d, "load_weights", lambda path: loaded.append(path) or load(path))
    tiny = save_tiny(tmp_path / "tiny.safetensors")
    call(*world.words(tmp_path / "o.jsonl", "--clips", world.clips, "--model", tiny, "--cache", tmp_path))
    assert loaded == [tiny]


def test_what_other_processes_get_are_names_of_files(world):
    cameras = ScanCameras(world.poses, world.intrinsics)
    assert cameras.reconstruction(MappedQuery(QueryKey("other", "", ""), "", None)).reason
    copy = pickle.loads(pickle.dumps(cameras))
    assert copy == cameras
    assert vars(copy).keys() == {"poses", "intrinsics", "depth"}


def test_boxes_lead_to_the_point_and_the_query_camera(world):
    for answer, point in zip(world.lift(), POINTS.values(), strict=True):
        assert answer.point_world == pytest.approx(point, abs=0.02)
        # The query frame is 23: the camera is at x = 2.3 and looks along z.
        assert answer.displacement == pytest.approx(answer.point_world - [2.3, 0, 0])
        assert answer.query_from_world[:3] == pytest.approx(POSES[23])
        assert answer.reason == ""
    assert "VQ3D, 2 queries" in world.shown
    results = json.loads((world.root / "places.results.json").read_text())
    assert results["results"]["scores"]["success"] == 100
    assert results["config"]["tracks"] == "tracks.jsonl"
    # The 2D queries behind them say how large the objects are and how long ago they were seen.
    assert "VQ3D by group" in world.shown
    assert results["results"]["groups"]["seen < 10 s ago"]["num_queries"] == 2
    assert results["results"]["groups"]["small (< 32² px)"]["success"] == 100


def test_a_split_is_chosen_in_both_files(world):
    assert world.lift("--split", "val")[0].reason == ""
    call(*world.words("o", "--tracks", world.tracks, "--split", "test"), fails="There are no queries")


def test_tracks_of_other_queries_are_refused(world):
    other = QueryKey("clip-9", "annotation-0", "1")
    write_own(world.tracks, {"benchmark": "vq2d"}, [TrackAnswer(other, Track.empty(), 0.0)])
    call(*world.words("o", "--tracks", world.tracks), fails="None of the 1 predictions in")


def test_one_view_needs_depth(world):
    world.give_tracks([6])
    first, _ = world.lift()
    assert first.point_world is None
    assert "its distance cannot be told" in first.reason
    (world.root / "depth" / "clip-0").mkdir(parents=True)
    np.save(world.root / "depth" / "clip-0" / "6.npy", np.full((HEIGHT, WIDTH), 2.0, np.float32))
    first, _ = world.lift("--depth", world.root / "depth")
    assert first.point_world == pytest.approx(POINTS["1"], abs=0.15)
    call(
        *world.words("o", "--tracks", world.tracks, "--depth", "nowhere"), fails="There is no folder nowhere"
    )
    # A clip without a folder of depth has its rays.
    world.give_tracks(SEEN)
    (world.root / "other").mkdir()
    assert world.lift("--depth", world.root / "other")[0].point_world is not None


def test_without_a_pose_for_the_asking_camera_the_point_remains(world):
    world.give_poses([n <= 12 for n in range(FRAMES)])
    first, _ = world.lift()
    assert first.point_world == pytest.approx(POINTS["1"], abs=0.02)
    assert first.displacement is None
    assert "the query time (4.6 s)" in first.reason


def test_what_is_missing_is_said(world):
    world.give_poses([False] * FRAMES)
    assert world.lift()[0].reason == "no frame up to the query time has a camera pose"
    world.give_poses([True] * FRAMES, clip="another")
    assert world.lift()[0].reason == "the pose file does not have this clip"
    world.give_poses([True] * FRAMES)
    one = QueryKey("clip-0", "annotation-0", "2")
    write_own(world.tracks, {"benchmark": "vq2d"}, [TrackAnswer(one, Track.empty(), 0.0)])
    assert [answer.reason for answer in world.lift()] == ["the object was not found in the video"] * 2
    world.intrinsics = world.write("others.json", {"room": {"('1920', '1080')": LENS}})
    assert (
        "no intrinsics for scan 'room' at 96x64, only for the sizes [(1920, 1080)]" in world.lift()[0].reason
    )


def test_a_matrix_that_is_no_pose_is_left_out(world):
    content = json.loads(world.poses.read_text())
    content["clip-0"]["camera_poses"][23] = [[0.0] * 4] * 3
    world.poses = world.write("zeros.json", content)
    assert world.lift()[0].query_from_world[:3] == pytest.approx(POSES[22])


def test_records_without_a_matrix_or_a_box_stop_nothing(world):
    content = json.loads(world.poses.read_text())
    content["clip-0"]["camera_poses"][5] = None
    world.poses = world.write("null.json", content)
    assert world.lift()[0].point_world == pytest.approx(POINTS["1"], abs=0.02)
    content["clip-0"]["good_poses"].pop()
    world.poses = world.write("short.json", content)
    assert "24 poses" in world.lift()[0].reason
    world.give_poses([True] * FRAMES)
    annotated = json.loads(world.annotations.read_text())
    annotated["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["2"]["3d_annotation_2"] = None
    world.annotations = world.write("null_box.json", annotated)
    first, second = world.lift()
    assert first.point_world is not None
    assert "annotation #0, query 2" in second.reason
    results = json.loads((world.root / "places.results.json").read_text())["results"]
    assert results["scores"]["success"] == 50


def give_rough_depth(world):
    """Depth that is off by another amount, and scatters by another amount, in every frame."""
    folder = world.root / "depth" / "clip-0"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for n in SEEN:
        depth = 2.2 + 0.1 * np.sin(n) + 0.02 * (n - 3) * noise.standard_normal((HEIGHT, WIDTH))
        np.save(folder / f"{n}.npy", depth.astype(np.float32))
    return "--depth", folder.parent


def give_sure_tracks(world, confidences):
    answers = [
        TrackAnswer(
            QueryKey("clip-0", "annotation-0", q),
            Track.from_boxes(list(SEEN), [box_of(q, n) for n in SEEN]),
            0.9,
            frame_confidences=confidences,
        )
        for q in POINTS
    ]
    write_own(world.tracks, {"benchmark": "vq2d"}, answers)


def test_the_papers_mean_cannot_do_without_depth(world):
    for word in ("place.fusion.literal=true", "place.fusion.triangulate=false"):
        words = world.words("o", "--tracks", world.tracks, "--set", word)
        call(*words, fails="needs depth: give --depth DIR or --depth-model NAME")
    call(*world.words("o", "--tracks", world.tracks, "--paper"), fails="needs depth: give --depth DIR")


@pytest.mark.parametrize("more", [(), ("--paper",)], ids=["corrected", "printed"])
def test_every_row_of_gsjcs_table_answers_differently(world, more):
    """From kept confidences alone: all twelve rows, the semantic ones among them."""
    depth = give_rough_depth(world)
    give_sure_tracks(world, np.random.default_rng(1).uniform(0.3, 1.0, (len(SEEN), 3)))
    rows = [row for row in ABLATIONS.values() if row.group == "GSJC"]
    answers = {}
    for row in rows:
        settings = [part for word in row.settings for part in ("--set", word)]
        answers[row.name] = world.lift(*depth, *settings, *more)[0].point_world
    assert len(answers) == 12
    assert all(point is not None for point in answers.values())
    for one, other in combinations(answers, 2):
        assert np.abs(answers[one] - answers[other]).max() > 1e-6, (one, other)


def test_tracks_without_confidences_say_so(world):
    depth = give_rough_depth(world)
    world.lift(*depth, "--paper")
    assert "P_ave, P_thr and P_max are equal" in world.shown
    give_sure_tracks(world, np.full((len(SEEN), 3), 0.5))
    world.lift(*depth, "--paper")
    assert "P_ave, P_thr and P_max are equal" not in world.shown


def test_sigma_0_is_the_median_over_the_validation_set(world):
    depth = give_rough_depth(world)
    alone = world.lift(*depth, "--paper")
    assert "run again with --sigma-0" in world.shown
    variances = [value for answer in alone for value in answer.depth_variances]
    assert len(variances) == 2 * len(SEEN)
    first = world.root / "first.jsonl"
    (world.root / "places.jsonl").rename(first)
    together = world.lift(*depth, "--paper", "--sigma-0", first)
    written = json.loads((world.root / "places.jsonl").read_text().splitlines()[0])["config"]
    assert written["place"]["fusion"]["depth_variance"] == pytest.approx(np.median(variances))
    assert "run again with --sigma-0" not in world.shown
    assert np.abs(alone[0].point_world - together[0].point_world).max() > 1e-6
    # Variances of another kind, or none, are refused.
    words = world.words(world.root / "o", "--tracks", world.tracks, *depth, "--sigma-0", first)
    call(*words, fails="gives no sigma_0: it must be of `eval vq3d` without place.fusion.literal")
    call(*words[:-1], world.tracks, "--paper", fails="with place.fusion.literal, with depth")


def test_our_own_poses_bring_their_lens(world):
    world.intrinsics = None
    call(*world.words("o", "--tracks", world.tracks), fails="has no lens for clip clip-0: give --intrinsics")
    world.give_map(SparsePoints())
    for answer, point in zip(world.lift(), POINTS.values(), strict=True):
        assert answer.point_world == pytest.approx(point, abs=0.02)
        assert answer.query_from_world[:3] == pytest.approx(POSES[23])
    (world.root / "maps" / "clip-0.npz").unlink()
    assert "Cannot read the reconstruction" in world.lift()[0].reason
    write_pose_file(world.poses, world.root / "maps", [PosedClip("clip-0", reason="too dark")])
    assert world.lift()[0].reason == "too dark"


class SlopeDepth:
    """A network that sees a slope through the first point, up to a scale and a shift of every frame."""

    def __init__(self, unit):
        self.unit, self.asked = unit, []

    @staticmethod
    def depth(frame, pixels):
        middle = np.add(box_of("1", frame)[:2], box_of("1", frame)[2:])[0] / 2
        return POINTS["1"][2] + 0.02 * (np.asarray(pixels) - middle)

    def predict(self, frames):
        for frame in frames:
            self.asked.append(frame.index)
            depth = np.tile(self.depth(frame.index, np.arange(WIDTH) + 0.5), (HEIGHT, 1))
            relative = (2 + frame.index) / depth - 0.5
            yield frame.index, DepthMap((depth if self.unit is DepthUnit.METRIC else relative), self.unit)


def points_on_the_slope(frame):
    """What a map knows of it: 24 points seen in one frame."""
    camera = Camera("RADIAL_FISHEYE", WIDTH, HEIGHT, tuple(LENS.values()))
    pixels = np.column_stack([np.linspace(5, 90, 24), np.tile([10.0, 32.0, 50.0], 8)])
    seen = camera.back_project(pixels, SlopeDepth.depth(frame, pixels[:, 0]))
    xyz = CameraPose(POSES[frame]).to_world(seen)
    return SparsePoints(xyz, np.full(24, frame), np.arange(24), pixels)


@pytest.mark.parametrize("unit", [DepthUnit.RELATIVE, DepthUnit.METRIC])
def test_a_depth_network_is_fitted_to_the_points_of_the_map(world, monkeypatch, unit):
    """One view: its distance is the network's alone, and only in the unit of the map it is right."""
    network = SlopeDepth(unit)
    named = []
    load = lambda name, device: named.append((name, device)) or network  # noqa: E731
    monkeypatch.setattr(run_vq3d.DepthNetwork, "from_pretrained", load)
    world.give_tracks([6])
    world.give_map(points_on_the_slope(6))
    words = ("--clips", world.clips, "--depth-model", "anything", "--device", "cpu")
    literal = ("--set", "place.fusion.literal=true")
    first, _ = world.lift(*words, *literal)
    assert first.point_world == pytest.approx(POINTS["1"], abs=0.03)
    assert named == [("anything", "cpu")]
    assert network.asked == [6, 6]  # once for each query, no other frame
    written = json.loads((world.root / "places.jsonl").read_text().splitlines()[0])["config"]
    assert written["depth"] == "anything"


def test_relative_depth_without_points_is_a_reason(world, monkeypatch):
    network = SlopeDepth(DepthUnit.RELATIVE)
    monkeypatch.setattr(run_vq3d.DepthNetwork, "from_pretrained", lambda name, device: network)
    first, _ = world.lift("--clips", world.clips, "--depth-model", "anything")
    assert first.point_world is None
    assert "fitted to points of a map: give poses made by `egohieraloc poses`" in first.reason
    # Frames after the end of the clip have no image.
    world.give_tracks([6, 7])
    monkeypatch.setattr(Video, "shown_every", lambda video, fps: np.arange(7))
    network.unit, network.asked = DepthUnit.METRIC, []
    assert world.lift("--clips", world.clips, "--depth-model", "anything")[0].point_world is not None
    assert set(network.asked) == {6}


def test_a_depth_network_needs_the_clips(world):
    words = world.words("o", "--tracks", world.tracks, "--depth-model", "anything")
    call(*words, fails="give the folder of clips, --clips DIR")
    call(*words, "--clips", world.clips, "--depth", world.clips, fails="not both")
    (world.clips / "clip-0.mp4").unlink()
    call(*words, "--clips", world.clips, fails="1 of 1 clips do not exist")


def test_our_own_search_is_lifted_too(world, tmp_path, monkeypatch):
    monkeypatch.setenv("EGOHIERALOC_CACHE", str(tmp_path / "cache"))
    tiny = save_tiny(tmp_path / "tiny.safetensors")
    words = world.words(tmp_path / "own.jsonl", "--clips", world.clips, "--model", tiny)
    assert "VQ3D, 2 queries" in call(*words)
    found = read_places(tmp_path / "own.jsonl")
    assert len(found) == 2
    assert all(answer.crop_sharpness > 0 for answer in found.values())
    header = json.loads((tmp_path / "own.jsonl").read_text().splitlines()[0])
    assert header["config"]["model"] == "tiny"


def test_one_source_of_tracks_is_wanted(world):
    call(*world.words("o"), fails="--clips DIR to search, or --tracks FILE")
    call(*world.words("o", "--clips", world.clips, "--tracks", world.tracks), fails="--tracks FILE")
    world.poses = world.root / "no.json"
    call(*world.words("o", "--tracks", world.tracks), fails="There is no file")


def test_scores_of_frames_are_kept_where_there_are_some():
    track = Track.from_boxes([5, 6], [(0, 0, 2, 2), (1, 0, 3, 2)])
    key = QueryKey("c", "a", "1")
    plain = appearance_from_track(TrackAnswer(key, track, 0.2), 5.0).predictions
    assert [(p.frame_index, p.time_s, p.score) for p in plain] == [(5, 1.0, 1.0), (6, 1.2, 1.0)]
    scored = appearance_from_track(TrackAnswer(key, track, 0.2, frame_scores=np.array([0.3, 7.0])), 5.0)
    assert [p.score for p in scored.predictions] == [0.3, 1.0]
    assert appearance_from_track(None, 5.0).predictions == ()
