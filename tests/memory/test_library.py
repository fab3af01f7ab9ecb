"""A library of recordings: added, asked, moved, deleted, removed; objects, questions and answers kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from recordings import FPS, image, red_square, write_recording

from egohieraloc import Box, Localizer, Memory, Query, Result, Video
from egohieraloc.errors import DataError, QueryError, VideoError
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.images import decode_image, read_image, write_image
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.localize import SpaceSources
from egohieraloc.memory import library
from egohieraloc.memory.catalogue import Catalogue
from egohieraloc.memory.library import before
from egohieraloc.memory.thumbnails import to_jpeg
from egohieraloc.memory.views import shrunk
from egohieraloc.memory.without_video import without_video
from egohieraloc.progress import label
from egohieraloc.query import MAX_VIEWS
from egohieraloc.video.container import Container


@pytest.fixture
def memory(tmp_path: Path, localizer: Localizer) -> Memory:
    return Memory.open(tmp_path / "memory", localizer=localizer)


@pytest.fixture
def filled(memory: Memory, recordings: list[Path]) -> Memory:
    for path in recordings:
        memory.add(path)
    return memory


def test_the_list_is_by_time_and_says_how_it_is_known(filled: Memory, recordings: list[Path]) -> None:
    entries = filled.list()
    assert [entry.path for entry in entries] == recordings
    assert [entry.start.time.day for entry in entries] == [10, 11, 12]
    assert {entry.start.origin for entry in entries} == {"file name"}
    assert all(entry.ready and entry.exists for entry in entries)
    assert entries[2].end - entries[2].start.time == timedelta(seconds=3)


def test_the_answer_equals_the_latest_of_the_videos_one_by_one(filled: Memory, localizer: Localizer) -> None:
    query = red_square()
    answer = filled.ask(query)
    alone = {path: localizer.locate(query, path) for path in (entry.path for entry in filled.list())}
    ends = {e.path: e.at(alone[e.path].track.end_s) for e in filled.list() if alone[e.path].found}
    assert answer.found
    assert answer.sightings[0].seen_until == max(ends.values())
    chosen = alone[answer.sightings[0].video.path]
    assert np.array_equal(answer.result.curve.raw, chosen.curve.raw)
    assert answer.result.boxes_xyxy.tolist() == chosen.boxes_xyxy.tolist()
    assert answer.result.video.source.start == answer.sightings[0].video.start.time


def test_some_videos_and_a_query_time(filled: Memory, localizer: Localizer) -> None:
    first, second, third = filled.list()
    assert filled.ask(red_square(), videos=[first]).sightings[0].video == first
    assert filled.ask(red_square(), videos=[second.id, str(first.path)]).sightings[0].video == second
    until = third.start.time + timedelta(seconds=1)
    answer = filled.ask(red_square(), until=until)
    wanted = localizer.locate(red_square(), third.path, until_s=1.0)
    assert answer.sightings[0].video == third
    assert answer.result.video.until_s == 1.0
    assert np.array_equal(answer.result.curve.raw, wanted.curve.raw)
    local = third.start.time.replace(tzinfo=None)  # no zone: this machine's
    assert filled.ask(red_square(), until=local).sightings[0].video == second
    nothing = filled.ask(red_square(), until=datetime(2020, 1, 1))
    assert not nothing.found
    assert nothing.result is None


@pytest.fixture
def many(filled: Memory, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """So many videos that not each of them is asked."""
    monkeypatch.setattr(library, "FEW", 1)
    return filled


def asked_of(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The videos that questions from now on are put to."""
    asked: list[Path] = []
    ask = Localizer.ask

    def noted(localizer: Localizer, query: Query, video: EncodedVideo, **options: Any) -> Result:
        asked.append(Path(video.video.source.path))
        return ask(localizer, query, video, **options)

    monkeypatch.setattr(Localizer, "ask", noted)
    return asked


