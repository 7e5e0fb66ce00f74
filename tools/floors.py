"""Try dcgs and dcgs-bench with the oldest versions that pyproject.toml allows of all they depend on.

Run it with ``.venv/bin/python tools/floors.py FOLDER``; ``make test`` does. FOLDER gets a virtual
environment, which is used again as long as the versions stay the same. The exit status is 0 if all of
the samples works, 75 if no package index can be reached, and 1 otherwise.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "tests/floor_sample.py", ROOT / "benchmarks/tests/floor_sample_bench.py"
"""The programs that use every part."""
NO_INDEX = 75
"""The exit status if no package index can be reached: EX_TEMPFAIL of sysexits.h."""
# The tools of the tests and of the pages are not for users; `make` installs them as they are locked.
_TOOLS = ("docs", "test")


def main() -> None:
    """Install the floors and run the sample."""
    folder = Path(sys.argv[1]).resolve()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = installed(folder, floors(project), (ROOT / "constraints.txt").read_text())
    with tempfile.TemporaryDirectory() as place:
        packages = str(ROOT), str(ROOT / "benchmarks")
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, *packages)
        wheels = map(str, Path(place).glob("*.whl"))
        pip("--python", python, "install", "--no-deps", "--no-index", "--force-reinstall", *wheels)
        environment = os.environ | {"MPLBACKEND": "agg", "DCGS_DATA": place, "XDG_CACHE_HOME": place}
        for sample in SAMPLES:
            done = subprocess.run([python, str(sample), place], cwd=place, env=environment, check=False)
            if done.returncode != 0:
                sys.exit(1)


def floors(project: dict[str, Any]) -> list[str]:
    """Return ``name==version`` for the lower bound of every dependency and of every extra, sorted."""
    extras = project["optional-dependencies"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += [line for line in extras[extra] if extra not in _TOOLS and not line.startswith("dcgs[")]
    return sorted(f"{canonicalize_name(line.name)}=={floor(line)}" for line in map(Requirement, lines))


def floor(requirement: Requirement) -> str:
    """Return the version of a requirement ``name>=version``; raise if it is of another form."""
    (bound,) = requirement.specifier
    if bound.operator != ">=":
        raise ValueError(f"a dependency must have a lower bound and no other; got {requirement}.")
    return bound.version


def installed(folder: Path, wanted: list[str], lock: str) -> str:
    """Return the Python of an environment that has these versions; what they need is as it is locked."""
    python, done = str(folder / "bin" / "python"), folder / "installed.txt"
    state = "\n".join([sys.version, *wanted, lock])
    if done.is_file() and done.read_text() == state:
        return python
    venv.create(folder, clear=True, with_pip=False)
    names = {release.partition("==")[0] for release in wanted}
    locked = re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in locked if name not in names))
    options = ["--no-compile", "--only-binary", ":all:", "--constraint", str(constraints)]
    pip("--python", python, "install", *options, *wanted)
    done.write_text(state)
    return python


def pip(*arguments: str) -> None:
    """Run the pip of this environment; exit if it fails."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        *arguments,
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        # pip says so of a package of which it found no version at all.
        sys.exit(NO_INDEX if "(from versions: none)" in done.stderr else 1)


if __name__ == "__main__":
    main()
