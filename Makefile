# Two commands: `make demo` sets up and runs the main job, `make test` sets up and passes the tests.
# Everything goes into .venv here; nothing else on the machine is touched.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test clean

help:
	@echo "make demo   set up and run the paper's experiments at small scale (under two minutes)"
	@echo "make test   set up and run all tests and checks (under ten minutes)"
	@echo "make clean  remove the virtual environment, caches and outputs"

setup: $(READY)

$(READY): pyproject.toml
	@PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)"
	@touch $@

demo: setup
	@$(BIN)/dcgs reproduce --quick --out out/demo

test: setup
	@sh tools/browser.sh
	@$(BIN)/python -m pytest -n 2 --dist worksteal

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
