"""The tracker on stored features: the same walk as over the video itself."""

import itertools

import numpy as np
import pytest
import torch

from egohieraloc.config import TrackerConfig, preset
from egohieraloc.errors import VideoError
from egohieraloc.images import write_image
from egohieraloc.inference.tracker import encoded_samples, follow, stored_samples
from egohieraloc.localize import Localizer
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights
from egohieraloc.types import Box
from egohieraloc.video.reader import Video

START = Box(10, 20, 30, 40)


@pytest.fixture(scope="module")
def localizer(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    save_weights(root / "tiny.safetensors", EgoHieraLocNet(preset("tiny")))
    return Localizer.from_pretrained(root / "tiny.safetensors", cache=root / "cache")


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    folder = tmp_path_factory.mktemp("video")
    for number in range(40):
        image = np.full((64, 96, 3), 100, np.uint8)
        image[20:40, 10 + number : 30 + number] = (230, 30, 30)
        write_image(folder / f"{number}.png", image)
    return Video.open(folder)


@pytest.mark.parametrize("backward", [False, True])
def test_stored_features_give_the_same_walk(localizer, video, backward):
    frames = range(37, -1, -1) if backward else range(39, 40)
    walk = list(itertools.islice(localizer.track(video, START, at_s=38 / 5, backward=backward), 10))
    encoded = localizer.encode(video, indices=np.arange(40))
    shown = video.frame(38)
    samples = stored_samples(video, encoded, frames)
    config = localizer.config.tracker
    stored = list(itertools.islice(follow(localizer.predictor, shown, START, samples, config), 10))
    assert [p.frame_index for p in stored] == [p.frame_index for p in walk] == list(frames)[:10]
    for a, b in zip(stored, walk, strict=True):
        assert a.score == pytest.approx(b.score, abs=0.02)
        assert a.box.xyxy == pytest.approx(b.box.xyxy, abs=2)
        assert a.time_s == b.time_s


def test_frames_of_a_walk_are_encoded_some_at_a_time(localizer, video, monkeypatch):
    predictor, sizes = localizer.predictor, []
    encode = predictor.encode
    monkeypatch.setattr(predictor, "encode", lambda canvases: sizes.append(len(canvases)) or encode(canvases))
    samples = list(encoded_samples(predictor, video, np.arange(18, 7, -1)))
    assert sizes == [8, 3]
    assert [s.index for s in samples] == [s.image().index for s in samples] == list(range(18, 7, -1))
    assert all(len(s.packed) == 1 for s in samples)


def test_samples_come_in_the_order_asked_and_chunks_are_read_once(localizer, video, monkeypatch):
    encoded = localizer.encode(video, indices=np.arange(1, 40))
    read = []
    chunk = type(encoded).chunk
    monkeypatch.setattr(type(encoded), "chunk", lambda self, n: read.append(n) or chunk(self, n))
    samples = list(stored_samples(video, encoded, [33, 32, 31, 0]))
    assert [s.index for s in samples] == [34, 33, 32, 1]
    assert read == [4, 5, 3, 0]
    for sample, number in zip(samples, [33, 32, 31, 0], strict=True):
        np.testing.assert_array_equal(sample.packed.match, encoded.pick([number]).match)
    assert samples[-1].image().index == 1


def test_templates_are_renewed_when_due_and_damaged_frames_are_not_templates(localizer, video):
    encoded = localizer.encode(video, indices=np.arange(40))
    asked = []

    def samples():
        for sample in stored_samples(video, encoded, range(1, 8)):

            def image(index=sample.index):
                asked.append(index)
                raise VideoError("damaged")

            yield type(sample)(sample.index, sample.time_s, sample.packed, image)

    always = TrackerConfig(update_every=2, update_score=0.0, min_side_px=0.0)
    never = TrackerConfig(update_every=2, update_score=0.0, min_side_px=0.0, template_update=False)
    for config, wanted in ((always, [2, 4, 6]), (never, [])):
        asked.clear()
        assert len(list(follow(localizer.predictor, video.frame(0), START, samples(), config))) == 7
        assert asked == wanted


def test_a_mask_provider_makes_the_first_mask(localizer, video):
    asked = []

    def lower_half(query):
        asked.append((query.box, query.mask))
        mask = np.zeros(query.image.shape[:2], bool)
        mask[30:40, 10:30] = True
        return mask, 0.9

    provided = Localizer(localizer.weights, cache=localizer.cache, provider=lower_half)
    whole, half = (next(iter(each.track(video, START, at_s=0.0))) for each in (localizer, provided))
    assert asked == [(START, None)]
    assert half.score != whole.score


def test_other_frames_are_stored_apart(localizer, video):
    sampled = localizer.encode(video)
    others = localizer.encode(video, indices=np.arange(0, 40, 2))
    assert sampled.store.folder != others.store.folder
    assert localizer.encode(video, indices=np.arange(40)).store.folder == sampled.store.folder
    assert others.first(3).frame_index.tolist() == [0, 2, 4]
    assert len(others.first(3).time_s) == 3
