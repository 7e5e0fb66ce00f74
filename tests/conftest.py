"""Settings for all tests."""

import os
import re
import signal

import pytest
from threadpoolctl import threadpool_limits

# Each test process uses one BLAS thread, because several test processes share the cores.
threadpool_limits(1, user_api="blas")

# A shell that starts the tests in the background ignores Ctrl-C for them and for all processes that they
# start. Some tests send Ctrl-C to such a process, so it must not be ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Variables of a terminal, a plotting backend or a batch system would change what dcgs prints, or how mpiexec
# starts processes. Without compiled modules, each process that a test starts would compile what it imports.
FOREIGN = re.compile(
    r"(FORCE|NO)_COLOR|CLICOLOR.*|COLORTERM|TTY_.*|COLUMNS|LINES|MPLBACKEND"
    r"|PYTHONWARNINGS|PYTHONDONTWRITEBYTECODE|(SLURM|PBS|PMI|PMIX|OMPI|HYDRA|MPIEXEC)_.*"
)
for name in filter(FOREIGN.fullmatch, list(os.environ)):
    del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the linters first: mypy takes long, and no test process shall wait for it at the end."""
    items.sort(key=lambda item: "linters" not in item.name)
