# Every target sets itself up: Python 3.11 or newer, git and make are all it needs.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
OUT    ?= veilmap-demo

.DEFAULT_GOAL := help
.PHONY: help demo test test-faults test-slow test-mutants fuzz bench bench-allocation lint types page page-types lock sbom audit-deps browser clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## Build a city, learn its radio map, draw it (under two minutes)
	$(BIN)/veilmap demo --out $(OUT)

test: $(VENV)/.installed-dev browser lint types  ## Run everything that must pass: lint, types, import rules, tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

test-faults: $(VENV)/.installed-dev  ## Kill nodes, servers and aggregators of real deployments (ten minutes)
	$(BIN)/python -m pytest -m faults

test-slow: $(VENV)/.installed-dev  ## Run larger cases of some tests (four minutes)
	$(BIN)/python -m pytest -m slow

test-mutants: $(VENV)/.installed-dev  ## Break privacy-critical lines one by one and see a test fail (eight minutes)
	$(BIN)/python tests/mutants.py

fuzz: $(VENV)/.installed-dev  ## Feed damaged files to every reader (ten minutes); FUZZ='--minutes 1 parquet'
	$(BIN)/python tests/fuzz.py $(FUZZ)

lint: $(VENV)/.installed-lint  ## Check style and import rules (needs only the linters)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

types: $(VENV)/.installed-dev  ## Check types, the page's too where there is npm
	$(BIN)/mypy
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory page; \
		else echo "no npm: the page's types are not checked"; fi

page: page/node_modules/.installed  ## Check the types of the page's JavaScript (needs Node.js)
	cd page && npm run --silent check

page-types: $(VENV)/.installed-dev  ## Write the page's types from what the server answers with
	$(BIN)/python page/write_types.py

EXTRAS := baselines collect flower geo learn postgres web
lock: $(VENV)/.installed-dev  ## Fix what a release installs, with hashes (needs the network)
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --constraint requirements.lock \
		--universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --quiet --output-file requirements-release.lock

sbom: $(VENV)/.installed-dev  ## Write the bill of materials (CycloneDX) and the list of licences
	$(BIN)/python release/bill.py

audit-deps: $(VENV)/.installed-audit  ## Look for known vulnerabilities in what a release installs (network)
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements-release.lock

browser:  # Chromium from the system's packages, for the tests of the page
	@command -v chromium > /dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
		&& { apt-get install --yes --no-install-recommends chromium || { apt-get update \
		&& apt-get install --yes --no-install-recommends chromium; }; } > /dev/null 2>&1; } \
		|| echo "no Chromium here: the tests of the page in a browser will be skipped"

ARGS ?= --json bench.json --page docs/performance.md
bench: $(VENV)/.installed-bench  ## Measure speed, growth, memory, accuracy, start-up (installs JAX); ARGS='--only attacks'
	$(BIN)/python benchmarks/bench.py $(ARGS)

bench-allocation: $(VENV)/.installed-bench  ## Measure the noise allocator against the paper's Algorithm 1
	PYTHONPATH=tests/support $(BIN)/python benchmarks/allocation.py --json bench-allocation.json

clean:  ## Remove the virtual environment and what the targets wrote
	rm -rf $(VENV) $(OUT) bench.json bench-allocation.json page/node_modules

page/node_modules/.installed: page/package-lock.json
	cd page && npm ci --silent --no-audit --no-fund
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "veilmap needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-lint: $(BIN)/python requirements-lint.txt requirements.lock
	$(LOCKED) --requirement requirements-lint.txt
	@touch $@

$(VENV)/.installed-audit: $(BIN)/python requirements-audit.txt requirements.lock
	$(LOCKED) --requirement requirements-audit.txt
	@touch $@

$(VENV)/.installed: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[baselines]'
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(BIN)/python pyproject.toml requirements.lock
	$(LOCKED) --editable '.[bench]'
	@touch $@ $(VENV)/.installed
