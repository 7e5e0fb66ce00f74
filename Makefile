# Two commands: `make demo` sets up and runs the main job, `make test` sets up and passes the tests.
# Everything goes into .venv here; nothing else on the machine is touched, but for a Chromium that `make test`
# installs where it may, to test the report page in.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := PYTHON="$(PYTHON)" sh tools/setup.sh "$(VENV)"

# Without compiled modules, each of the hundreds of processes that the tests start would compile NumPy and SciPy.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint docs pages lock clean

help:
	@echo "make demo   set up and run the paper's experiments at small scale (under two minutes)"
	@echo "make test   set up and run all tests and checks (about nine minutes)"
	@echo "make lint   set up and run ruff, mypy and import-linter alone"
	@echo "make docs   set up and build the site: build/docs/index.html (under five minutes)"
	@echo "make pages  write the tables of README and docs from the records in benchmarks"
	@echo "make lock   renew constraints.txt, the exact versions that these commands install"
	@echo "make clean  remove the virtual environment, caches and outputs"
	@echo "Each takes the Python it shall use: make test PYTHON=python3.13"

setup:
	@$(SETUP) test

demo:
	@$(SETUP) report
	@rm -rf out/demo
	@$(BIN)/dcgs reproduce --quick --out out/demo

test: setup
	@sh tools/browser.sh
	@$(BIN)/python -m pytest -n 3 --dist worksteal --durations 15

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Warnings are errors. The last step follows every link inside the site.
docs:
	@$(SETUP) docs
	@$(BIN)/python -m sphinx -q -W --keep-going -j 2 -b html docs build/docs
	@$(BIN)/python tools/site_links.py build/docs
	@echo "written: build/docs/index.html"

# The tables of README and docs; a test fails if this would change them.
pages: setup
	@$(BIN)/python tools/pages.py

lock:
	@$(PYTHON) tools/lock.py

clean:
	rm -rf docs/auto_examples docs/auto_tutorials docs/generated docs/sg_execution_times.rst
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
