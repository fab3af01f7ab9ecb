"""Every row of the paper's ablations: a valid, different config, run by name, written as a table."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from egohieraloc.ablations import ABLATIONS, Ablation, find_ablation
from egohieraloc.cli import app
from egohieraloc.cli.ablations import settings_for
from egohieraloc.config import preset
from egohieraloc.data.base import Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.errors import ConfigError, DataError, WeightsError
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.ablation_table import MEASURES, ablation_rows, markdown
from egohieraloc.evaluation.egotracks import EgoTracksReport, LongTermScores
from egohieraloc.evaluation.predictions import TrackAnswer
from egohieraloc.evaluation.significance import measures_of_runs
from egohieraloc.evaluation.vq3d import Vq3dReport, Vq3dScores
from egohieraloc.localize import LocalizerConfig
from egohieraloc.models import weights as weights_module
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights
from egohieraloc.settings import override
from egohieraloc.training.recipe import Recipe
from footage_world import write_ego4d

ROWS = list(ABLATIONS.values())
DEFAULTS = {"full", "top-k-5", "fallback-full"}  # rows of the paper that are the full system


def applied(row: Ablation) -> tuple[Recipe, LocalizerConfig]:
    """The recipe and the localizer's config under the settings that are theirs."""
    training = [word for word in row.settings if word.startswith(("network.", "footage."))]
    asking = [
        word for word in row.settings if word.startswith(("search.", "temporal.", "tracker.", "place."))
    ]
    assert len(training) + len(asking) == len(row.settings)
    return override(Recipe(network=preset("large")), training), override(LocalizerConfig(), asking)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_a_config_of_its_own(row: Ablation) -> None:
    same = applied(row) == applied(ABLATIONS["full"])
    assert same == (row.name in DEFAULTS)
    twins = [other.name for other in ROWS if applied(other) == applied(row)]
    assert len(twins) == 1 or row.name in DEFAULTS
    if row.trains:
        with torch.device("meta"):
            EgoHieraLocNet(override(preset("large"), row.network))
    else:  # the weights of the full system fit
        network = override(preset("tiny"), row.network)
        assert (
            EgoHieraLocNet(network).state_dict().keys() == EgoHieraLocNet(preset("tiny")).state_dict().keys()
        )


def test_the_papers_tables_are_complete() -> None:
    groups: dict[str, int] = {}
    for row in ROWS:
        groups[row.group] = groups.get(row.group, 0) + 1
    assert groups == {
        "": 1,
        "DPM and QAM": 4,
        "RAM": 5,
        "GSJC": 12,
        "QAM": 2,
        "Top-K of QAM": 4,
        "k-frame skipping": 4,
        "sensitivity of QAM": 8,
        "fallback": 4,
        "training data": 1,
        "ours": 13,
    }
    assert {"vq2d", "egotracks"} == set(ABLATIONS["without-ellipse"].benchmarks)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'without-elipse'; did you mean 'without-ellipse'\? .* lists all"):
        find_ablation("without-elipse")


