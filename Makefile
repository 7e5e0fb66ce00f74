# Two commands: `make demo` sets up and runs the main job, `make test` sets up and passes the tests.
# Everything goes into .venv here; nothing else on the machine is touched, but for a Chromium that `make test`
# installs where it may, to test the report page in.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test clean

help:
	@echo "make demo   set up and run the paper's experiments at small scale (under two minutes)"
	@echo "make test   set up and run all tests and checks (under ten minutes)"
	@echo "make clean  remove the virtual environment, caches and outputs"

setup: $(VENV)/.test

# What the demo needs, and what the tests need, which is more.
$(VENV)/.report: pyproject.toml
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)" report
	@touch $@

$(VENV)/.test: pyproject.toml
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)" test
	@touch $(VENV)/.report $@

demo: $(VENV)/.report
	@rm -rf out/demo
	@$(BIN)/dcgs reproduce --quick --out out/demo

test: $(VENV)/.test
	@sh tools/browser.sh
	@$(BIN)/python -m pytest -n 2 --dist worksteal

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