def test_of_many_videos_those_that_seem_to_show_it_are_asked(
    many: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is in all of them."""
    with monkeypatch.context() as few:
        few.setattr(library, "FEW", 8)
        one_by_one = many.ask(red_square())
    asked = asked_of(many, monkeypatch)
    answer = many.ask(red_square())
    assert answer.sightings[0] == one_by_one.sightings[0]
    assert answer.result.boxes_xyxy.tolist() == one_by_one.result.boxes_xyxy.tolist()
    monkeypatch.setattr(Localizer, "likely", lambda *_, **__: {1: 0.5})
    asked.clear()
    assert many.ask(red_square()).sightings[0].video == many.list()[1]
    assert asked == [many.list()[1].path]


def test_of_many_videos_only_what_was_before_the_query_time_is_searched(
    many: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[list[int]] = []

    def likely(
        localizer: Localizer, query: Query, videos: list[EncodedVideo], **_: object
    ) -> dict[int, float]:
        searched.append([len(video) for video in videos])
        return {len(videos) - 1: 1.0}

    monkeypatch.setattr(Localizer, "likely", likely)
    _, second, third = many.list()
    answer = many.ask(red_square(), until=second.start.time + timedelta(seconds=1))
    assert searched == [[15, 5]]
    assert answer.result.video.until_s == 1.0
    assert answer.sightings[0].video == second
    many.ask(red_square(), until=third.start.time)
    assert searched[1:] == [[15, 15]]


def test_of_many_videos_those_that_are_gone_answer_too(many: Memory, tmp_path: Path) -> None:
    """From their features, or from what is remembered where these were thrown out as well."""
    path = moved_recording(many, tmp_path)
    (entry,) = (entry for entry in many.list() if entry.path == path)
    path.unlink()
    assert many.ask(red_square()).sightings[0].video == entry
    shutil.rmtree(many.encoded(entry).store.folder)
    assert [glimpse.video for glimpse in many.ask(red_square()).remembered] == [entry]


def test_of_many_videos_one_that_must_be_read_again_and_cannot_be_hides_no_other(
    many: Memory, tmp_path: Path
) -> None:
    path = moved_recording(many, tmp_path)
    (entry,) = (entry for entry in many.list() if entry.path == path)
    shutil.rmtree(many.encoded(entry).store.folder)
    path.write_bytes(b"junk")
    answer = many.ask(red_square())
    assert answer.sightings[0].video == many.list()[2]
    assert [glimpse.video for glimpse in answer.remembered] == [entry]


def test_of_many_videos_one_that_only_another_network_read_is_read(many: Memory, tmp_path: Path) -> None:
    path = moved_recording(many, tmp_path)
    with many.catalogue.change() as db:
        db.execute("UPDATE readings SET model = 'another' WHERE rowid = (SELECT max(rowid) FROM readings)")
    (entry,) = (entry for entry in many.list() if entry.path == path)
    assert many.encoded(entry) is None
    assert many.ask(red_square()).sightings[0].video == entry


def test_a_known_video_is_not_read_again(
    filled: Memory, recordings: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Localizer, "encode", lambda *_, **__: pytest.fail("read again"))
    again = filled.add(recordings[1])
    copied = filled.add(shutil.copy(recordings[1], tmp_path / "copy.mp4"))
    assert again == copied == filled.list()[1]  # the first file is still there: it stays the one


def test_a_clock_can_be_put_right(filled: Memory, recordings: list[Path]) -> None:
    entry = filled.add(recordings[0], start=datetime(2026, 5, 1, 12))
    assert entry.start.time == datetime(2026, 5, 1, 12).astimezone()
    assert filled.list()[-1] == entry
    assert filled.ask(red_square()).sightings[0].video == entry


def test_a_zone_is_taken_also_by_videos_that_are_known(
    filled: Memory, recordings: list[Path], tmp_path: Path
) -> None:
    """Where it was missing: not of a time that was given, nor of the name that a copy has."""
    tokyo = ZoneInfo("Asia/Tokyo")
    entry = filled.add(recordings[1], zone=tokyo)
    assert entry.start.time == datetime(2026, 3, 11, 12, tzinfo=tokyo)
    assert filled.add(recordings[1]).start == entry.start
    copy = shutil.copy(recordings[1], tmp_path / "20300101_000000.mp4")
    assert filled.add(copy, zone=ZoneInfo("America/New_York")).start == entry.start
    given = filled.add(recordings[0], start=datetime(2026, 5, 1, 12), zone=tokyo)
    assert filled.add(recordings[0], zone=ZoneInfo("America/New_York")).start == given.start


def moved_recording(memory: Memory, tmp_path: Path, seed: int = 7) -> Path:
    path = write_recording(tmp_path / f"2026040{seed}_120000.mp4", seed)
    memory.add(path)
    return path


def test_a_deleted_video_still_answers_when_and_shows_its_thumbnail(memory: Memory, tmp_path: Path) -> None:
    path = moved_recording(memory, tmp_path)
    there = memory.ask(red_square())
    path.unlink()
    answer = memory.ask(red_square())
    assert answer.found
    assert answer.sightings[0].seen_until == there.sightings[0].seen_until
    assert f"{path} is no longer there" in answer.summary
    assert answer.video == answer.sightings[0].video
    assert not memory.list()[0].exists
    jpeg = memory.thumbnail(answer.sightings[0].video, answer.sightings[0].end_s)
    (tmp_path / "shown.jpg").write_bytes(jpeg)
    shown = read_image(tmp_path / "shown.jpg")
    assert shown.shape == (64, 96, 3)
    difference = np.abs(shown.astype(int) - image(7, 2 * FPS)).mean()
    assert difference < 20


def test_a_moved_video_is_found_by_its_content(memory: Memory, tmp_path: Path) -> None:
    path = moved_recording(memory, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    new = path.rename(tmp_path / "elsewhere" / "renamed.mp4")
    entry = memory.add(new)
    assert entry.path == new
    assert [e.path for e in memory.list()] == [new]
    assert entry.start.origin == "file name"  # of the name it had


def test_features_that_were_thrown_out_are_made_again(memory: Memory, tmp_path: Path) -> None:
    path = moved_recording(memory, tmp_path, seed=8)
    told: list[tuple[str, int, int]] = []
    first = memory.ask(red_square())
    memory.ask(red_square(), progress=lambda *step: told.append(step))
    assert "Reading the video" not in {label(stage) for stage, _, _ in told}
    (entry,) = memory.list()
    shutil.rmtree(memory.encoded(entry).store.folder)
    second = memory.ask(red_square(), progress=lambda *step: told.append(step))
    read = [(done, total) for stage, done, total in told if label(stage) == "Reading the video"]
    assert read  # of these three seconds all that is looked at; of longer videos the stretches worth a look
    assert all(done <= total <= 15 for done, total in read)
    assert np.array_equal(first.result.curve.raw, second.result.curve.raw)
    shutil.rmtree(memory.encoded(entry).store.folder)
    path.unlink()
    third = memory.ask(red_square())
    assert [glimpse.video for glimpse in third.remembered] == [entry]
    assert third.remembered[0].box is None
    assert "unverified, from memory" in third.summary
    assert memory.questions.get(third.question).sightings == third.remembered
    assert memory.thumbnail(entry, third.remembered[0].end_s) is not None
    assert next(iter(memory.objects), None) is None


def test_each_network_has_a_reading_of_its_own(memory: Memory, tmp_path: Path) -> None:
    """Of a video and what is remembered of it; all of them go with the video."""
    path = moved_recording(memory, tmp_path, seed=9)
    (entry,) = memory.list()
    first = memory.encoded(entry)
    assert memory.videos.engine() == "torch"
    memory.localizer.predictor.features_fingerprint += "-another"
    try:
        assert memory.encoded(entry) is None
        assert memory.ask(red_square()).found
        second = memory.encoded(entry)
        assert second.store.folder != first.store.folder
        assert len(memory.videos.known(entry)) == 2
        path.unlink()
        memory.localizer.predictor.features_fingerprint += "-third"
        assert memory.ask(red_square()).unanswered == (entry,)
    finally:
        memory.localizer.predictor.features_fingerprint = memory.localizer.weights.features_fingerprint
    assert memory.encoded(entry).store.folder == first.store.folder
    memory.remove(entry)
    assert not any(known.folder.exists() for e in (first, second) for known in (e.store, e.memory))


@pytest.mark.parametrize(
    "spoil",
    [lambda p: write_recording(p, 1), lambda p: p.write_bytes(b"nothing")],
    ids=["another", "damaged"],
)
def test_another_network_reads_only_what_was_added(
    filled: Memory, model: Path, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """A file that holds another video answers nothing, nor does a damaged one: the others are asked."""
    path = moved_recording(filled, tmp_path, seed=3)
    spoil(path)
    other = Localizer.from_pretrained(
        model, device="cpu", settings=["network.input_size=64"], cache=filled.cache
    )
    asked = Memory.open(filled.folder, localizer=other)
    answer = asked.ask(red_square())
    entry = next(e for e in asked.list() if e.path == path)
    assert answer.unanswered == (entry,)
    assert f"damaged or replaced and another network remembers it: {path.name}." in answer.summary
    assert {s.video.path.name for s in answer.sightings} == {e.path.name for e in asked.list()} - {path.name}
    assert len(asked.videos.known(entry)) == 1


def test_a_video_that_is_gone_answers_a_new_question(memory: Memory, tmp_path: Path) -> None:
    """Of a sparse reading only every second sample is there: it stands for the one after it."""
    path = moved_recording(memory, tmp_path, seed=6)
    (entry,) = memory.list()
    elsewhere = path.rename(tmp_path / "away")
    gone = memory.ask(red_square())
    assert gone.found
    assert "is no longer there; this is from memory" in gone.summary
    assert memory.thumbnail(entry, gone.sightings[0].end_s) is not None
    elsewhere.rename(path)
    there = memory.ask(red_square())
    assert abs(gone.sightings[0].end_s - there.sightings[0].end_s) <= 0.2
    shutil.rmtree(memory.encoded(entry).store.folder)
    path.unlink()
    assert "unverified, from memory" in memory.ask(red_square()).summary
    write_recording(path, 1, seconds=2)  # another one under its name
    told = memory.ask(red_square())
    assert "is no longer the video that was added" in told.summary


def test_a_replaced_video_answers_as_if_it_was_gone(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by one just as long, after a first question: then only a look back would read it again."""
    path = moved_recording(memory, tmp_path, seed=2)
    memory.ask(red_square())
    elsewhere = path.rename(tmp_path / "away.mp4")
    gone = memory.ask(red_square())
    write_recording(path, 11)
    assert Video.open(path).info == Video.open(elsewhere).info
    opened: list[Path] = []
    read = Container.read
    monkeypatch.setattr(Container, "read", lambda c, *_, **__: opened.append(c.path) or read(c, *_, **__))
    replaced = memory.ask(red_square())
    assert opened == []
    assert replaced.sightings[0].score == gone.sightings[0].score
    assert np.array_equal(replaced.result.curve.raw, gone.result.curve.raw)
    assert f"{path} is no longer the video that was added; this is from memory" in replaced.summary
    (entry,) = memory.list()
    assert (entry.state, entry.exists) == ("replaced", False)
    with pytest.raises(VideoError, match="no longer the video that was read"):
        without_video(memory.encoded(entry)).frames([0])
    with pytest.raises(VideoError, match="was moved, deleted or replaced"):
        memory.open_video(entry)
    no_place = memory.ask(red_square(), in_3d=True).result.place
    assert "no camera poses of it are known" in no_place.reason


def test_a_file_written_anew_with_the_same_content_is_the_same_video(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = moved_recording(memory, tmp_path, seed=2)
    os.utime(path, ns=(1, 2))
    (entry,) = memory.list()
    assert entry.exists
    assert entry.stamp.mtime_ns != 2
    assert memory.ask(red_square()).video.stamp.mtime_ns == 2
    monkeypatch.setattr(Container, "content_hash", lambda _: pytest.fail("hashed again"))
    assert memory.list()[0].exists


def test_images_that_join_a_folder_make_it_another_video(memory: Memory, tmp_path: Path) -> None:
    for number in range(3):
        write_image(tmp_path / "walk" / f"{number}.png", image(3, number))
    entry = memory.add(tmp_path / "walk", start=datetime(2026, 1, 1))
    (tmp_path / "walk" / "notes.txt").write_text("kitchen")
    os.utime(tmp_path / "walk", ns=(1, 2))
    assert entry.exists
    write_image(tmp_path / "walk" / "3.png", image(3, 3))
    assert entry.state == "replaced"


def test_a_moved_video_whose_name_was_given_to_another_is_found(memory: Memory, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "rec.mp4", 2)
    first = memory.add(path)
    moved = path.rename(tmp_path / "rec.1.mp4")
    write_recording(path, 11)
    second = memory.add(path)
    assert memory.find(path) == second  # of two the one that is there
    assert memory.add(moved).path == moved
    assert {memory.find(path).id, memory.find(moved).id} == {second.id, first.id}
    memory.remove(path)
    assert [entry.id for entry in memory.list()] == [first.id]


def test_poses_of_a_video_that_is_gone_are_those_of_an_earlier_answer(memory: Memory, tmp_path: Path) -> None:
    path = moved_recording(memory, tmp_path, seed=5)
    sampled = memory.encoded(memory.list()[0]).video
    lens = Camera("PINHOLE", 96, 64, (80.0, 80.0, 48.0, 32.0))
    poses = [CameraPose(np.column_stack([np.eye(3), [0.02 * k, 0, 0]])) for k in range(len(sampled))]
    frames = map(PosedFrame, sampled.frame_index.tolist(), sampled.time_s.tolist(), poses)
    given = SpaceSources(cameras=Reconstruction(lens, tuple(frames), "m"))
    elsewhere = path.rename(tmp_path / "away")
    nowhere = memory.ask(red_square(), in_3d=True)
    assert "no camera poses of it are known" in nowhere.result.place.reason
    elsewhere.rename(path)
    memory.objects.save("square", red_square())
    there = memory.ask("square", in_3d=True, space=given)
    assert len(there.result.cameras.frames) == len(sampled)
    path.unlink()
    memory.objects.remove("square")  # its answer keeps the poses
    gone = memory.ask(red_square(), in_3d=True)
    poses_known = [[f.pose.cam_from_world.tolist() for f in a.result.cameras.frames] for a in (there, gone)]
    assert poses_known[0] == poses_known[1]
    assert type(gone.result.place) is type(there.result.place)


def test_a_video_removed_while_it_is_asked_is_passed_over(filled: Memory) -> None:
    *others, last = filled.list()
    with filled.catalogue.change() as db:  # what another process does after the list was made
        db.execute("DELETE FROM videos WHERE id = ?", (last.id,))
    assert filled.ask(red_square(), videos=[*others, last]).sightings[0].video == others[-1]


def test_a_stopped_addition_goes_on(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_recording(tmp_path / "20260401_120000.mp4", 4)

    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.add(path, progress=stop)
    (entry,) = memory.list()
    assert not entry.ready
    answer = memory.ask(red_square())
    assert (answer.found, answer.nothing_asked, answer.incomplete) == (False, True, (entry,))
    assert answer.summary == (
        f"No video could be asked. Not asked, since adding it was stopped: {path}. Add it again."
    )
    assert memory.ask(red_square(), until=entry.start.time).incomplete == ()
    assert memory.add(path).id == entry.id
    assert memory.list()[0].ready
    slots = memory.videos.thumbnail_slots(entry.id)
    assert slots == {0, 1}
    assert memory.catalogue.check() == []


def test_removing_forgets_all_of_a_video_but_the_users_file(filled: Memory, recordings: list[Path]) -> None:
    answer = filled.ask(red_square())
    entry = answer.sightings[0].video
    known = filled.encoded(entry)
    assert known.store.folder.is_dir()
    assert known.memory.folder.is_dir()
    filled.remove(entry.id)
    assert entry not in filled.list()
    assert not known.store.folder.exists()
    assert not known.memory.folder.exists()
    assert entry.path.exists()
    assert filled.thumbnail(entry) is None
    kept = "".join(str(tuple(row)) for row in filled.catalogue.rows("SELECT * FROM questions"))
    assert not any(word in kept for word in (entry.path.name, "12 March", "in the box"))
    with pytest.raises(DataError, match="its video was removed"):
        filled.questions.result(answer.question)
    assert entry not in [s.video for s in filled.questions.get(answer.question).sightings]
    with pytest.raises(DataError, match="no single video"):
        filled.remove(entry.id)
    filled.add(recordings[2])  # for the other tests, which share the cache
    assert filled.catalogue.check() == []


def test_removing_a_video_that_was_only_remembered_takes_the_words_about_it(
    filled: Memory, tmp_path: Path
) -> None:
    path = moved_recording(filled, tmp_path, seed=10)
    entry = filled.find(path)
    shutil.rmtree(filled.encoded(entry).store.folder)
    path.unlink()
    answer, other = filled.ask(red_square()), filled.ask(red_square(), videos=filled.list()[:1])
    assert answer.found
    assert path.name in answer.summary
    filled.remove(entry)
    assert path.name not in filled.questions.get(answer.question).message
    assert filled.questions.get(other.question).message == other.summary


def test_what_a_dead_process_left_to_delete_is_deleted(memory: Memory, tmp_path: Path) -> None:
    """But nothing outside of the memory, whoever wrote its catalogue."""
    left, other = memory.folder / "left", tmp_path / "other"
    for path in (left, other):
        path.mkdir()
    with memory.catalogue.change() as db:
        for path in (left, other, memory.folder / ".." / "other", memory.folder):
            db.execute("INSERT INTO trash VALUES (?)", (str(path),))
    Memory.open(memory.folder, localizer=memory.localizer)
    assert not left.exists()
    assert other.exists()
    assert str(left) not in [row["path"] for row in memory.catalogue.rows("SELECT path FROM trash")]


def test_saved_objects(filled: Memory, tmp_path: Path) -> None:
    objects = filled.objects
    mask = np.zeros((64, 96), bool)
    mask[10:40, :30] = True
    objects.save("red  square", replace(red_square(), mask=mask, seen_at_s=1.5))
    objects.save("Red Square", red_square(1))
    objects.save("blue", Query.from_image(image(2, 3), box=Box(5, 5, 20, 20)))
    assert [(e.name, e.num_views, e.last_seen) for e in objects] == [
        ("blue", 1, None),
        ("red square", 2, None),
    ]
    kept = objects["RED SQUARE"]
    assert np.array_equal(kept.image, red_square().image)
    assert np.array_equal(kept.mask, mask)
    assert (kept.box, kept.seen_at_s, len(kept.views)) == (Box(0, 10, 30, 40), 1.5, 2)
    by_name, by_image = filled.ask("red square"), filled.ask(kept)
    assert by_name.sightings == by_image.sightings
    (entry,) = (e for e in objects if e.name == "red square")
    assert abs(entry.last_seen - by_name.sightings[0].seen_until) < timedelta(milliseconds=1)
    objects.remove("blue")
    assert "blue" not in objects
    with pytest.raises(QueryError, match=r"No object is saved as 'keys'\. Saved are: red square"):
        filled.ask("keys")
    with pytest.raises(QueryError, match="needs a name"):
        objects.save("  ", red_square())
    for _ in range(MAX_VIEWS - 2):
        objects.save("red square", red_square())
    with pytest.raises(QueryError, match=f"at most {MAX_VIEWS} reference images"):
        objects.save("red square", red_square())
    assert len(objects["red square"].views) == MAX_VIEWS


def test_questions_and_answers_are_kept(filled: Memory, tmp_path: Path) -> None:
    filled.objects.save("square", red_square())
    first, second = filled.ask(red_square(1)), filled.ask("square", until=datetime(2026, 3, 11, 18))
    again = Memory.open(filled.folder, localizer=filled.localizer)
    questions = again.questions.all()
    assert [q.id for q in questions] == [second.question, first.question]
    assert [q.object_name for q in questions] == ["square", None]
    assert questions[0].until == datetime(2026, 3, 11, 18).astimezone()
    assert questions[1].sightings == first.sightings
    assert questions[1].message == first.summary
    kept = again.questions.result(first.question)
    assert kept.to_dict() == first.result.to_dict()
    assert np.array_equal(kept.query.image, first.result.query.image)
    again.objects.remove("square")
    forgotten = again.questions.get(second.question)
    assert (forgotten.object_name, forgotten.sightings) == (None, second.sightings)
    left = again.questions.result(second.question)
    assert left.boxes_xyxy.tolist() == second.result.boxes_xyxy.tolist()
    assert left.query.image.shape == (30, 30, 3)  # the thumbnail of what was looked for
    assert left.query_mask is None
    again.questions.remove(first.question)
    with pytest.raises(DataError, match="There is no question"):
        again.questions.get(first.question)


@pytest.mark.parametrize("masked", [False, True])
def test_a_questions_photo_is_kept_small_and_an_objects_as_it_is(filled: Memory, masked: bool) -> None:
    """The answer is to the photo itself; what is kept tells of the smaller one."""
    photo = np.random.default_rng(0).integers(0, 255, (1500, 2000, 3), np.uint8)
    mask = np.zeros((1500, 2000), bool)
    mask[300:900, 200:700] = True
    query = Query(photo, Box(200, 300, 700, 900), mask if masked else None)
    before = filled.catalogue.path.stat().st_size
    answer = filled.ask(query)
    assert np.array_equal(answer.result.query.image, photo)
    (row,) = filled.catalogue.rows("SELECT length(image) AS size FROM views")
    assert row["size"] < 1024 * 768 * 3 * 1.01
    kept = filled.questions.result(answer.question)
    assert kept.query.image.shape == (768, 1024, 3)
    assert kept.query.box == Box(*(side * 0.512 for side in (200, 300, 700, 900)))
    assert (kept.query.mask is not None) == masked
    assert kept.query_mask.box.width == pytest.approx(answer.result.query_mask.box.width * 0.512)
    assert np.array_equal(kept.query_mask.mask, answer.result.query_mask.mask)
    filled.objects.save("photo", query)
    assert np.array_equal(filled.objects["photo"].image, photo)
    filled.objects.remove("photo")
    filled.questions.remove(answer.question)
    filled.catalogue.close()
    assert filled.catalogue.path.stat().st_size <= before + 200_000


def test_of_a_large_photo_of_something_tiny_the_thing_stays() -> None:
    photo = np.zeros((600, 9000, 3), np.uint8)
    small = shrunk(Query(photo, Box(100, 100, 104, 104)))
    assert small.image.shape == photo.shape
    assert shrunk(Query(photo, Box(100, 100, 116, 116))).box.width == pytest.approx(8)


def test_a_path_is_a_query(filled: Memory, tmp_path: Path) -> None:
    write_image(tmp_path / "square.png", red_square().crop)
    answer = filled.ask(tmp_path / "square.png")
    assert answer.sightings == filled.ask(Query.from_image(tmp_path / "square.png")).sightings
    assert filled.questions.get(answer.question).sightings == answer.sightings


def test_the_catalogue_survives_the_loss_of_power(memory: Memory) -> None:
    """In WAL mode, and every commit waits for the disk; so in each thread."""

    def settings() -> list[int | str]:
        names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum")
        return [memory.catalogue.row(f"PRAGMA {name}")[0] for name in names]

    with ThreadPoolExecutor(1) as other:
        assert settings() == other.submit(settings).result() == ["wal", 2, 1, 2]


def test_questions_are_listed_without_their_whole_answers(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in two looks at the catalogue, however many they are."""
    asked = [filled.ask(red_square(), videos=filled.list()[:1]) for _ in range(3)]
    looks: list[set[str]] = []
    rows = Catalogue.rows

    def seen(catalogue: Catalogue, sql: str, *values: Any) -> list[Any]:
        found = rows(catalogue, sql, *values)
        looks.append(set(found[0].keys()))
        return found

    monkeypatch.setattr(Catalogue, "rows", seen)
    listed = filled.questions.all()
    assert [q.sightings for q in listed] == [answer.sightings for answer in reversed(asked)]
    assert len(looks) == 2
    assert not {"document", "thumbnail"} & set.union(*looks)


def test_the_thumbnail_of_a_thin_thing_can_be_asked() -> None:
    assert Query.from_image(decode_image(to_jpeg(np.zeros((2, 900, 3), np.uint8)))).box.height == 2


def test_an_object_that_is_forgotten_while_it_is_asked_for(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.objects.save("square", red_square())
    ask = Localizer.ask

    def forget(localizer: Localizer, *question: Any, **more: Any) -> Result:
        if "square" in filled.objects:
            filled.objects.remove("square")
        return ask(localizer, *question, **more)

    monkeypatch.setattr(Localizer, "ask", forget)
    answer = filled.ask("square")
    kept = filled.questions.get(answer.question)
    assert (kept.object_name, kept.sightings) == (None, answer.sightings)
    assert np.array_equal(filled.questions.query(answer.question).image, red_square().image)
    assert filled.catalogue.check() == []


@pytest.mark.parametrize("make", [Path.mkdir, lambda p: None], ids=["empty", "missing"])
def test_a_folder_without_a_memory(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = tmp_path / "nothing"
    make(folder)
    with pytest.raises(DataError, match=r"There is no memory in .*nothing\. Make one"):
        Memory.open(folder, create=False)


def test_a_folder_of_images_keeps_its_rate(memory: Memory, tmp_path: Path) -> None:
    for number in range(4):
        write_image(tmp_path / "walk" / f"{number}.png", image(3, number))
    entry = memory.add(Video.open(tmp_path / "walk", folder_fps=2), start=datetime(2026, 1, 1))
    assert entry.source.folder_fps == 2.0
    assert entry.duration_s == 2.0
    assert Video.reopen(memory.ask(red_square()).result.video.source).info.fps == 2


def test_an_unreadable_video_leaves_nothing(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "cut.mp4").write_bytes(b"nothing")
    with pytest.raises(VideoError, match=r"cut.mp4 cannot be read"):
        memory.add(tmp_path / "cut.mp4")
    assert memory.list() == []


def test_before_is_what_was_seen_before(filled: Memory) -> None:
    encoded = filled.encoded(filled.list()[0])
    assert before(encoded, None) is encoded
    cut = before(encoded, 1.0)
    assert (cut.time_s < 1.0).all()
    assert len(cut) == int((encoded.time_s < 1.0).sum())
