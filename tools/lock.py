"""Renew constraints.txt: the exact versions that ``make`` installs, and the SHA-256 of all their wheels.

Run it with ``make lock``. It needs the oldest Python that dcgs supports: the newest packages that support the
oldest Python also install on the newer ones, so that one file serves them all. It resolves all dependencies
anew, in a temporary virtual environment, and installs nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
EXTRAS = ("report", "docs", "test")
"""What ``tools/setup.sh`` installs. Each has all that the one before it has."""
HEADER = """\
# The exact versions that `make` installs, for every supported Python, and the hashes of their wheels on every
# platform. `make lock` writes this file. The package itself allows ranges: see pyproject.toml.
# An extra needs the packages under its name and those above. Those that build dcgs are under the first.
"""


def main() -> None:
    """Write the lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = project["project"]["requires-python"].removeprefix(">=")
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != oldest:
        sys.exit(f"make lock needs Python {oldest}; got {running}. Use: make lock PYTHON=python{oldest}")
    # hatchling asks for editables when it builds an editable install, so no metadata names it.
    build = [*project["build-system"]["requires"], "editables"]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        locked = releases(Path(folder), [f".[{EXTRAS[-1]}]", *build])
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(locked))
        found = hashes(Path(folder), locked)
        sections, above = [], set[str]()
        for extra in EXTRAS:
            needed = releases(Path(folder), [f".[{extra}]", *build, "--constraint", str(constraints)])
            sections.append(section(extra, {name: found[name] for name in needed if name not in above}))
            above |= set(needed)
    LOCK.write_text(HEADER + "".join(sections))
    print(f"{LOCK.name} has {len(locked)} packages")


def releases(folder: Path, requirements: list[str]) -> list[str]:
    """Return ``name==version`` of all that pip would install for ``requirements``, without dcgs, sorted."""
    report = folder / "report.json"
    options = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
    run(folder, "-m", "pip", "install", *options, "--report", str(report), *requirements)
    entries: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    versions = {normalized(entry["metadata"]["name"]): entry["metadata"]["version"] for entry in entries}
    return [f"{name}=={versions[name]}" for name in sorted(versions) if name != "dcgs"]


def hashes(folder: Path, locked: list[str]) -> dict[str, list[str]]:
    """Return the hashes of all wheels of each release; raise if one has none."""
    printed = run(folder, str(ROOT / "tools" / "wheel_hashes.py"), *locked)
    found: dict[str, list[str]] = json.loads(printed)
    missing = [release for release in locked if not found[release]]
    if missing:
        sys.exit(f"every release must have a wheel with a SHA-256 in the package index; not so: {missing}.")
    return found


def section(extra: str, found: dict[str, list[str]]) -> str:
    """Return the lines of the lock that an extra adds."""
    lines = [f"# Extra {extra}:"]
    for release, digests in found.items():
        lines.append(" \\\n".join([release, *(f"    --hash=sha256:{digest}" for digest in digests)]))
    return "\n".join(lines) + "\n"


def run(folder: Path, *arguments: str) -> str:
    """Run the Python of the virtual environment, with nothing locked; return what it prints."""
    unlocked = {name: value for name, value in os.environ.items() if "CONSTRAINT" not in name}
    command = [str(folder / "bin" / "python"), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=unlocked, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def normalized(name: str) -> str:
    """Return a package's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
