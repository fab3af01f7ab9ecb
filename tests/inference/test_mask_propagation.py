"""Mask propagation: each sample is searched for what the one before showed, beside the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.special import logit

from egohieraloc.config import TrackerConfig
from egohieraloc.images import write_image
from egohieraloc.inference.propagation import propagated
from egohieraloc.inference.search import QuerySearch
from egohieraloc.inference.tracker import follow, stored_samples
from egohieraloc.localize import Localizer
from egohieraloc.query import Query
from egohieraloc.types import Box, Mask
from egohieraloc.video.reader import Video
from untrained import untrained_model

BOX = Box(10, 20, 30, 40)
NO_MEMORY = ("network.qam.enabled=false",)  # QAM's state apart, a frame knows nothing of the one before


@dataclass(frozen=True)
class Directions:
    """A template of unit vectors in the plane."""

    angles: tuple[float, ...]

    def beside(self, other: Directions | None) -> Directions:
        return self if other is None else Directions(self.angles + other.angles)


@dataclass(frozen=True)
class Seen:
    score: float


class Compass:
    """A predictor whose samples are angles: one scores the cosine with what is most like it."""

    def start(self, query: Directions) -> None:
        return None

    def decode(self, query: Directions, sample: float, state: None) -> tuple[list[Seen], None]:
        return [Seen(max(float(np.cos(sample - angle)) for angle in query.angles))], None

    def template_from_sample(self, sample: float, seen: Seen) -> Directions:
        return Directions((sample,))


def scores(samples: Sequence[float], above: float | None) -> list[float]:
    found = propagated(Compass(), Directions((0.0,)), samples, above)  # type: ignore[arg-type]
    return [seen.score for seen in found]


def test_an_object_that_turns_is_followed_by_what_it_looked_like_last() -> None:
    turning = [0.3 * step for step in range(1, 6)]
    assert scores(turning, None) == pytest.approx(np.cos(turning))
    assert scores(turning, 0.9) == pytest.approx([np.cos(0.3)] * 5)


def test_what_scores_too_low_is_not_passed_on_and_the_query_finds_it_again() -> None:
    gone = np.pi
    assert scores([0.3, gone, 0.6, 0.9, 0.0], 0.9) == pytest.approx(
        [np.cos(0.3), np.cos(gone - 0.3), np.cos(0.6), np.cos(0.9), 1.0]
    )


@pytest.fixture(scope="module")
def localizer(tmp_path_factory: pytest.TempPathFactory) -> Localizer:
    root = tmp_path_factory.mktemp("tiny")
    built = Localizer.from_pretrained(untrained_model(root), settings=NO_MEMORY, cache=root)
    predictor = built.predictor
    noise = np.random.default_rng(1).integers(0, 255, (224, 224, 3), np.uint8)
    query = predictor.prepare(Query(noise, Box(50, 50, 150, 150)))
    (seen,) = predictor.decode_images(query, [noise])
    with torch.no_grad():  # so that masks have an inside and an outside
        predictor.network.ram.decoder.out.bias -= float(logit(np.median(seen.mask) / 255))
    return built


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    folder = tmp_path_factory.mktemp("video")
    random = np.random.default_rng(0)
    for number in range(8):
        image = random.integers(0, 255, (64, 96, 3), np.uint8)
        image[20:40, 10 + 4 * number : 30 + 4 * number] = (230, 30, 30)
        write_image(folder / f"{number}.png", image)
    return Video.open(folder)


def last_tracked(localizer: Localizer, video: Video, walk: list[int], above: float | None) -> Mask:
    """The mask of the walk's last frame."""
    encoded = localizer.encode(video, indices=np.arange(8), dense=True)
    samples = stored_samples(video, encoded, walk)
    config = TrackerConfig(template_update=False, propagate_above=above)
    *_, last = follow(localizer.predictor, video.frame(0), BOX, samples, config)
    assert last.mask is not None
    return last.mask


def test_a_tracked_frames_mask_depends_on_that_of_the_frame_before(
    localizer: Localizer, video: Video
) -> None:
    alone = last_tracked(localizer, video, [2, 6], None)
    np.testing.assert_array_equal(alone, last_tracked(localizer, video, [4, 6], None))
    np.testing.assert_array_equal(alone, last_tracked(localizer, video, [2, 6], 1.1))  # none scores so high
    assert (last_tracked(localizer, video, [2, 6], 0.0) != last_tracked(localizer, video, [4, 6], 0.0)).any()


def test_masks_are_passed_on_along_each_stretch_of_a_search(localizer: Localizer, video: Video) -> None:
    encoded = localizer.encode(video, dense=True)
    query = localizer.predictor.prepare(Query.from_frame(video, index=0, box=BOX))
    search = QuerySearch(
        query=query,
        video=encoded,
        predictor=localizer.predictor,
        config=replace(localizer.config.search, coarse_margin=0, coarse_neighbours=0, propagate_above=0.0),
        temporal=localizer.config.temporal,
    )
    stretches = np.array([9.0, 9, 9, 0, 0, 9, 9, 0])
    decoded = search.decode(stretches)
    assert list(decoded) == [0, 1, 2, 5, 6]
    for stretch in ([0, 1, 2], [5, 6]):
        walk = propagated(localizer.predictor, query, (encoded.pick([s]) for s in stretch), 0.0)
        for sample, seen in zip(stretch, walk, strict=True):
            np.testing.assert_array_equal(decoded[sample].mask, seen.mask)
        alone = list(propagated(localizer.predictor, query, (encoded.pick([s]) for s in stretch), None))
        np.testing.assert_array_equal(alone[0].mask, decoded[stretch[0]].mask)
        for sample, seen in zip(stretch[1:], alone[1:], strict=True):  # more to resemble than the query
            more = decoded[sample].maps.foreground - seen.maps.foreground
            assert more.min() >= -0.01
            assert more.max() > 0.01
