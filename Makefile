# Everything runs in .venv, which the first target that needs it makes. A fresh machine
# needs python3 (3.11 or later, with venv), make and git.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ok
WORKERS ?= 3
# The tests that cover core; counting what they run slows them down, and would slow down all others for nothing.
COVERING := tests/core tests/formats tests/sessions tests/stores/test_memory.py
# These would take four times as long, and cover nothing more.
UNCOUNTED := tests/sessions/test_model.py

# Tests start hundreds of processes, and each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check test-fast test torture model bench lock api clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with leafward, its extras and the tools

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "leafward needs Python 3.11 or later: run  make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "this Python cannot make environments: run  sudo apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group dev --editable '.[all]'
	@touch $@

demo: $(READY) ## See it work: a crash, a branch, a search, a summary, a fork; no key, no server
	@$(BIN)/leafward demo

check: $(READY) ## Format, lint, types, rooms, public API: seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture/test_rules.py tests/architecture/test_public_api.py
	$(BIN)/python tools/shape.py

test-fast: $(READY) ## Every test that needs no server, but the fault tests: under a minute
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m 'not fault and not server'

test: $(READY) ## Every test, on servers of its own too, and at least 95 % of core covered
	$(BIN)/python -m tests.servers.packages
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov=leafward.core --cov-fail-under=95 $(addprefix --ignore=,$(UNCOUNTED)) $(COVERING)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(addprefix --ignore=,$(COVERING)) tests $(UNCOUNTED)

torture: $(READY) ## Kill, fill and starve a store for minutes; writes RELIABILITY.md
	$(BIN)/python -m faults.torture --record RELIABILITY.md

model: $(READY) ## Compare sessions with a plain model for 100,000 steps; writes docs/records/model.md
	$(BIN)/python -m faults.model_run --record docs/records/model.md

bench: $(READY) ## Measure against the raw limit and peers; writes bench/RESULTS.md
	$(BIN)/python bench/run.py

lock: $(READY) ## Resolve constraints.txt anew
	tools/lock.sh $(BIN)/uv

api: $(READY) ## Accept the public API as it is now
	$(BIN)/python tools/public_api.py --write

clean: ## Remove .venv and what tools leave behind
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage dist build bench/.venvs bench/.work
	find src tests tools faults bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
