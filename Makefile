# Two commands do everything on a fresh machine: `make demo` and `make test`. Both make their own .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles what it imports; compiling every file beforehand, torch's too, would take 25 s more.
INSTALL := $(BIN)/pip install --quiet --no-compile

.PHONY: demo test test-all reproduce-dry mutants fuzz kill load lint docs bench clean

# Installed again only when pyproject.toml changes; the package itself is installed in place.
$(VENV)/.installed: pyproject.toml
	@echo "Installing EgoHieraLoc into $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the tools of tests and lint into $(VENV) ..."
	$(INSTALL) --editable ".[dev]"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing the tools of the documentation into $(VENV) ..."
	$(INSTALL) --editable ".[docs]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/egohieraloc demo

# One file of tests a core at a time, one thread each, in the order of tests/conftest.py. Bytecode is kept, whatever the environment says: without it
# each process that a test starts would compile torch's sources again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test: $(VENV)/.installed-dev
	$(PYTEST)

test-all: $(VENV)/.installed-dev
	$(PYTEST) -m "slow or not slow" --timeout=3600

# Every command of docs/reproduce.md on a small tree with the benchmarks' schemas.
reproduce-dry: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -m "slow or not slow" --timeout=3600 tests/cli/test_reproduce.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Faults put into copies of the code, one at a time: the tests must notice each.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tools/mutants.py --jobs 2

# 100,000 broken inputs for every parser of files from elsewhere.
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --inputs 100000

# 200 kills of commands at random moments.
kill: $(VENV)/.installed-dev
	$(BIN)/python tools/kill.py --kills 200 --jobs 2

# 30 clients, among them senders of image bombs, for three minutes; SOAK=3600 for an hour, with a plot.
load: $(VENV)/.installed-dev
	$(BIN)/python tools/load.py $(if $(SOAK),--seconds $(SOAK) --plot soak.png)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
