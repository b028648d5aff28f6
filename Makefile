PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Domains before their tasks, which need them.
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml) $(wildcard plugins/*/*/pyproject.toml))
STAMP := $(VENV)/.installed
# One process a core, not too many: each holds a run with its boxes.
PARALLEL := -n auto --maxprocesses 8 --dist loadgroup
BACKENDS ?= local $(shell docker info >/dev/null 2>&1 && echo docker)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-fast lint types format bench install clean

demo: install  ## set everything up and run a real task
	$(BIN)/mlgym run battle-of-sexes --model baseline

test: install  ## set everything up and pass the tests
	$(BIN)/python -m pytest $(PARALLEL)

test-fast: install  ## the tests that take no longer than a moment
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## print the measured speeds, on docker too where an engine answers: make bench BACKENDS=local
	$(BIN)/python benchmarks/startup.py
	for backend in $(BACKENDS); do \
	  for room in shell step tools grading agent; do $(BIN)/python benchmarks/$$room.py --backend $$backend || exit 1; done; \
	done

install: $(STAMP)

# One build backend for all packages, installed once, instead of an isolated one for each.
$(STAMP): $(addsuffix /pyproject.toml,. $(PLUGINS)) Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "MLGym needs Python 3.11 or newer; say which: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet 'hatchling>=1.27' editables
	$(BIN)/python -m pip install --quiet --no-build-isolation -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-build-isolation $(addprefix -e ,$(PLUGINS))
	touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist
