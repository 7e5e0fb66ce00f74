"""Settings for all tests, of both packages."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

# Each test process uses one BLAS thread, because several test processes share the cores.
threadpool_limits(1, user_api="blas")

# A shell that starts the tests in the background ignores Ctrl-C for them and for all processes that they
# start. Some tests send Ctrl-C to such a process, so it must not be ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests on real data find them in the folder that DCGS_DATA names, or else in shared/data beside the checkout.
BESIDE = Path(__file__).parents[1] / "shared" / "data"
if BESIDE.is_dir():
    os.environ.setdefault("DCGS_DATA", str(BESIDE))

# Variables of a terminal, a plotting backend or a batch system would change what dcgs prints, or how mpiexec
# starts processes. Without compiled modules, each process that a test starts would compile what it imports.
FOREIGN = re.compile(
    r"(FORCE|NO)_COLOR|CLICOLOR.*|COLORTERM|TTY_.*|COLUMNS|LINES|MPLBACKEND"
    r"|PYTHONWARNINGS|PYTHONDONTWRITEBYTECODE|(SLURM|PBS|PMI|PMIX|OMPI|HYDRA|MPIEXEC)_.*"
)
for name in filter(FOREIGN.fullmatch, list(os.environ)):
    del os.environ[name]
sys.dont_write_bytecode = False  # else each test process would compile all tests anew

# Hypothesis draws some values from the constants of all modules that are loaded. Which are loaded depends on
# what a test process ran before, and so would the examples. Without them every run has the same examples.
pytest.MonkeyPatch().setattr(
    "hypothesis.internal.conjecture.providers.is_local_module_file", lambda path: False
)

# No test process shall wait for one of these at the end.
LONGEST = (
    "test_every_part_works_with_the_oldest_versions",
    "test_the_linters_find_nothing",
    "test_the_site_builds",
    "test_processes_with_their_own_rows",
    "test_four_hospitals_get_the_model_of_lockstep",
    "test_over_mpi_they_find_the_bits",
    "test_runs_over_mpi_equal",
    "test_a_process_that_is_stopped",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    items.sort(key=lambda item: not item.name.startswith(LONGEST))
