"""The environment of a benchmark, and its numbers as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from dcgs.files import atomic_write
from dcgs.front import versions


def environment(seed: int) -> dict[str, Any]:
    """Return the command, seed, versions and machine."""
    return {
        "command": " ".join(["dcgs", *sys.argv[1:]]),
        "seed": seed,
        "versions": versions(),
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in threadpool_info()}),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


def check_writable(path: Path) -> None:
    """Raise unless the file can be written; its folder is created if it does not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise ValueError(
            f"the output must be a writable file; {str(path)!r} cannot be written ({error.strerror})."
        ) from error


def write(path: Path, rows: Sequence[Mapping[str, Any]], seed: int) -> Path:
    """Write rows and environment as JSON; return the path."""
    return atomic_write(path, as_json(rows, seed).encode())


def as_json(rows: Sequence[Mapping[str, Any]], seed: int) -> str:
    """Return rows and environment as JSON."""
    return json.dumps({"environment": environment(seed), "rows": list(rows)}, indent=2) + "\n"


def _processor() -> str:
    """Return the name of the processor: from /proc/cpuinfo on Linux, else from Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
