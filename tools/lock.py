"""Renew constraints.txt, the exact versions that ``make demo`` and ``make test`` install.

Run it with ``make lock``. It needs the oldest Python that dcgs supports: the newest packages that support the
oldest Python also install on the newer ones, so that one file serves them all. It resolves all dependencies
anew, in a temporary virtual environment, and installs nothing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
HEADER = """\
# The exact versions that `make demo` and `make test` install, for every supported Python.
# `make lock` writes this file. The package itself allows ranges: see pyproject.toml.
"""


def main() -> None:
    """Write the lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = project["project"]["requires-python"].removeprefix(">=")
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != oldest:
        sys.exit(f"make lock needs Python {oldest}; got {running}. Use: make lock PYTHON=python{oldest}")
    # hatchling asks for editables when it builds an editable install, so no metadata names it.
    report = resolve([".[test]", *project["build-system"]["requires"], "editables"])
    packages = [entry["metadata"] for entry in report["install"]]
    versions = {normalized(package["name"]): package["version"] for package in packages}
    del versions[normalized(project["project"]["name"])]
    LOCK.write_text(HEADER + "".join(f"{name}=={versions[name]}\n" for name in sorted(versions)))
    print(f"{LOCK.name} has {len(versions)} packages")


def resolve(requirements: list[str]) -> dict[str, list[dict[str, dict[str, str]]]]:
    """Return pip's report of what it would install for ``requirements``, with nothing locked."""
    unlocked = {name: value for name, value in os.environ.items() if "CONSTRAINT" not in name}
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python, report = Path(folder, "bin", "python"), Path(folder, "report.json")
        options = ["--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        command = [str(python), "-m", "pip", "install", *options, *requirements]
        subprocess.run(command, cwd=ROOT, env=unlocked, check=True)
        found: dict[str, list[dict[str, dict[str, str]]]] = json.loads(report.read_text())
        return found


def normalized(name: str) -> str:
    """Return a package's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
