"""Settings changed at inference: they reach the network; features are stored apart only where they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from egohieraloc import Localizer, LocalizerConfig, Query, Video
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError
from egohieraloc.images import write_image
from egohieraloc.models.weights import Calibration, copy_weights, load_weights
from egohieraloc.types import Box
from untrained import untrained_model

# One of each ablation that asks for no other weights.
REACHING = [
    "network.dpm.top_k=1",
    "network.dpm.temperature=1.0",
    "network.dpm.foreground=false",
    "network.dpm.likelihood=false",
    "network.dcf.ridge=0.5",
    "network.qam.enabled=false",
    "network.qam.mode=paper",
    "network.qam.multi_peak=false",
    "network.qam.ellipse=false",
    "network.qam.smoothing=0.1",
    "network.ram.feedback=false",
    "network.query_mask.doubtful=1.0",
    "network.query_sizes=[128]",
    "network.query_window=2.0",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    folder = tmp_path_factory.mktemp("frames")
    noise = np.random.default_rng(3)  # whose response has several peaks that compete
    for number in range(6):
        image = noise.integers(0, 255, (96, 96, 3), np.uint8)
        image[10:40, 8 * number : 8 * number + 30] = (230, 30, 30)
        image[50:60, 70:90] = (230, 40, 30)  # a second, smaller candidate
        write_image(folder / f"{number}.png", image)
    return Video.open(folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def answers(localizer: Localizer, video: Video) -> np.ndarray:
    """All maps of all samples, in one row."""
    query = Query.from_frame(video, index=2, box=Box(16, 10, 46, 40))
    encoded = localizer.encode(video)
    prepared = localizer.predictor.prepare(query)
    predictor = localizer.predictor
    decoded, _ = predictor.decode(prepared, encoded.chunk(0), predictor.start(prepared))
    return np.concatenate(
        [np.concatenate([d.mask.ravel(), d.maps.location.ravel(), d.maps.semi_axes]) for d in decoded]
    )


@pytest.mark.parametrize("word", REACHING)
def test_a_setting_reaches_the_network_and_leaves_the_store(
    model: Path, video: Video, cache: Path, word: str
) -> None:
    plain = Localizer.from_pretrained(model, cache=cache)
    changed = Localizer.from_pretrained(model, cache=cache, settings=[word])
    assert changed.predictor.config != plain.predictor.config
    assert not np.array_equal(answers(plain, video), answers(changed, video))
    assert len(list(cache.glob("features-*"))) == 1


def test_the_same_settings_change_nothing(model: Path, video: Video, cache: Path) -> None:
    plain = Localizer.from_pretrained(model, cache=cache)
    words = ["network.qam.decay=0.9", "network.qam.decay=0.4", "temporal.rule=extend"]
    same = Localizer.from_pretrained(model, cache=cache, settings=words)
    assert np.array_equal(answers(plain, video), answers(same, video))


@pytest.mark.parametrize(
    "word",
    [
        "network.input_size=256",
        "network.square_canvas=true",
        "network.neck.signed=false",
        "network.backbone.image_size=256",
    ],
)
def test_what_changes_features_is_stored_apart(model: Path, video: Video, tmp_path: Path, word: str) -> None:
    for settings in ([], [word]):
        Localizer.from_pretrained(model, cache=tmp_path, settings=settings).encode(video)
    assert len(list(tmp_path.glob("features-*"))) == 2


def test_the_store_asks_for_the_encoder_alone(model: Path, tmp_path: Path) -> None:
    weights = load_weights(model)
    copy_weights(model, tmp_path / "calibrated.safetensors", Calibration(threshold=0.1))
    calibrated = load_weights(tmp_path / "calibrated.safetensors")
    assert calibrated.fingerprint != weights.fingerprint
    assert calibrated.features_fingerprint == weights.features_fingerprint
    for part, same in (("ram.cell.bias", True), ("neck.context.0.weight", False)):
        other = load_weights(model)
        other.network.get_parameter(part).data.add_(1.0)
        assert (other.features_fingerprint == weights.features_fingerprint) == same, part


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("network.ram.width=64", r"need other weights: .* does not fit \(\d+ such\)\. Leave out"),
        ("network.ram.attention_layers=0", r"need other weights: ram\.attention"),
        ("network.backbone.name=pvt_v2_b0", "need other weights: backbone"),
        ("network.backbone.name=none", "No backbone is called 'none'"),
        ("network.qam.gamma=0.3", r"Unknown setting 'network\.qam\.gamma'; there are "),
        ("network.dpm.top_k=0", "top_k must be at least 1"),
        ("network.dpm.temperature=0.0", "temperature above 0"),
        ("network.dcf.ridge=0.0", "ridge and sigma must be above 0"),
        ("network.qam.candidates=0", "candidates must be at least 1"),
        ("network.qam.decay=1.5", "decay and smoothing must lie between 0 and 1"),
        ("network.qam.smoothing=-0.1", "decay and smoothing must lie between 0 and 1"),
        ("network.input_size=100", "multiples of 32"),
        ("network.query_sizes=[]", "multiples of 32"),
        ("network.query_sizes=[128, 0]", "multiples of 32"),
    ],
)
def test_settings_that_cannot_be(model: Path, tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Localizer.from_pretrained(model, cache=tmp_path, settings=[word])


def test_a_config_given_whole(model: Path, tmp_path: Path) -> None:
    network = replace(preset("tiny"), query_window=2.0)
    localizer = Localizer.from_pretrained(model, cache=tmp_path, config=LocalizerConfig(network=network))
    assert localizer.predictor.config.query_window == 2.0
    weights = load_weights(model)
    assert Localizer(weights, cache=tmp_path).weights is weights
