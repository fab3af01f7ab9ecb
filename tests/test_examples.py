"""Every example runs on the bundled clip."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {"live_camera": ["--seconds", "21"]}  # past its first question, at 20 s; the others need none
PRINTED = {
    "last_seen": "Last seen from",
    "place_in_space": "cm away",
    "live_camera": "At the end: Last seen from",
    "lift_boxes": "cm away",
    "score_predictions": "success",
}


def test_there_is_a_test_for_each() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, demo_cache: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *ARGUMENTS.get(name, [])],
        cwd=tmp_path,
        env=os.environ | {"EGOHIERALOC_CACHE": str(demo_cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINTED[name] in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_runs(demo_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, as Jupyter would; what a cell ends with is shown."""
    monkeypatch.setenv("EGOHIERALOC_CACHE", str(demo_cache))
    notebook = json.loads((EXAMPLES / "answer.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            shown.append(run_cell("".join(cell["source"]), names))
    assert "<img" in shown[1]._repr_html_()
    assert shown[2].shape == (3, 4)
    assert shown[-1][1] == "m"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
