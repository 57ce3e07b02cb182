# Every target sets itself up: Python 3.11 or newer, git and make are all it needs.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
OUT    ?= veilmap-demo

.DEFAULT_GOAL := help
.PHONY: help demo test test-faults bench lint types clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## Build a city, learn its radio map, draw it (under two minutes)
	$(BIN)/veilmap demo --out $(OUT)

test: $(VENV)/.installed-dev lint types  ## Run everything that must pass: lint, types, import rules, tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

test-faults: $(VENV)/.installed-dev  ## Kill nodes and servers of real deployments (six minutes)
	$(BIN)/python -m pytest -m faults

lint: $(VENV)/.installed-dev  ## Check style and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.installed-dev  ## Check types
	$(BIN)/mypy

bench: $(VENV)/.installed-bench  ## Measure speed, growth, memory, accuracy, start-up (installs JAX)
	$(BIN)/veilmap bench --json bench.json
	PYTHONPATH=tests $(BIN)/python benchmarks/allocation.py --json bench-allocation.json

clean:  ## Remove the virtual environment and what the targets wrote
	rm -rf $(VENV) $(OUT) bench.json bench-allocation.json

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "veilmap needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[baselines]'
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[bench]'
	@touch $@ $(VENV)/.installed
