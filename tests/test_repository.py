"""The rules that tools can check, and the lock of what is installed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from functools import partial
from importlib import metadata
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from packaging.requirements import Requirement

import dcgs
from dcgs.checkpoints import folder as checkpoint_file
from dcgs.cli import main
from dcgs.datasets import lasso_synthetic, write_patients
from dcgs.runtime.encoding import EncodedArray
from dcgs.runtime.wire import FRAME, HEADER
from passed_files import passed_files

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
BIN = Path(sys.executable).parent
LINTERS = ["mypy", "lint-imports", "ruff check .", "ruff format --check ."]


@pytest.mark.parametrize("linter", LINTERS)
def test_the_linters_find_nothing(linter: str) -> None:
    name, *options = linter.split()
    done = subprocess.run([BIN / name, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def required(package: str, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """Return the packages that an installed package needs on this Python, each with its extras."""
    environments = [{"extra": extra} for extra in extras or {""}]
    lines = map(Requirement, metadata.requires(package) or [])
    needed = [line for line in lines if line.marker is None or any(map(line.marker.evaluate, environments))]
    return {(normalized(line.name), frozenset(line.extras)) for line in needed}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, dict[str, list[str]]]:
    """Return what each extra adds to the lock: for every package its hashes."""
    extras: dict[str, dict[str, list[str]]] = {}
    for line in LOCK.read_text().replace("\\\n", " ").splitlines():
        words = line.removesuffix(":").split()
        if line.startswith("# Extra"):
            packages = extras.setdefault(words[-1], {})
        elif not line.startswith("#"):
            packages[words[0].partition("==")[0]] = words[1:]
    return extras


@pytest.mark.parametrize("extra", ["report", "docs", "test"])
def test_every_package_that_is_installed_for_an_extra_is_locked(extra: str) -> None:
    """If this fails, a dependency is new: run ``make lock``."""
    sections = locked()
    names = list(sections)[: list(sections).index(extra) + 1]
    packages = {package for name in names for package in sections[name]}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {normalized(Requirement(line).name) for line in build} <= packages
    seen: set[tuple[str, frozenset[str]]] = set()
    found = {("dcgs", frozenset({extra})), ("dcgs-bench", frozenset[str]())}
    while found - seen:
        seen |= found
        found = set().union(*(required(*each) for each in found))
    assert {name for name, _ in seen} - packages == {"dcgs", "dcgs-bench"}


def test_every_locked_package_has_the_hashes_of_its_wheels() -> None:
    hashes = {name: found for packages in locked().values() for name, found in packages.items()}
    assert len(hashes) > 80
    digest = re.compile(r"--hash=sha256:[0-9a-f]{64}")
    wrong = [name for name, found in hashes.items() if not found or not all(map(digest.fullmatch, found))]
    assert wrong == []


def test_what_is_installed_is_what_is_locked() -> None:
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))
    assert {name: metadata.version(name) for name in versions} == versions


def wheel_of(name: str, folder: Path) -> Path:
    """Return the wheel of a package with one empty module."""
    wheel, about = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return wheel


@pytest.mark.parametrize(
    ("changed", "refused", "is_new"),
    [(b"", False, True), (b"", False, False), (b"# changed", True, True)],
    ids=["new", "there", "changed"],
)
def test_set_up_refuses_a_wheel_whose_hash_is_not_locked(
    changed: bytes, refused: bool, is_new: bool, tmp_path: Path
) -> None:
    lock = "# Extra report:\n"
    for name in ("tiny", "small"):
        wheel = wheel_of(name, tmp_path)
        digest = hashlib.sha256(wheel.read_bytes() + changed).hexdigest()
        lock += f"{name}==1.0 \\\n    --hash=sha256:{digest}\n"
    (tmp_path / "constraints.txt").write_text(lock)
    (tmp_path / "benchmarks").mkdir()
    for folder in (tmp_path, tmp_path / "benchmarks"):
        (folder / "pyproject.toml").write_text("")
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    # An environment whose pip installs into a folder of the test. The last command, which installs the two
    # packages, and what removes setuptools are left out: they would change the environment of the tests.
    script = f"""#!/bin/sh
echo "$*" >>"{tmp_path}/calls"
case "$*" in
    *--editable* | *uninstall*) exit 0 ;;
    "-m venv "*) mkdir -p venv/bin && cp "$0" venv/bin/python && exit ;;
