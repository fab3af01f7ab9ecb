"""Settings: changed by words, checked, frozen."""

from __future__ import annotations

import dataclasses
import json

import pytest

from egohieraloc.config import PRESETS, NetworkConfig, SearchConfig, TemporalConfig, preset
from egohieraloc.errors import ConfigError
from egohieraloc.localize import LocalizerConfig
from egohieraloc.settings import from_dict, override, to_dict, update


def test_words_reach_nested_settings_and_leave_the_rest() -> None:
    changed = override(NetworkConfig(), ["qam.decay=0.25", "input_size=320", "dpm.likelihood=false"])
    assert (changed.qam.decay, changed.input_size, changed.dpm.likelihood) == (0.25, 320, False)
    back = dataclasses.replace(
        changed,
        input_size=448,
        qam=dataclasses.replace(changed.qam, decay=0.4),
        dpm=dataclasses.replace(changed.dpm, likelihood=True),
    )
    assert back == NetworkConfig()


def test_later_words_win_and_spaces_do_not_matter() -> None:
    assert override(SearchConfig(), ["stride=2", " stride = 3"]).stride == 3


@pytest.mark.parametrize(
    ("word", "value"),
    [("backbone.name=pvt_v2_b1", "pvt_v2_b1"), ('backbone.name="resnet101"', "resnet101")],
)
def test_text_with_and_without_quotes(word: str, value: str) -> None:
    assert override(NetworkConfig(), [word]).backbone.name == value


def test_an_int_becomes_a_float_and_a_list_a_tuple() -> None:
    config = override(NetworkConfig(), ["dpm.temperature=1", "query_sizes=[160, 64]"])
    assert isinstance(config.dpm.temperature, float)
    assert config.query_sizes == (160, 64)


def test_none_where_it_is_allowed() -> None:
    assert override(SearchConfig(), ["fps=none"]).fps is None
    assert update(SearchConfig(), {"fps": None}).fps is None
    assert override(SearchConfig(fps=None), ["fps=2"]).fps == 2
    with pytest.raises(ConfigError, match="'stride' must be int, got 'none'"):
        override(SearchConfig(), ["stride=none"])


def test_literal() -> None:
    assert override(NetworkConfig(), ["query_mask.fallback=none"]).query_mask.fallback == "none"
    with pytest.raises(ConfigError, match=r"'qam.mode' must be one of 'fixed', 'paper', got 'fast'"):
        override(NetworkConfig(), ["qam.mode=fast"])


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("qam.decya=1", "'qam.decya'; did you mean 'qam.decay'"),
        ("qma.decay=1", "'qma'; did you mean 'qam'"),
        ("zzz=1", "Unknown setting 'zzz'; there are "),
    ],
)
def test_an_unknown_key_names_the_nearest(word: str, near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        override(NetworkConfig(), [word])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("input_size=4.5", "'input_size' must be int, got 4.5"),
        ("input_size=true", "'input_size' must be int, got True"),
        ("qam.decay=true", "'qam.decay' must be float, got True"),
        ("qam.decay=fast", "'qam.decay' must be float, got 'fast'"),
        ("qam.enabled=1", "'qam.enabled' must be bool, got 1"),
        ("backbone.name=3", "'backbone.name' must be str, got 3"),
        ("query_sizes=64", "'query_sizes' must be tuple, got 64"),
        ('query_sizes=[64, "a"]', "'query_sizes' must be int, got 'a'"),
        ("qam=3", "'qam' must be QamConfig, got 3"),
        ("qam.decay.deep=3", "'qam.decay' must be float"),
        ("qam.decay", "written section.key=value, got 'qam.decay'"),
    ],
)
def test_wrong_types(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(NetworkConfig(), [word])


def test_what_a_part_refuses_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="median must be an odd number"):
        override(TemporalConfig(), ["median=4"])
    with pytest.raises(ConfigError, match=r"temporal\.: median must be an odd number"):
        override(LocalizerConfig(), ["temporal.median=4"])


@pytest.mark.parametrize(
    "word",
    [
        "search.coarse_margin=-1",
        "search.coarse_margin=nan",
        "search.coarse_neighbours=-1",
        "search.max_decoded=-1",
        "tracker.update_every=0",
        "temporal.complete_reach=-1",
    ],
)
def test_settings_that_make_no_sense(word: str) -> None:
    with pytest.raises(ConfigError, match=word.split(".")[1].split("=")[0]):
        override(LocalizerConfig(), [word])


@pytest.mark.parametrize(
    ("word", "name"), [("query_window=0", "query_window"), ("query_sizes=[96, 224]", "largest")]
)
def test_networks_that_make_no_sense(word: str, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        override(NetworkConfig(), [word])


def test_settings_are_a_table() -> None:
    with pytest.raises(ConfigError, match=r"must be a table of keys and values, got \[1\]"):
        from_dict(NetworkConfig, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    assert from_dict(NetworkConfig, json.loads(json.dumps(to_dict(preset(name))))) == preset(name)


def test_keys_left_out_keep_their_default() -> None:
    assert from_dict(NetworkConfig, {"qam": {"decay": 0.1}}).qam.smoothing == NetworkConfig().qam.smoothing


def test_frozen() -> None:
    config = NetworkConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.input_size = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.qam.decay = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        SearchConfig(5.0)  # type: ignore[misc]
