# Two commands do everything on a fresh machine: `make demo` and `make test`. Both make their own .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all mutants lint bench clean

# Installed again only when pyproject.toml changes; the package itself is installed in place.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@

# One file of tests a core at a time, one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test: $(VENV)/.installed
	$(PYTEST)

test-all: $(VENV)/.installed
	$(PYTEST) -m "slow or not slow" --timeout=3600

# Faults put into copies of the code, one at a time: the tests must notice each.
mutants: $(VENV)/.installed
	$(BIN)/python tools/mutants.py --jobs 2

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(VENV)/.installed
	$(BIN)/egohieraloc demo

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
