"""Ego4D-VQ and VISOR as footage: labelled frames, annotated images, and pseudo-masks made once."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from egohieraloc.boxes import iou_xyxy
from egohieraloc.errors import ConfigError, DataError, VideoError
from egohieraloc.query import Query
from egohieraloc.settings import update
from egohieraloc.training.footage import from_ego4d, from_visor, pseudo_masks
from egohieraloc.training.footage.clips import windows
from egohieraloc.training.footage.footage import FootageConfig
from egohieraloc.training.footage.frame_store import FrameStore
from egohieraloc.training.footage.from_ego4d import UNLABELLED, Ego4dFootage
from egohieraloc.training.footage.from_visor import VisorFootage
from egohieraloc.training.footage.pseudo_masks import GRID, MaskCache
from egohieraloc.types import Mask
from footage_world import (
    CROP_FRAME,
    HEIGHT,
    QUERY_FRAME,
    RED,
    SHOWN,
    SIDE,
    VISOR_SIZE,
    WIDTH,
    colour_provider,
    ego4d_box,
    visor_box,
    write_ego4d,
    write_visor,
)

NO_STORE = FrameStore(Path("no store"))


def no_progress(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    write_ego4d(root)
    open_ego4d(root).make_masks(colour_provider, progress=no_progress)
    return root


def open_ego4d(root: Path, masks: str = "masks") -> Ego4dFootage:
    return Ego4dFootage(root / "vq_train.json", root / "clips", MaskCache(root / masks), NO_STORE)


def test_objects_of_ego4d(world: Path) -> None:
    """Two in each clip; not the invalid queries, the clip without a uid and the clip without a file."""
    objects = open_ego4d(world).objects
    assert [target.key for target in objects] == ["clip-a", "clip-a", "clip-b", "clip-b", "clip-c", "clip-c"]
    assert [target.location for target in objects] == ["video-0"] * 4 + ["video-1"] * 2
    assert len({target.name for target in objects}) == len({target.identity for target in objects}) == 6
    red = objects[0]
    assert red.boxes.frames.tolist() == [4, 5, 6, 7, 8, 9, CROP_FRAME]
    assert red.boxes.boxes_xyxy[0].tolist() == [52, 20, 52 + SIDE, 20 + SIDE]
    assert (red.crop_frame, red.width, red.height) == (CROP_FRAME, WIDTH, HEIGHT)


def test_after_the_last_appearance_an_object_is_known_to_be_absent(world: Path) -> None:
    red = open_ego4d(world).objects[0]
    assert red.labelled.tolist() == [*range(4, 10), *range(10 + UNLABELLED, QUERY_FRAME)]


def test_equal_titles_in_a_clip_may_be_the_same_object(world: Path, tmp_path: Path) -> None:
    content = json.loads((world / "vq_train.json").read_text())
    sets = content["videos"][0]["clips"][0]["annotations"][0]["query_sets"]
    sets["2"]["object_title"] = sets["1"]["object_title"]
    (tmp_path / "vq.json").write_text(json.dumps(content))
    one, other, third, *_ = Ego4dFootage(
        tmp_path / "vq.json", world / "clips", MaskCache(tmp_path), NO_STORE
    ).objects
    assert one.identity == other.identity != third.identity


@pytest.mark.parametrize(
    ("changes", "crop", "frames"),
    [
        ({"y": -2.0, "height": 9.0}, CROP_FRAME, [*range(4, 9), CROP_FRAME]),  # 7 px are left of frame 9
        ({"height": 500.0}, CROP_FRAME, [*range(4, 10), CROP_FRAME]),
    ],
)
def test_boxes_are_clipped_to_the_image_and_small_ones_dropped(
    world: Path, tmp_path: Path, changes: dict[str, float], crop: int, frames: list[int]
) -> None:
    content = json.loads((world / "vq_train.json").read_text())
    query = content["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["1"]
    query["response_track"][0] |= changes  # the last frame, as the file is not sorted
    (tmp_path / "vq.json").write_text(json.dumps(content))
    target = Ego4dFootage(tmp_path / "vq.json", world / "clips", MaskCache(tmp_path), NO_STORE).objects[0]
    assert target.boxes.frames.tolist() == frames
    assert target.boxes.boxes_xyxy[:, 3].max() <= HEIGHT
    assert 9 not in target.labelled if 9 not in frames else 9 in target.labelled
    assert target.crop_frame == crop


def test_a_crop_of_the_response_itself_keeps_one_box(world: Path, tmp_path: Path) -> None:
    content = json.loads((world / "vq_train.json").read_text())
    query = content["videos"][0]["clips"][0]["annotations"][0]["query_sets"]["1"]
    query["visual_crop"]["frame_number"] = 6
    (tmp_path / "vq.json").write_text(json.dumps(content))
    target = Ego4dFootage(tmp_path / "vq.json", world / "clips", MaskCache(tmp_path), NO_STORE).objects[0]
    assert target.boxes.frames.tolist() == [4, 5, 6, 7, 8, 9]
    assert target.boxes.boxes_xyxy[2].tolist() == [68, 20, 68 + SIDE, 20 + SIDE]
    assert target.crop_frame == 6


@pytest.mark.parametrize("number", [0, 2, 4], ids=["file", "folder", "file at 10 fps"])
def test_annotated_frames_show_the_object_where_the_annotation_says(world: Path, number: int) -> None:
    footage = open_ego4d(world)
    red = footage.objects[number]
    seen, gone, crop = footage.annotated_frames(red, np.array([7, 15, CROP_FRAME]))
    x, y = ego4d_box("1", 7)
    assert seen.box is not None
    assert seen.mask is not None
    assert seen.image.shape == (HEIGHT // 2, WIDTH // 2, 3)  # the clips are half the size
    assert seen.box.xyxy == (x / 2, y / 2, (x + SIDE) / 2, (y + SIDE) / 2)
    assert np.abs(seen.image[seen.mask].mean(0) - RED).max() < 25
    assert seen.mask.sum() == pytest.approx((SIDE / 2) ** 2, rel=0.08)
    assert (gone.box, gone.mask) == (None, None)
    assert crop.box is not None
    assert np.abs(gone.image - np.full(3, 110.0)).max() < 25


def test_no_query_with_a_clip_is_an_error(world: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has an answer and a clip .* <clip_uid>.mp4, or a folder"):
        Ego4dFootage(world / "vq_train.json", tmp_path, MaskCache(tmp_path), NO_STORE)


def test_damaged_frames_are_an_error_that_names_the_object(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    footage = open_ego4d(world)
    monkeypatch.setattr(from_ego4d.Video, "frames", lambda self, indices: iter(()))
    with pytest.raises(VideoError, match=r"clip-a, .* needs are damaged"):
        footage.annotated_frames(footage.objects[0], np.array([7]))


def test_masks_are_made_once(world: Path) -> None:
    queries: list[Query] = []

    def provider(query: Query) -> tuple[Mask, float]:
        queries.append(query)
        return colour_provider(query)

    footage = open_ego4d(world, "once")
    with pytest.raises(DataError, match=r"6 of 6 objects have no masks .* Run `egohieraloc pseudo-masks`"):
        footage.require_masks()
    assert footage.make_masks(provider, progress=no_progress) == 6
    assert len(queries) == sum(len(target.boxes) for target in footage.objects)
    footage.require_masks()
    assert footage.make_masks(provider, progress=no_progress) == 0
    assert len(queries) == sum(len(target.boxes) for target in footage.objects)


def test_an_interrupted_run_leaves_no_partial_masks(world: Path) -> None:
    def stops(query: Query) -> tuple[Mask, float]:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return colour_provider(query)

    footage = open_ego4d(world, "stopped")
    left = 20  # of the 14 boxes of each clip
    with pytest.raises(KeyboardInterrupt):
        footage.make_masks(stops, progress=no_progress)
    assert len(list((world / "stopped").iterdir())) == 2
    assert footage.make_masks(colour_provider, progress=no_progress) == 4


def test_masks_are_clipped_to_their_box_and_an_empty_mask_becomes_the_box(world: Path) -> None:
    for name, found, share in (("all", True, 1.0), ("none", False, 1.0)):
        footage = open_ego4d(world, name)
        cache = MaskCache(world / name)
        cache.make(footage.objects[:1], footage, lambda q, v=found: (np.full(q.image.shape[:2], v), 0.5))
        grids = cache.grids(footage.objects[0])
        assert grids.shape == (7, GRID, GRID)
        assert grids.mean() == share
        annotated = footage.annotated_frames(footage.objects[0], np.array([7]))[0]
        assert annotated.mask is not None
        assert annotated.mask.sum() == (SIDE // 2) ** 2


def test_masks_are_made_in_batches(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudo_masks, "BATCH", 3)
    footage = open_ego4d(world, "few")
    sizes = []
    images = footage.images
    footage.images = lambda target, frames: sizes.append(len(frames)) or images(target, frames)  # type: ignore
    MaskCache(world / "few").make(footage.objects[:1], footage, colour_provider)
    assert sizes == [3, 3, 1]
    whole = MaskCache(world / "masks").grids(footage.objects[0])
    assert np.array_equal(MaskCache(world / "few").grids(footage.objects[0]), whole)


def test_masks_of_other_boxes_and_broken_files_are_refused(world: Path) -> None:
    footage = open_ego4d(world, "bad")
    cache, target = MaskCache(world / "bad"), footage.objects[0]
    cache.make([target], footage, colour_provider)
    cache.path(target).rename(cache.path(footage.objects[1]))
    with pytest.raises(DataError, match=r"was made from other boxes. Remove it and run"):
        cache.grids(footage.objects[1])
    cache.path(target).write_bytes(b"half")
    with pytest.raises(DataError, match=r"cannot be read as pseudo-masks"):
        cache.grids(target)


@pytest.fixture(scope="module", params=["sparse", "dense"])
def kitchen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return write_visor(tmp_path_factory.mktemp("visor"), request.param), request.param


def open_visor(kitchen: tuple[Path, str]) -> VisorFootage:
    root, kind = kitchen
    return VisorFootage(root / "annotations", root / "images", dense=kind == "dense")


def test_objects_of_visor(kitchen: tuple[Path, str]) -> None:
    """Two lids in each of two sequences of two videos, no hands; half of the dense frames."""
    footage = open_visor(kitchen)
    assert len(footage.objects) == 8
    assert not any("hand" in target.name for target in footage.objects)
    assert {target.location for target in footage.objects} == {"P01", "P02"}
    assert len({target.identity for target in footage.objects}) == 4  # one per name and video
    red, blue = footage.objects[0], footage.objects[1]
    assert (red.width, red.height) == VISOR_SIZE[kitchen[1]]
    if kitchen[1] == "sparse":
        assert red.boxes.frames.tolist() == [1, 2, 3, 4, 5]
        assert blue.boxes.frames.tolist() == [3, 4, 5, 6, 7]
        assert min(footage.objects[2].labelled) >= 10
    else:
        assert red.boxes.frames.tolist() == [1, 2]
    # What a frame does not name may be there all the same: it is not labelled, neither present nor absent.
    for target in footage.objects:
        assert target.labelled.tolist() == target.boxes.frames.tolist()
        assert len(windows(target, 2, absent=True)) == 0


def test_masks_of_visor_are_the_polygons(kitchen: tuple[Path, str]) -> None:
    footage = open_visor(kitchen)
    gone, seen = footage.annotated_frames(footage.objects[0], np.array([0, 1]))
    assert (gone.box, gone.mask) == (None, None)
    assert seen.box is not None
    assert seen.mask is not None
    assert seen.image.shape == (270, 480, 3)
    size = VISOR_SIZE[kitchen[1]]
    frame = 1 if kitchen[1] == "sparse" else 2
    expected = np.array(visor_box("red lid", frame, size)) * 480 / size[0]
    assert iou_xyxy(np.array(seen.box.xyxy), expected) > 0.93
    assert np.abs(seen.image[seen.mask].mean(0) - RED).max() < 25
    assert seen.mask.mean() == pytest.approx(np.prod(expected[2:] - expected[:2]) / (480 * 270), rel=0.1)


def test_frames_without_an_image_are_skipped(tmp_path: Path) -> None:
    root = write_visor(tmp_path, videos=("P01_01",))
    images = sorted((root / "images" / "P01_01").iterdir())
    images[2].unlink()
    red = VisorFootage(root / "annotations", root / "images", dense=False).objects[0]
    assert len(red.labelled) == len(SHOWN["red lid"]) - 1
    assert len(red.boxes) == len(SHOWN["red lid"]) - 1
    with pytest.raises(DataError, match=r"No object of .* has an image"):
        VisorFootage(root / "annotations", tmp_path, dense=False)
    with pytest.raises(DataError, match=r"holds no \*.json"):
        VisorFootage(tmp_path, tmp_path, dense=False)


def test_frames_in_which_an_object_is_tiny_are_not_labelled(tmp_path: Path) -> None:
    root = write_visor(tmp_path, videos=("P01_01",))
    path = root / "annotations" / "P01_01.json"
    content = json.loads(path.read_text())
    del content["video_annotations"][2]["annotations"][2]
    content["video_annotations"][2]["annotations"][1]["segments"] = [[[0, 0], [5, 0], [5, 50]]]
    path.write_text(json.dumps(content))
    red = VisorFootage(root / "annotations", root / "images", dense=False).objects[0]
    assert red.boxes.frames.tolist() == [1, 3, 4, 5]
    assert red.labelled.tolist() == [1, 3, 4, 5]


def test_dense_frames_keep_the_minimum_gap(kitchen: tuple[Path, str]) -> None:
    footage = open_visor(kitchen)
    numbers = np.array([frame.frame_index for frame in footage._frames])
    steps = np.diff(numbers)
    assert steps[steps > 0].min() >= from_visor.MIN_FRAME_GAP


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"visor_share": 1.5}, "visor_share must lie between 0 and 1, got 1.5"),
        ({"brightness": -0.1}, "brightness must lie between 0 and 1"),
        ({"clip_frames": 0}, "clip_frames must be at least 1"),
        ({"workers": -1}, "workers 0, got 8 and -1"),
    ],
)
def test_bad_settings(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        update(FootageConfig(), values)


def test_an_image_is_looked_at_once_for_all_its_boxes(world: Path) -> None:
    """Objects of one frame follow each other with the very same image, and clips can be divided."""
    footage = open_ego4d(world, "by_frame")
    seen: list[int] = []

    def provider(query: Query) -> tuple[Mask, float]:
        images.append(query.image)
        if len(images) < 2 or images[-1] is not images[-2]:
            seen.append(len(images))
        return colour_provider(query)

    images: list[np.ndarray] = []
    clips = {target.key for target in footage.objects}
    made = [footage.make_masks(provider, progress=lambda *_: None, part=(k, 2)) for k in (1, 2)]
    assert sum(made) == len(footage.objects)
    assert min(made) > 0
    frames = {(target.key, frame) for target in footage.objects for frame in target.boxes.frames.tolist()}
    assert len(seen) == len(frames) < len(images) == sum(len(t.boxes) for t in footage.objects)
    assert len(clips) > 1


def test_stored_frames_stand_for_the_clips(world: Path, tmp_path: Path) -> None:
    """As many as training may ask for, once, at a side of their own; the clips are not needed any more."""
    store, masks = FrameStore(tmp_path / "frames"), MaskCache(tmp_path)
    footage = Ego4dFootage(world / "vq_train.json", world / "clips", masks, store)
    target = footage.objects[0]
    wanted = np.union1d(target.labelled, target.boxes.frames)
    read = footage.images(target, wanted)
    parts = [footage.store_frames(side=96, progress=lambda *_: None, part=(k, 2)) for k in (1, 2)]
    assert min(parts) > 0
    assert footage.store_frames(side=96, progress=lambda *_: None) == 0  # all there
    alone = Ego4dFootage(world / "vq_train.json", tmp_path / "no clips", masks, store)
    assert [t.name for t in alone.objects] == [t.name for t in footage.objects]
    for stored, image in zip(alone.images(target, wanted), read, strict=True):
        assert max(stored.shape) == 96
        resized = cv2.resize(image, stored.shape[1::-1], interpolation=cv2.INTER_AREA)
        assert np.abs(stored.astype(int) - resized).mean() < 3
    with pytest.raises(DataError, match=r"lacks frames that training needs\. Remove it"):
        alone.images(target, np.array([10**6]))
    (path,) = (tmp_path / "frames").glob(f"{target.key}.jpgs")
    path.write_bytes(b"0" * path.stat().st_size)
    with pytest.raises(VideoError, match="has a damaged image"):
        alone.images(target, wanted)
