"""Clips cut from footage, loaded by workers, and training on them from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError, DataError, QueryError, VideoError
from egohieraloc.settings import override, update
from egohieraloc.training.batches import ClipBatch, part_of_batch
from egohieraloc.training.footage import clips as footage_clips
from egohieraloc.training.footage.clips import FootageClips, rotated_query, windows
from egohieraloc.training.footage.footage import AnnotatedFrame, FootageConfig
from egohieraloc.training.footage.loading import LoadedClips, ego4d_footage, open_footage
from egohieraloc.types import Box
from footage_world import BLUE, RED, colour_provider, write_ego4d, write_visor
from tiny_sam import save_tiny_sam

NETWORK = override(preset("tiny"), ["input_size=128", "query_sizes=[64,32]"])
CONFIG = FootageConfig(clip_frames=3, workers=0)
CPU = torch.device("cpu")
FIELDS = list(ClipBatch.__dataclass_fields__)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    write_ego4d(root / "ego4d")
    write_ego4d(root / "ego4d", name="vq_val.json")
    write_visor(root / "visor")
    ego4d_footage(CONFIG, root).make_masks(colour_provider, progress=lambda done, total: None)
    return root


def clips(world: Path, *, batch: int = 10, seed: int = 0, **changes: float) -> FootageClips:
    config = update(CONFIG, changes)
    return FootageClips(open_footage(config, world), config, NETWORK, batch=batch, seed=seed)


def assert_equal(one: ClipBatch, other: ClipBatch) -> None:
    for name in FIELDS:
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_a_clip_depends_on_seed_step_and_index(world: Path) -> None:
    some = clips(world)
    assert_equal(some[3, 4], clips(world)[3, 4])
    others = [some[3, 5], some[4, 4], clips(world, seed=1)[3, 4]]
    assert all(not torch.equal(some[3, 4].query, other.query) for other in others)


def test_shapes_and_types(world: Path) -> None:
    batch = clips(world)[0, 0]
    assert batch.query.shape == (1, 3, 64, 64)
    assert batch.query_mask.shape == (1, 1, 64, 64)
    assert batch.frames.shape == (1, 3, 3, 128, 128)
    assert batch.masks.shape == batch.distractor_masks.shape == (1, 3, 32, 32)
    assert (batch.boxes.shape, batch.presence.shape) == ((1, 3, 4), (1, 3))
    assert batch.query.dtype == batch.frames.dtype == batch.masks.dtype == torch.uint8


def test_three_tenths_of_every_batch_are_visor(world: Path) -> None:
    trust = torch.cat([clips(world)[step, place].trust for step in range(3) for place in range(10)])
    assert trust.unflatten(0, (3, 10)).eq(1).sum(1).tolist() == [3, 3, 3]
    assert trust.unique().tolist() == pytest.approx([0.3, 1.0])
    halves = trust.unflatten(0, (6, 5)).eq(1).sum(1)
    assert halves.min() >= 1  # evenly spread, so each of two processes gets some
    alone = clips(world, visor_share=0.0)
    assert [float(alone[0, place].trust) for place in range(10)] == pytest.approx([0.3] * 10)


def test_a_clip_has_frames_with_and_without_the_object(world: Path) -> None:
    present = torch.cat([clips(world, absent_share=0.0)[0, k].presence for k in range(10)])
    assert (present.amax(1) == 1).all()
    assert (present.amin(1) == 0).any()
    absent = torch.cat([clips(world, absent_share=1.0)[0, k].presence for k in range(10)])
    assert absent.sum() == 0


def test_masks_and_boxes_fit_the_object(world: Path) -> None:
    """Under the mask is the colour of the query's object, and the box is tight around the mask."""
    some = clips(world, absent_share=0.0, brightness=0.0)
    for place in range(10):
        batch = some[0, place]
        shown = batch.query[0, :, batch.query_mask[0, 0] > 127].float().mean(1)
        colour = torch.tensor(min((RED, BLUE), key=lambda c: float((shown - torch.tensor(c)).abs().sum())))
        assert (shown - colour).abs().max() < 30
        for time in torch.nonzero(batch.presence[0])[:, 0]:
            inner = (batch.masks[0, time] > 250).repeat_interleave(4, 0).repeat_interleave(4, 1)
            under = batch.frames[0, time][:, inner].float().mean(1)
            assert (under - colour).abs().max() < 30
            rows, columns = torch.nonzero(batch.masks[0, time] > 127).T
            tight = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) * 4
            assert (tight - batch.boxes[0, time]).abs().max() <= 4


