"""The last known places of saved objects: kept with the answers, the latest by the wall clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from recordings import red_square

from egohieraloc import Localizer, Memory
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.reconstruction import PosedFrame, Reconstruction
from egohieraloc.localize import SpaceSources
from egohieraloc.memory.places import last_places
from egohieraloc.progress import no_progress
from egohieraloc.report.object_map import object_maps
from egohieraloc.types import DepthMap, DepthUnit, Localization3D, NotLocalized

LENS = Camera("PINHOLE", 96, 64, (80.0, 80.0, 48.0, 32.0))


def space(depth_m: float = 2.0, shift_m: float = 0.0) -> SpaceSources:
    """A camera that stands still before a wall."""
    pose = CameraPose.from_rotation(np.eye(3), [-shift_m, 0.0, 0.0])
    frames = tuple(PosedFrame(i, i / 10, pose) for i in range(30))
    wall = DepthMap(np.full((64, 96), depth_m, np.float32), DepthUnit.METRIC)
    return SpaceSources(
        cameras=Reconstruction(LENS, frames, "m"), depth=lambda indices: dict.fromkeys(indices, wall)
    )


@pytest.fixture
def memory(tmp_path: Path, localizer: Localizer, recordings: list[Path]) -> Memory:
    memory = Memory.open(tmp_path / "memory", localizer=localizer)
    for path in recordings:
        memory.add(path)
    memory.objects.save("keys", red_square(2))
    return memory


def test_a_place_is_told_and_kept_with_the_answer(memory: Memory) -> None:
    answer = memory.ask("keys", in_3d=True, space=space())
    assert answer.result is not None
    assert isinstance(answer.result.place, Localization3D)
    alone = memory.localizer.place(replace(answer.result, place=None, cameras=None), space())
    assert isinstance(alone.place, Localization3D)
    np.testing.assert_allclose(answer.result.place.point_world, alone.place.point_world)
    assert alone.place_words in answer.summary
    assert answer.question is not None
    kept = memory.questions.result(answer.question)
    assert isinstance(kept.place, Localization3D)
    np.testing.assert_allclose(kept.place.point_world, answer.result.place.point_world)
    assert alone.place_words in memory.questions.get(answer.question).message
    assert memory.questions.result(memory.ask("keys").question or 0).place is None


def test_the_last_place_is_that_of_the_latest_sighting_not_of_the_latest_question(memory: Memory) -> None:
    first, second, third = memory.list()
    memory.objects.save("bag", red_square(1))
    assert last_places(memory).missing == {"keys": "not asked for yet", "bag": "not asked for yet"}
    memory.ask("bag", videos=[second])
    memory.ask("keys", in_3d=True, space=space(3.0), videos=[second])
    memory.ask("keys", in_3d=True, space=space(2.0), videos=[first])
    known = last_places(memory)
    assert known.missing == {"bag": "its place was not asked for (--3d)"}
    assert known.results["keys"].video.source.path == str(second.path)
    (mapped,) = object_maps(known.results, known.missing, known.last_seen).values()
    (keys,) = mapped.objects
    assert keys.last_seen_at == memory.ask("keys", videos=[second]).sightings[0].seen_until
    assert keys.seen_later_at is None
    memory.ask("keys", videos=[third])  # seen again, nobody asked where
    known = last_places(memory)
    (mapped,) = object_maps(known.results, known.missing, known.last_seen).values()
    assert mapped.objects[0].last_seen_at == keys.last_seen_at
    assert mapped.objects[0].seen_later_at is not None
    assert mapped.objects[0].seen_later_at.day == third.start.time.day


def test_each_video_has_a_map_of_its_own_that_tells_of_all_objects(memory: Memory) -> None:
    first, second, _ = memory.list()
    for name, video, sources in (("bag", second, space()), ("hat", second, space(shift_m=1.0))):
        memory.objects.save(name, red_square(1))
        memory.ask(name, in_3d=True, space=sources, videos=[video])
    memory.ask("keys", in_3d=True, space=space(), videos=[first])
    known = last_places(memory)
    later, earlier = object_maps(known.results, {"shoe": "not found"}, known.last_seen).items()
    assert (later[0], earlier[0]) == (str(second.path), str(first.path))
    assert {each.name for each in later[1].objects} | {n for n, _ in later[1].without_place} == {
        "bag",
        "hat",
        "keys",
        "shoe",
    }
    assert len(later[1].objects) == 1  # the other stands on a path that was given otherwise
    reasons = dict(earlier[1].without_place)
    assert [each.name for each in earlier[1].objects] == ["keys"]
    assert reasons["bag"] == reasons["hat"] == f"last place is in {second.path.name}"


def test_a_corrected_start_reaches_the_map(memory: Memory) -> None:
    video = memory.list()[0]
    memory.ask("keys", in_3d=True, space=space(), videos=[video])
    before = object_maps(last_places(memory).results, {}, {})[str(video.path)].objects[0].last_seen_at
    hour = timedelta(hours=1)
    memory.add(video.path, start=video.start.time + hour)
    after = object_maps(last_places(memory).results, {}, {})[str(video.path)].objects[0].last_seen_at
    assert before is not None
    assert after == before + hour


def test_without_its_video_or_poses_an_answer_has_no_place(memory: Memory) -> None:
    answer = memory.ask("keys")
    gone = replace(answer.sightings[0].video, source=replace(answer.sightings[0].video.source, path="/gone"))
    lost = replace(answer, sightings=(replace(answer.sightings[0], video=gone),))
    result = memory._placed(lost, None, no_progress).result
    assert result is not None
    assert isinstance(result.place, NotLocalized)
    assert "no longer where it was" in result.place_words


def test_with_a_video_its_places_are_forgotten(memory: Memory) -> None:
    first, _, third = memory.list()
    memory.ask("keys", in_3d=True, space=space(), videos=[third, first])
    assert last_places(memory).results["keys"].video.source.path == str(third.path)
    memory.remove(third)
    assert last_places(memory).results == {}
    memory.ask("keys", in_3d=True, space=space(), videos=[first])
    assert last_places(memory).results["keys"].video.source.path == str(first.path)
