# `make demo` and `make test` need Python 3.11 or newer, git and make; the rest they install into
# a virtual environment inside the clone.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
PIP := -m pip install -qq --disable-pip-version-check

.PHONY: demo test test-default check format bench clean

demo: $(VENV)/.ready
	$(VENV)/bin/python examples/demo/demo.py

# The default interpreter first, then every other supported one that this machine has.
test: test-default
	$(VENV)/bin/python scripts/interpreters.py test

test-default: $(VENV)/.ready
	$(VENV)/bin/pytest
	$(VENV)/bin/pytest tests/unit --loop uvloop

check: $(VENV)/.ready
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(MAKE) test

format: $(VENV)/.ready
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# Ratios against hand-written code and peers: on the default loop, on uvloop, with eager tasks;
# and where the time of a job goes.
bench: $(BENCH)/.ready
	$(BENCH)/bin/python benchmarks/in_process.py
	$(BENCH)/bin/python benchmarks/steps.py
	$(BENCH)/bin/python benchmarks/in_process.py --loop uvloop --no-memory
	$(BENCH)/bin/python scripts/interpreters.py bench-eager

clean:
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.ready: pyproject.toml
	@echo "setting up $(VENV), once"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agentq needs Python 3.11 or newer; say which with PYTHON=…")'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(VENV)/bin/python $(PIP) --upgrade pip
	@$(VENV)/bin/python $(PIP) --editable '.[cli]' --group test --group lint
	@touch $@

$(BENCH)/.ready: pyproject.toml
	@echo "setting up $(BENCH), once"
	@$(PYTHON) -m venv --clear $(BENCH)
	@$(BENCH)/bin/python $(PIP) --upgrade pip
	@$(BENCH)/bin/python $(PIP) --editable . --group bench
	@touch $@
