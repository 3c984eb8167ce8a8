# Everything a developer does with Quorate. `make help` lists it.
#
# Needs Python 3.11 or newer and make; the rest is installed into .venv from the lock file.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.locked
# bench/hostile.py runs for two hours, and only on its own.
BENCHES := $(filter-out bench/_% bench/hostile.py,$(wildcard bench/*.py))

PYTEST_ARGS ?=
WORKERS ?= 4
SEED ?= 1
STEPS ?=
CLUSTER ?=
WITHOUT ?=
BENCH_ARGS ?=
RELEASE_ARGS ?=

# Tests and demos start hundreds of Pythons: what these import is to be compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-tables test sim check docs fmt bench soak release-check clean

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

setup: $(STAMP) ## Create .venv and install the locked dependencies; nothing to do the second time.

# uv comes from the PATH or, where it is missing, from a small environment of its own: an exact
# sync of .venv would remove it from there.
$(STAMP): pyproject.toml uv.lock
	@test -n "$(PYTHON)" || { echo "no python3 found: Quorate needs Python 3.11 or newer" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "$(PYTHON) is $$("$(PYTHON)" --version): Quorate needs 3.11 or newer; run make PYTHON=..." >&2; exit 1; }
	@uv="$$(command -v uv || true)"; \
	if [ -z "$$uv" ]; then \
	    test -x .uv/bin/uv || { "$(PYTHON)" -m venv .uv && .uv/bin/python -m pip install --quiet uv; }; \
	    uv=.uv/bin/uv; \
	fi; \
	"$$uv" sync --frozen --all-extras --python "$(PYTHON)"
	@touch $(STAMP)

demo: setup ## Start a cluster, produce real input, kill the controller, read all back with Spark.
	@$(BIN)/python -m quorate.demo

demo-tables: setup ## Topics as Iceberg and Delta tables, with kills, read with DuckDB.
	@$(BIN)/python -m quorate.demo.tables

test: setup ## The test suite in under 10 minutes, and the demands that no test covers yet.
	@$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) $(PYTEST_ARGS)

soak: setup ## The slow tests alone, and 20 times as many examples of all properties.
	@$(BIN)/python -m pytest -m slow --timeout=1800 -o faulthandler_timeout=4000 $(PYTEST_ARGS)
	@QUORATE_EXAMPLES=20 $(BIN)/python -m pytest -m "hypothesis and not slow" --timeout=1800 \
	    -o faulthandler_timeout=4000 -n $(WORKERS) $(PYTEST_ARGS)

sim: setup ## Replay a run of the quorum's simulator (CLUSTER=1: of the cluster's): SEED=63, WITHOUT=a guard.
	@$(BIN)/python -m tests.sim$(if $(CLUSTER),.cluster) --seeds $(SEED) $(if $(STEPS),--steps $(STEPS)) $(if $(WITHOUT),--without $(WITHOUT)) $(SIM_ARGS)

check: setup ## Lint, format, types, layers, fresh generated code, and how many files requests touch.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/unit/test_generated_code.py
	$(BIN)/python -m tests.structure.trips

docs: setup ## Build the documentation as a site into build/site; any warning fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fmt: setup ## Format, and fix what can be fixed.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Every benchmark but bench/hostile.py; BENCH_ARGS=--quick for a first impression.
	@mkdir -p artifacts
	@for script in $(BENCHES); do \
	    echo "== $$script"; \
	    $(BIN)/python "$$script" --json "artifacts/$$(basename "$$script" .py).json" $(BENCH_ARGS); \
	done

release-check: setup ## Build wheel and sdist, and run the quick start with each on Python 3.11 to 3.13.
	@$(BIN)/python -m tests.release_check $(RELEASE_ARGS)

clean: ## Remove caches and artifacts, but not .venv.
	rm -rf artifacts .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