def test_a_negative_clip_of_an_object_that_is_never_absent_is_from_another_location(world: Path) -> None:
    footage = open_footage(update(CONFIG, {"visor_share": 0.0}), world)[0]
    shown = [replace(target, labelled=target.boxes.frames[:-1]) for target in footage.objects]

    class Always:
        objects, trust = shown, 0.3

        def annotated_frames(self, target, frames):
            read.append(target.location)
            return footage.annotated_frames(target, frames)

    read: list[str] = []
    some = FootageClips([Always()], update(CONFIG, {"absent_share": 1.0}), NETWORK, batch=4, seed=0)
    for place in range(6):
        batch = some[0, place]
        assert batch.presence.sum() == batch.masks.sum() == 0
    pairs = [tuple(read[k : k + 2]) for k in range(0, len(read), 2)]  # location of the clip, of the query
    assert all(clip != query for clip, query in pairs)
    Always.objects = [target for target in shown if target.location == "video-0"]
    assert some[0, 0].presence.sum() > 0  # there is no other location


def test_queries_come_from_the_crop_or_from_the_track(world: Path) -> None:
    footage = open_footage(update(CONFIG, {"visor_share": 0.0}), world)[0]

    class Watched:
        objects, trust = footage.objects, 0.3

        def annotated_frames(self, target, frames):
            read.append(frames.tolist())
            return footage.annotated_frames(target, frames)

    for share in (0.0, 1.0):
        read: list[list[int]] = []
        config = update(CONFIG, {"replaced_share": share, "absent_share": 0.0})
        some = FootageClips([Watched()], config, NETWORK, batch=4, seed=0)
        for place in range(8):
            some[0, place]
        window, query = read[::2], [frames[0] for frames in read[1::2]]
        if share == 0:
            assert set(query) == {23}
        else:
            assert len(set(query)) > 2
            assert not any(q in w for w, q in zip(window, query, strict=True))


def test_brightness_of_clip_and_query_changes_independently(world: Path) -> None:
    dark, plain = clips(world, brightness=0.3), clips(world, brightness=0.0)
    ratios = []
    for place in range(6):
        one, other = dark[0, place], plain[0, place]
        pairs = ((one.frames, other.frames), (one.query, other.query))
        ratios.append([float(a.float().mean() / b.float().mean()) for a, b in pairs])
    assert np.abs(np.array(ratios) - 1).max() < 0.32
    assert np.std(ratios, axis=0).min() > 0.05
    assert np.abs(np.subtract(*np.array(ratios).T)).max() > 0.05


def annotated_bar() -> AnnotatedFrame:
    """A bar of 40 x 10 px whose left half is red."""
    image = np.full((80, 100, 3), 100, np.uint8)
    mask = np.zeros((80, 100), bool)
    x, y = 50, 30
    mask[y - 5 : y + 5, x - 20 : x + 20] = True
    image[mask] = (30, 30, 200)
    image[y - 5 : y + 5, x - 20 : x] = (200, 30, 30)
    return AnnotatedFrame(image, Box(x - 20, y - 5, x + 20, y + 5), mask)


@pytest.mark.parametrize(("angle", "size"), [(0, (40, 10)), (90, (10, 40)), (-90, (10, 40)), (45, (35, 35))])
def test_a_query_is_rotated_about_its_centre_with_its_mask_and_box(
    angle: float, size: tuple[int, int]
) -> None:
    query = rotated_query(annotated_bar(), angle, 1.6)
    assert query.mask is not None
    assert (query.box.width, query.box.height) == pytest.approx(size, abs=2)
    assert query.box.center == pytest.approx((query.image.shape[1] / 2,) * 2, abs=1)
    assert query.mask.sum() == pytest.approx(400, rel=0.08)
    red = (query.image[..., 0] > 150) & query.mask
    y, x = np.argwhere(red).mean(0) + 0.5 - query.image.shape[0] / 2
    expected = -10 * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    assert (x, y) == pytest.approx(tuple(expected), abs=1)


def test_the_window_of_a_rotated_query_fits_its_image() -> None:
    bar = annotated_bar()
    mask = np.zeros_like(bar.mask)
    mask[20:60, 30:70] = True
    for annotated in (bar, AnnotatedFrame(bar.image, Box(30, 20, 70, 60), mask)):
        for angle in range(-135, 136, 15):
            query = rotated_query(annotated, angle, 1.6)
            assert 1.6 * max(query.box.width, query.box.height) <= query.image.shape[0] + 1


def test_a_frame_without_the_object_cannot_become_a_query() -> None:
    bar = annotated_bar()
    with pytest.raises(QueryError, match="does not show it: the mask is empty"):
        rotated_query(AnnotatedFrame(bar.image), 0, 1.6)
    with pytest.raises(QueryError, match="too small to be rotated"):
        rotated_query(AnnotatedFrame(bar.image, bar.box, np.zeros_like(bar.mask)), 0, 1.6)


def test_windows_are_runs_of_labelled_frames(world: Path) -> None:
    target = open_footage(CONFIG, world)[0].objects[0]  # visible in 4 to 9, absent in 12 to 21
    assert windows(target, 3, absent=True).tolist() == [[k, k + 1, k + 2] for k in range(12, 20)]
    shown = windows(target, 3, absent=False)
    assert shown[:4].tolist() == [[k, k + 1, k + 2] for k in range(4, 8)]
    assert shown[-1].tolist() == [9, 12, 13]
    assert windows(replace(target, labelled=np.array([8, 9])), 4, absent=False).tolist() == [[8, 9, 9, 9]]


