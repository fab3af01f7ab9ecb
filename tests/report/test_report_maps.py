"""The maps that a report shows are those that decided, also where another template did.

A small untrained network, a clip of noise: what is proved is where the maps come from, not what they show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from egohieraloc import Localizer, Query, Result, Video
from egohieraloc.config import preset
from egohieraloc.images import write_image
from egohieraloc.inference.answer import answer
from egohieraloc.inference.complete import complete
from egohieraloc.inference.encoded import EncodedVideo
from egohieraloc.inference.predict import Decoded
from egohieraloc.inference.search import QuerySearch
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import Calibration, save_weights
from egohieraloc.report.build import save_report
from egohieraloc.result_json import from_png
from egohieraloc.types import Box, ResponseTrack

MAPS = ("foreground", "likelihood", "response", "location")
# All samples are decoded with both templates; where the query scores less than this, the other has the word.
SETTINGS = ("search.coarse_margin=100", "temporal.complete=0.1055")


@pytest.fixture(scope="module")
def localizer(tmp_path_factory: pytest.TempPathFactory) -> Localizer:
    folder = tmp_path_factory.mktemp("localizer")
    weights = folder / "tiny.safetensors"
    torch.manual_seed(0)
    save_weights(weights, EgoHieraLocNet(preset("tiny")), Calibration(threshold=0.0))
    return Localizer.from_pretrained(weights, device="cpu", cache=folder / "cache", settings=SETTINGS)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    """Frames wider than high, so that the canvas has a border that maps must not show."""
    folder, rng = tmp_path_factory.mktemp("clip"), np.random.default_rng(5)
    for number in range(24):
        write_image(folder / f"{number:02d}.png", rng.integers(0, 255, (60, 100, 3), np.uint8))
    return Video.open(folder, folder_fps=5)


@pytest.fixture(scope="module")
def asked(localizer: Localizer, video: Video) -> tuple[Result, Mapping[int, Decoded], set[int]]:
    """The answer, what was decoded, and the samples whose word is the completed template's."""
    query = Query.from_frame(video, index=9, box=Box(20, 10, 60, 50))
    encoded = localizer.encode(video)
    search = QuerySearch(
        query=localizer.predictor.prepare(query),
        video=encoded,
        predictor=localizer.predictor,
        config=localizer.config.search,
        temporal=localizer.config.temporal,
    )
    own = search.decode(search.coarse_scores())
    track = answer(search, own).track
    assert isinstance(track, ResponseTrack)
    _, joined = complete(search, own, (track.start, track.end))
    others = {sample for sample, each in joined.items() if each is not own.get(sample)}
    return localizer.ask(query, encoded), joined, others


def on_frame(encoded: EncodedVideo, values: np.ndarray) -> np.ndarray:
    """The part of a canvas map that shows the frame, by its own rule: rows of the border left out."""
    width, height = encoded.letterbox.canvas_size
    side, shown = len(values), width * 60 / 100  # frames of 100 x 60 are as wide as the canvas
    top, bottom = (height - shown) / 2, (height + shown) / 2
    return values[int(top * side / height) : -int(-bottom * side // height)]


def test_maps_are_those_that_decided(
    localizer: Localizer, video: Video, asked: tuple[Result, Mapping[int, Decoded], set[int]]
) -> None:
    result, decoded, others = asked
    kept = {maps.sample for maps in result.maps}
    assert len(kept) == 8
    assert kept & others, "no kept sample was decoded with the completed template"
    assert kept - others, "no kept sample was decoded with the query's template"
    encoded = localizer.encode(video)
    for maps in result.maps:
        canvas = decoded[maps.sample].maps
        for name in MAPS:
            wanted = np.round(255 * np.clip(on_frame(encoded, getattr(canvas, name)), 0, 1))
            np.testing.assert_array_equal(getattr(maps, name), wanted, err_msg=f"{name} of {maps.sample}")
        np.testing.assert_array_equal(maps.mask, on_frame(encoded, decoded[maps.sample].mask))


def test_a_restarted_state_gives_other_maps(
    localizer: Localizer, video: Video, asked: tuple[Result, Mapping[int, Decoded], set[int]]
) -> None:
    """So the law above can fail: what the report once showed was decoded anew, and was different."""
    result, _, _ = asked
    encoded, predictor = localizer.encode(video), localizer.predictor
    query = predictor.prepare(result.query)
    sample = result.maps[-1].sample
    [again], _ = predictor.decode(query, encoded.pick([sample]), predictor.start(query))
    shown = np.round(255 * np.clip(on_frame(encoded, again.maps.location), 0, 1))
    assert not np.array_equal(result.maps[-1].location, shown)


def test_the_page_holds_the_same_values(
    asked: tuple[Result, Mapping[int, Decoded], set[int]], tmp_path: Path
) -> None:
    result, _, _ = asked
    text = save_report(result, tmp_path / "out").read_text(encoding="utf-8")
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    shown = json.loads(found[1])["result"]["maps"]
    assert [part["sample"] for part in shown] == [maps.sample for maps in result.maps]
    for part, maps in zip(shown, result.maps, strict=True):
        for name in (*MAPS, "mask"):
            np.testing.assert_array_equal(from_png(part[name]), getattr(maps, name))
        assert (part["ellipse"], part["drift"]) == (list(maps.ellipse), list(maps.drift))