esac
exec "{sys.executable}" "$@"
"""
    python = tmp_path / ("python" if is_new else "venv/bin/python")
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(script)
    python.chmod(0o755)
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_TARGET": str(tmp_path / "installed")}
    done = subprocess.run(
        ["sh", "tools/setup.sh", "venv", "report"],
        cwd=tmp_path,
        env=os.environ | pip | {"PYTHON": str(python), "PIP_EXTRA_INDEX_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == refused, done.stderr
    assert ("THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr) == refused
    assert (tmp_path / "installed" / "tiny.py").exists() != refused
    # Two processes at a time install only where there is nothing that one of them could replace.
    calls = (tmp_path / "calls").read_text()
    assert (calls.count("--requirement"), calls.count("uninstall --yes")) == ((2, 1) if is_new else (1, 0))


def test_the_typed_marker_is_in_the_package() -> None:
    assert (ROOT / "src" / "dcgs" / "py.typed").exists()


def test_every_public_name_exists() -> None:
    assert [name for name in dcgs.__all__ if getattr(dcgs, name, None) is None] == []


@pytest.mark.parametrize(
    "page", [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem
)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    packages = ROOT / "src" / "dcgs", ROOT / "benchmarks" / "src" / "dcgs_bench", ROOT
    named = re.findall(r"`(?:src/dcgs/)?([a-z_0-9]+/[a-z_0-9/]+\.py)`", page.read_text())
    assert [name for name in named if not any((package / name).exists() for package in packages)] == []


def test_the_page_of_checkpoints_has_the_format_of_the_files() -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    assert re.findall(r"the number of the format, (\d+)", page) == [str(checkpoint_file.FORMAT)]


def test_the_page_of_mpi_has_the_bytes_of_the_headers_of_one_vector() -> None:
    page, vector = (ROOT / "docs" / "mpi.md").read_text(), np.ones(3)
    headers = HEADER + FRAME + EncodedArray(vector).nbytes - vector.nbytes
    assert re.findall(r"(\d+) bytes for one\s+vector", page) == [str(headers)]


@pytest.mark.parametrize(
    ("named", "found"), [({}, "shared/data"), ({"DCGS_DATA": "elsewhere"}, "elsewhere")], ids=["unset", "set"]
)
def test_the_tests_find_real_data_beside_the_checkout_unless_another_folder_is_named(
    named: dict[str, str], found: str, tmp_path: Path
) -> None:
    (tmp_path / "shared" / "data").mkdir(parents=True)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(ROOT / "conftest.py", checkout)
    code = "import conftest, os; print(os.environ['DCGS_DATA'])"
    environment = {name: value for name, value in os.environ.items() if name != "DCGS_DATA"} | named
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().removeprefix(f"{tmp_path}/") == found


@pytest.mark.parametrize("method", [dcgs.FastDCGS(), dcgs.DCGS(), dcgs.DFW()], ids=lambda m: type(m).__name__)
def test_a_reader_of_minimize_on_a_small_lasso_opens_at_most_42_files(method: dcgs.Method) -> None:
    data = lasso_synthetic(samples=80, features=40, nonzeros=4)
    objectives, X = data.objectives(4), dcgs.L1Ball(40, radius=100.0)
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])  # of no other test: its eigenvalues are new
    passed = passed_files(lambda: dcgs.minimize(objectives, X, graph, method, iterations=50))
    assert {"run/minimize.py", "runtime/lockstep.py"} <= passed
    assert len(passed) <= 42, sorted(passed)


def test_a_reader_of_a_fit_of_small_tables_opens_at_most_80_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_patients(tmp_path, sites=2, rows=60)
    fit = "fit logistic --data hospital-{agent}.csv --open --target ill --radius 2 --no-report --out m"
    passed = passed_files(lambda: main(fit.split()))
    assert {"learn/files/fit.py", "learn/linear/fit.py", "run/minimize.py"} <= passed
    assert len(passed) <= 80, sorted(passed)


def test_a_run_without_a_checkpoint_does_not_touch_what_writes_them() -> None:
    data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    run = partial(dcgs.minimize, data.objectives(3), dcgs.L1Ball(20, radius=9.0), nx.path_graph(3), rounds=5)
    written = {"checkpoints/manager.py", "checkpoints/folder.py", "checkpoints/fingerprint.py"}
    assert passed_files(run) & written == set()
    with tempfile.TemporaryDirectory() as folder:
        assert passed_files(lambda: run(checkpoint=dcgs.Checkpoint(folder))) >= written