def test_a_clip_with_damaged_frames_is_drawn_again_a_few_times(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = clips(world)
    usual = FootageClips._clip
    calls: list[int] = []

    def fails_twice(self, rng, step, index):
        calls.append(0)
        if len(calls) < 3:
            raise VideoError("damaged")
        return usual(self, rng, step, index)

    monkeypatch.setattr(FootageClips, "_clip", fails_twice)
    assert len(some[0, 0]) == 1
    assert len(calls) == 3
    monkeypatch.setattr(FootageClips, "_clip", lambda *_: (_ for _ in ()).throw(VideoError("all damaged")))
    with pytest.raises(VideoError, match="all damaged"):
        some[0, 0]
    assert footage_clips.ATTEMPTS == 5


def load(world: Path, places: range, *, workers: int = 0) -> LoadedClips:
    return LoadedClips(clips(world, batch=4), places, workers=workers, device=CPU)


def test_batches_depend_neither_on_workers_nor_on_the_first_step(world: Path) -> None:
    plain, parallel = load(world, range(4)), load(world, range(4), workers=2)
    state = torch.get_rng_state()
    batches = [plain(step) for step in range(4)]
    for step in (0, 1, 2, 3, 2, 3):  # in order, then as after a resume
        assert_equal(parallel(step), batches[step])
    assert torch.equal(torch.get_rng_state(), state)
    assert batches[0].frames.dtype == torch.float32
    assert 0 <= batches[0].frames.min() < 0.3 < batches[0].frames.max() <= 1
    assert batches[0].masks.max() == 1
    assert len({int(v) for batch in batches for v in batch.source}) > 3


def test_two_processes_load_the_halves_of_a_batch(world: Path) -> None:
    whole = load(world, range(4))(7)
    parts = [load(world, range(4)[part_of_batch(4, rank, 2)])(7) for rank in range(2)]
    assert_equal(ClipBatch.cat(parts), whole)
    assert_equal(whole.take(slice(2, 4)), parts[1])


def test_every_tensor_of_a_batch_is_pinned(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the DataLoader does with a GPU; tested without one."""
    from torch.utils.data._utils.pin_memory import pin_memory

    batch = clips(world)[0, 0]
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    pinned = pin_memory(batch)
    assert all(torch.equal(getattr(pinned, name), getattr(batch, name) + 1) for name in FIELDS)


RECIPE = """
preset = "tiny"
start = "random"
source = "footage"
[network]
input_size = 128
query_sizes = [64, 32]
[optim]
steps = 3
batch = 4
precision = "no"
log_every = 1
checkpoint_every = 2
validate_every = 2
[footage]
clip_frames = 2
workers = 1
[validation]
queries = 2
"""


def command(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def options(world: Path, tmp_path: Path) -> list[str | Path]:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return ["--config", tmp_path / "recipe.toml", "--data", world]


def test_masks_by_sam_from_the_command_line(options: list[str | Path], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save_tiny_sam(tmp_path / "sam")
    options += ["--set", f"footage.pseudo_masks={tmp_path / 'masks'}"]
    made = command("pseudo-masks", *options, "--sam", tmp_path / "sam")
    assert "Made the masks of 6 objects; all 6 have masks now." in made
    assert len(list((tmp_path / "masks").glob("*.npz"))) == 6
    open_footage(
        update(CONFIG, {"pseudo_masks": str(tmp_path / "masks")}), Path(options[3])
    )  # does not miss any


def test_training_on_footage_from_the_command_line(options: list[str | Path], tmp_path: Path) -> None:
    """With validation; stopped after the first step and resumed, it ends with the same weights."""
    assert "step 3 of 3" in command("train", *options, "--out", tmp_path / "whole")
    assert "step 1 of 3" in command("train", *options, "--out", tmp_path / "parts", "--minutes", "0")
    command("train", *options, "--out", tmp_path / "parts", "--resume")
    whole, parts = (load_file(tmp_path / run / "weights.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    rows = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "stap25" in row] == [2, 3]
    assert {"tap25", "recovery", "success"} <= rows[-1].keys()
    best = json.loads((tmp_path / "whole" / "best.json").read_text())
    assert best["step"] in (2, 3)
    assert (tmp_path / "whole" / "best.safetensors").exists()


def test_preview_of_footage(options: list[str | Path], tmp_path: Path) -> None:
    command("train", *options, "--out", tmp_path / "preview", "--preview")
    sheet = cv2.imread(str(tmp_path / "preview" / "contact_sheet.png"))
    assert sheet.shape == (8 * 448, 224 + 2 * 448, 3)
    with pytest.raises(ConfigError, match="Only composed clips"):
        command("train", *options, "--out", tmp_path / "preview", "--preview", "--publishable")


def test_without_masks_training_says_how_to_make_them(options: list[str | Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Run `egohieraloc pseudo-masks` first"):
        command("train", *options, "--out", tmp_path / "run", "--set", "footage.pseudo_masks=nowhere")
