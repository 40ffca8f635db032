# Everything from nothing: only python3 (3.11 to 3.13) and the network are needed once.

PYTHON ?= python3
SEEDS ?= 1
SHORT ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-fast test-all lint format clean

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter, before the first use of $(VENV)."

quickstart: $(READY) ## train plain and randomized positions, and compare (SEEDS=3, SHORT=1)
	$(BIN)/python -m experiments.quickstart --seeds=$(SEEDS) $(if $(filter-out 0 no No NO false False n,$(SHORT)),--short)

# Neighbours go to one process: they share compiled programs.
PYTEST := $(BIN)/python -m pytest -q -n auto --maxprocesses=4 --dist worksteal

test: $(READY) ## all tests but the slow ones
	$(PYTEST) -m "not slow"

test-fast: $(READY) ## a few minutes' worth of tests
	$(PYTEST) -m fast

test-all: $(READY) ## every test
	$(PYTEST)

lint: $(READY) ## check style, change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches; runs/ stays
	rm -rf $(VENV) .venv-newest build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp rather than the folder: an installation cut short is done again. Bytecode of
# what is used is made at its first import, which takes half as long as that of all.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	    sys.exit(None if (3, 11) <= v <= (3, 13) else \
	    f"ropejax needs Python 3.11 to 3.13, $(PYTHON) is {v[0]}.{v[1]}; try make PYTHON=python3.12 ...")'
	@echo "making $(VENV) and installing; a few minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	    --constraint constraints.txt --editable '.[dev]'
	@touch $@