def test_listing() -> None:
    result = CliRunner().invoke(app, ["ablations"])
    assert result.exit_code == 0
    for row in ROWS:
        assert any(line.startswith(f"{row.name} ") for line in result.output.splitlines())


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two files: of the full system, and trained without O."""
    folder = tmp_path_factory.mktemp("weights")
    small = override(preset("tiny"), ["input_size=128", "query_sizes=[64,32]"])
    files = {}
    for name in ("full", "without-o"):
        torch.manual_seed(0)
        files[name] = folder / f"{name}.safetensors"
        save_weights(files[name], EgoHieraLocNet(override(small, ABLATIONS[name].network)))
    return files


def test_what_is_only_asked_differently_is_not_trained() -> None:
    with pytest.raises(ConfigError, match=r"'skip-2' needs no training: .* ablations run skip-2 eval"):
        settings_for(find_ablation("skip-2"), "train", [])
    assert settings_for(find_ablation("full"), "train", []) == ()
    assert settings_for(find_ablation("without-z"), "train", []) == ("network.dpm.likelihood=false",)
    assert settings_for(find_ablation("skip-2"), "eval", []) == ("search.stride=2",)


def test_what_is_trained_differently_needs_its_weights(
    weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = find_ablation("without-o")
    monkeypatch.setattr(weights_module, "load_weights", None)  # their header says it
    assert settings_for(row, "eval", ["vq2d", "--model", str(weights["without-o"])]) == ()
    assert settings_for(row, "eval", ["vq2d", f"--model={weights['without-o']}"]) == ()
    with pytest.raises(ConfigError, match=r"not trained as 'without-o'. Train them with .*without-o train"):
        settings_for(row, "eval", ["vq2d", "--model", str(weights["full"])])
    with pytest.raises(ConfigError, match="'without-o' needs weights of its own"):
        settings_for(row, "eval", ["vq2d"])
    (tmp_path / "broken.safetensors").write_bytes(b"no weights")
    with pytest.raises(WeightsError, match=r"broken\.safetensors cannot be read as weights"):
        settings_for(row, "eval", ["vq2d", "--model", str(tmp_path / "broken.safetensors")])


@pytest.mark.parametrize("name", ["skip-2", "without-ellipse"])
def test_evaluating_by_name(name: str, weights: dict[str, Path], tmp_path: Path) -> None:
    annotations = write_ego4d(tmp_path)
    words = [
        "ablations",
        "run",
        name,
        "eval",
        "vq2d",
        "--annotations",
        annotations,
        "--clips",
        tmp_path / "clips",
    ]
    words += [
        "--model",
        weights["full"],
        "--device",
        "cpu",
        "--cache",
        tmp_path,
        "--out",
        tmp_path / "p.jsonl",
    ]
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "p.results.json").read_text())["config"]
    if name == "skip-2":
        assert written["search"]["stride"] == 2
    else:
        assert written["network"]["qam"]["ellipse"] is False


def test_training_by_name_reaches_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('preset = "tiny"\nstart = "random"\n')
    words = ["ablations", "run", "without-dcm", "train", "--config", tmp_path / "recipe.toml"]
    words += ["--data", tmp_path, "--out", tmp_path / "run", "--set", "optim.precision=no"]
    with pytest.raises(ConfigError, match="collapse, feed_forward and position are settings of PVT"):
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def write_results(folder: Path, name: str, success: float) -> Path:
    scores = {"tap25": success / 200, "stap25": success / 300, "recovery": 40.0, "success": success}
    path = folder / f"{name}.results.json"
    path.write_text(json.dumps({"benchmark": "vq2d", "results": {"own_score": scores}}))
    return path


def test_the_table_by_hand(tmp_path: Path) -> None:
    """The paper's own five runs against its baseline: 62.44 and 58.06, and the interval it prints."""
    ours = [61.65, 63.12, 62.18, 62.30, 62.95]
    baseline = [57.85, 58.34, 57.92, 58.15, 58.06]
    runs = {
        "full": [write_results(tmp_path, f"a{k}", v) for k, v in enumerate(ours)],
        "without-o": [write_results(tmp_path, f"b{k}", v) for k, v in enumerate(baseline)],
        "without-z": [write_results(tmp_path, "c", 50.0)],
    }
    rows = {(row.ablation, row.measure): row for row in ablation_rows(runs)}
    full, other = rows["full", "success %"], rows["without-o", "success %"]
    assert (full.mean, other.mean) == (pytest.approx(62.44), pytest.approx(58.064))
    assert full.std == pytest.approx(0.5987, abs=1e-3)
    assert full.against_full is None
    assert other.against_full is not None
    change = other.against_full.difference
    assert (change.value, change.low, change.high) == pytest.approx((-4.376, -4.928, -3.824), abs=2e-3)
    assert other.against_full.t == pytest.approx(-15.5, abs=0.1)
    assert change.p_value is not None
    assert change.p_value < 1e-3
    alone = rows["without-z", "success %"]
    assert (alone.mean, alone.std, alone.against_full) == (50, None, None)
    lines = markdown(ablation_rows(runs)).splitlines()
    assert len(lines) == 2 + 3 * len(MEASURES["vq2d"])
    assert len({line.count("|") for line in lines}) == 1
    (line,) = [line for line in lines if line.startswith("| without-o | success %")]
    assert "| 5 | 58.0640 | 0.1937 | -4.3760 | -4.92" in line
    (line,) = [line for line in lines if line.startswith("| without-z | success %")]
    assert "needs two runs of both" in line  # a blank does not say why
    assert sum("the reference" in line for line in lines) == len(MEASURES["vq2d"])


def test_the_table_from_the_command_line(tmp_path: Path) -> None:
    files = [write_results(tmp_path, f"r{k}", 50.0 + k) for k in range(4)]
    words = [f"full={files[0]},{files[1]}", f"skip-2={files[2]}", f"skip-2={files[3]}"]
    result = CliRunner().invoke(app, ["ablations", "table", *words], catch_exceptions=False)
    assert "| skip-2 | success % | 2 | 52.5000 |" in result.output
    CliRunner().invoke(app, ["ablations", "table", *words, "--out", str(tmp_path / "t.md")])
    assert (tmp_path / "t.md").read_text() == result.output
    with pytest.raises(ConfigError, match="NAME=FILE,FILE"):
        CliRunner().invoke(app, ["ablations", "table", str(files[0])], catch_exceptions=False)


def test_tables_refuse_what_cannot_be_compared(tmp_path: Path) -> None:
    good, other = write_results(tmp_path, "good", 50.0), tmp_path / "other.json"
    other.write_text(json.dumps({"results": {"average_overlap": 0.5}}))
    with pytest.raises(DataError, match="compared with 'full': give its results files"):
        ablation_rows({"skip-2": [good]})
    with pytest.raises(DataError, match=r"no measure in common. Give results of one of vq2d, vq3d"):
        ablation_rows({"full": [good], "skip-2": [other]})
    assert [row.measure for row in ablation_rows({"full": [other]})] == ["AO"]


def test_measures_are_where_the_reports_write_them(tmp_path: Path) -> None:
    queries = [query for clip in read_vq2d(write_ego4d(tmp_path)) for query in clip.queries]
    answers = {q.key: TrackAnswer(q.key, Track.empty(), 0.5) for q in queries}
    (tmp_path / "r.json").write_text(json.dumps({"results": vq2d.report_vq2d(queries, answers).to_json()}))
    assert MEASURES["vq2d"].keys() <= measures_of_runs([tmp_path / "r.json"]).keys()
    fields_of = {"scores": Vq3dScores, "by_sequence": LongTermScores}
    for place in (*MEASURES["vq3d"], *list(MEASURES["egotracks"])[1:]):
        part, name = place.split(".")
        assert name in {f.name for f in fields(fields_of[part])}
    assert {"average_overlap", "by_sequence"} <= {f.name for f in fields(EgoTracksReport)}
    assert "scores" in {f.name for f in fields(Vq3dReport)}
