"""docs/reproduce.md: its commands exist, no row of the paper is missing, and all runs on a small tree."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from documented import check_command
from egohieraloc.ablations import ABLATIONS
from egohieraloc.cli import app
from egohieraloc.evaluation import run_vq3d
from reproduction_tree import CLIP, StandInDepthNetwork, write_tree

GUIDE = Path(__file__).parents[2] / "docs" / "reproduce.md"
BLOCKS = re.findall(r"^```bash\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
FOLDERS = "ego4d|egotracks|models|out|recipes|runs|trek150"
QUERY = {"CLIP": CLIP, "AT": "4.6", "BOX": "204,20,64,64"}  # the red square at frame 23
SPEAK = 'egohieraloc() { printf "%q " "$@"; echo; }\n'  # say each command, as the shell expands it


def commands(folder: Path) -> list[list[str]]:
    """Every command of the guide in its order; what else the blocks do is done in `folder`."""
    (folder / "out").mkdir(exist_ok=True)
    said = subprocess.run(
        ["bash", "-euc", SPEAK + "".join(BLOCKS)],
        cwd=folder,
        env={**os.environ, **QUERY},
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in said.stdout.splitlines()]


def execute(words: list[str]) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}"
    return result.output


def test_every_command_exists(tmp_path: Path) -> None:
    said = commands(tmp_path)
    assert len(said) > 80
    for words in said:
        check_command(words[3:] if words[:2] == ["ablations", "run"] else words)


def test_every_row_of_the_paper_is_there(tmp_path: Path) -> None:
    """A row that needs weights is trained, and evaluated with them; every row on each of its benchmarks."""
    runs = [words for words in commands(tmp_path) if words[:2] == ["ablations", "run"]]
    done = {(words[2], *words[3:5]) for words in runs if words[3] == "eval"}
    trained = {words[2] for words in runs if words[3] == "train"}
    rows = [row for row in ABLATIONS.values() if row.group not in ("", "ours")]
    assert {row.name for row in rows if row.trains} == trained
    assert {(row.name, "eval", benchmark) for row in rows for benchmark in row.benchmarks} == done
    for words in runs:
        if words[2] in trained and words[3] == "eval":
            assert f"runs/{words[2]}/weights.safetensors" in words


def test_every_table_and_figure_says_what_has_been_run() -> None:
    """The paper has 9 tables and 18 figures."""
    made, _, run = GUIDE.read_text().partition("\n## What has been run\n")
    told: dict[str, list[int]] = {"tab": [], "fig": []}
    for row in re.findall(r"^\| ([^|]*\d[^|]*) \|", run, re.M):
        for kind, numbers in re.findall(r"(tab|fig)\. ([\d, ]+)", row):
            told[kind] += map(int, re.findall(r"\d+", numbers))
    assert sorted(told["tab"]) == list(range(1, 10))
    assert sorted(told["fig"]) == list(range(1, 19))
    figures = made.partition("| figure | made by |")[2]
    drawn = [
        int(n) for row in re.findall(r"^\| (\d.*?) \|", figures, re.M) for n in re.findall(r"\b\d+", row)
    ]
    assert set(drawn) >= set(range(1, 19))
    headings = " ".join(re.findall(r"^## .*", made, re.M))
    assert {int(n) for n in re.findall(r"tab\. (\d)", headings)} == set(range(1, 10))


def test_what_a_command_reads_was_written_before(tmp_path: Path) -> None:
    """By an earlier command, or it is part of the layout the guide describes."""
    write_tree(tmp_path, rendered=False)
    written = {"out/methods"}
    for words in commands(tmp_path):
        made = [after for word, after in pairwise(words) if word == "--out"]
        for path in re.findall(f"(?:{FOLDERS})/[\\w./-]+", " ".join(words)):
            known = any(re.match(re.escape(one) + r"(/|\.|$)", path) for one in written)
            assert path in made or known or (tmp_path / path).exists(), f"{path} in {shlex.join(words)}"
        written |= {re.sub(r"\.\w+$", "", path) for path in made}


def test_tables_written_in_the_guide_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = [words for words in commands(tmp_path) if words[:2] == ["figure", "tradeoff"]]
    assert len(drawn) == 2
    for words in drawn:
        execute(words)
        assert Path(words[-1]).stat().st_size > 1000


@pytest.mark.slow
def test_the_whole_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make reproduce-dry`: every command, word for word; every benchmark gives finite scores."""
    pytest.importorskip("transformers")
    write_tree(tmp_path)
    network = StandInDepthNetwork()
    monkeypatch.setattr(run_vq3d.DepthNetwork, "from_pretrained", lambda name, device: network)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EGOHIERALOC_CACHE", str(tmp_path / "cache"))
    said = commands(tmp_path)
    for number, words in enumerate(said):
        print(f"[{number + 1}/{len(said)}] egohieraloc {shlex.join(words)}", flush=True)
        execute(words)
        if "--out" in words:
            assert Path(words[words.index("--out") + 1]).exists()
    for name in ("vq2d-0", "vq3d", "vct-vs", "vct-vc", "ope", "mse"):
        assert json.loads(Path(f"out/{name}.results.json").read_text())["results"]
    for kind, template in (("vq2d", "vq"), ("vq3d", "vq3d")):
        annotations = f"ego4d/{template}_test_unannotated.json"
        words = ["--annotations", annotations, "--submission", f"out/{kind}-test.json"]
        execute(["score", "validate", kind, *words])
