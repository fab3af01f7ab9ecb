"""The rules of the house, read from the source: imports point one way, importing does nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import egohieraloc

ROOT = Path(egohieraloc.__file__).parent
TESTS = Path(__file__).parent
OPTIONAL = {
    "nncf",
    "transformers",
    "accelerate",
    "ray",
    "rerun",
    "fastapi",
    "uvicorn",
    "openvino",
    "tensorboard",
    "pillow_heif",
    "pandas",
    "projectaria_tools",
}

# What each part may import besides itself and the parts that all may use.
SEAM = [
    "processor",
    "threads",
    "errors",
    "children",
    "clock",
    "documents",
    "types",
    "boxes",
    "heif",
    "files",
    "images",
    "query",
    "config",
    "settings",
    "progress",
    "ray_cluster",
    "versions",
    "vrs",
]
MAY_IMPORT: dict[str, set[str]] = {
    "video": set(),
    "models": set(),
    "geometry": set(),
    "data": set(),
    "demo": set(),
    "ablations": set(),
    "paper": set(),
    "inference": {"video", "models"},
    "poses": {"video", "geometry"},
    "recorded": {"video", "geometry"},
    # Validation asks it all.
    "training": {"video", "models", "data", "inference", "evaluation", "localize", "paper"},
    # Runs of our own system; scoring needs no network.
    "evaluation": {"data", "video", "models", "geometry", "inference", "localize", "poses"},
    "notebook": {"video"},
    "result_schema": set(),
    "result_json": {"geometry", "result_schema"},
    "result": {"geometry", "notebook", "result_schema", "result_json"},
    "localize": {"video", "models", "geometry", "inference", "poses", "recorded", "result"},
    "memory": {"video", "geometry", "inference", "localize", "result", "result_schema"},
    # Views read a result and know nothing of how it was found.
    "report": {"video", "geometry", "result", "result_schema", "result_json"},
    "export": {"video", "geometry", "report", "result"},
    "figures": {"data", "evaluation", "video", "geometry", "report", "result"},
}
OUTERMOST = {"cli", "web", "__init__", "__main__"}  # these may import everything


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imports() -> list[tuple[Path, str, bool]]:
    """Each file, each module it imports, and whether that happens as soon as the file is imported."""
    found: list[tuple[Path, str, bool]] = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        late = {
            id(inner)
            for outer in ast.walk(tree)
            if isinstance(outer, ast.FunctionDef)
            or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
            for inner in ast.walk(outer)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path} imports relatively"
                inside = node.module == "egohieraloc"
                modules = [f"{node.module}.{n.name}" if inside else str(node.module) for n in node.names]
            else:
                continue
            found += ((path, module, id(node) not in late) for module in modules)
    return found


def test_scoring_knows_no_network() -> None:
    """Of evaluation, only what runs our own system imports it: anybody's file is scored without."""
    ours = {"run_ovq2d", "run_poses", "run_tracking", "run_vq2d", "run_vq3d"}
    wrong = [
        f"{path.name} imports {module}"
        for path, module, _ in imports()
        if part_of(path) == "evaluation" and path.stem not in ours and module.startswith("egohieraloc.")
        if module.split(".")[1] not in {"evaluation", "data", *SEAM} or module.split(".")[-1] in ours
    ]
    assert not wrong


def test_imports_point_one_way() -> None:
    wrong = []
    for path, module, _ in imports():
        here = part_of(path)
        if not module.startswith("egohieraloc.") or here in OUTERMOST:
            continue
        there = module.split(".")[1]
        fine = (
            there in SEAM[: SEAM.index(here)] if here in SEAM else there in {here, *SEAM, *MAY_IMPORT[here]}
        )
        if not fine:
            wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_optional_packages_are_imported_where_they_are_needed() -> None:
    assert not [
        f"{path.relative_to(ROOT)} imports {module}"
        for path, module, at_once in imports()
        if at_once and module.split(".")[0] in OPTIONAL and part_of(path) != "web"
    ]


def test_torch_stays_behind_its_border() -> None:
    """Tensors live in models and training; two files of inference are the border."""
    users = {path.relative_to(ROOT) for path, module, _ in imports() if module.split(".")[0] == "torch"}
    outside = {str(p) for p in users if p.parts[0] not in {"models", "training", "cli", "web"}}
    assert outside <= {"inference/predict.py", "inference/packing.py"}


def test_geometry_imports_pycolmap_where_colmap_is_run() -> None:
    users = {path.name for path, module, _ in imports() if module.split(".")[0] == "pycolmap"}
    assert users <= {"mapping.py", "resection.py", "sfm.py"}


def test_importing_does_nothing() -> None:
    """No optional package, no handler, no flag, no thread, no seed, no word."""
    code = f"""
import cv2, logging, numpy, os, random, sys, threading, torch
def world():
    return (
        logging.root.handlers[:], logging.root.level, threading.active_count(), dict(os.environ), os.getcwd(),
        torch.get_num_threads(), torch.backends.cudnn.benchmark, torch.get_default_dtype(),
        torch.is_grad_enabled(), torch.get_rng_state().tolist(), random.getstate(),
        numpy.random.get_state()[1].tolist(), numpy.geterr(), cv2.getNumThreads(), sys.excepthook,
    )
before = world()
from egohieraloc import *
assert world() == before
assert not {OPTIONAL!r} & set(sys.modules), {OPTIONAL!r} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_public_names_exist() -> None:
    assert egohieraloc.__all__ == sorted(egohieraloc.__all__)
    for name in egohieraloc.__all__:
        assert getattr(egohieraloc, name).__doc__, f"{name} says nothing of itself"


def test_tests_named_in_the_documents_exist() -> None:
    """As `models/test_dcf.py::test_one`; a further one of the same line's last file as `::test_other`."""
    written = {p.as_posix(): p.read_text(encoding="utf-8") for p in TESTS.rglob("test_*.py")}
    missing, found = [], 0
    for document in (TESTS.parent / "docs").glob("*.md"):
        for line in document.read_text(encoding="utf-8").splitlines():
            file = ""
            for path, name in re.findall(r"([\w/]+\.py)?::(test_\w+)", line):
                file, found = path or file, found + 1
                texts = [text for where, text in written.items() if where.endswith(f"/{file}")]
                if not any(re.search(rf"^def {name}\(", text, re.MULTILINE) for text in texts):
                    missing.append(f"{document.name}: {file}::{name}")
    assert not missing
    assert found > 60


def test_every_departure_from_the_paper_names_its_test() -> None:
    """Rows of those tables of docs/paper.md that end with tests; rows without one have no code to test."""
    words_only = {"Q7", "Q14", "Q15, Q16"}
    text = (TESTS.parent / "docs" / "paper.md").read_text(encoding="utf-8")
    departures = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for table in re.findall(r"^\|.*\| test \|\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
        for line in table.splitlines()
    ]
    assert len(departures) > 50
    assert not [row[:2] for row in departures if "::test_" not in row[-1] and row[0] not in words_only]


def test_every_mutant_still_has_its_text() -> None:
    """A fault that can no longer be put in proves nothing; tools/mutants.py runs them."""
    for row in tomllib.loads((TESTS.parent / "tools" / "mutants.toml").read_text())["mutant"]:
        text = (ROOT / row["file"]).read_text()
        assert text.count(row["old"]) == 1, row["name"]
        assert all((TESTS / name.split("::")[0]).is_file() for name in row["tests"]), row["name"]
